"""Where a session was signed in, so that its user recognizes it."""

from alembic import op

revision = "0021_own_sessions"
down_revision = "0020_keys"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE session ADD COLUMN address text, ADD COLUMN browser text")


def downgrade() -> None:
    op.execute("ALTER TABLE session DROP COLUMN address, DROP COLUMN browser")
