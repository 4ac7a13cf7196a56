"""How the next version of a policy spreads."""

from alembic import op

revision = "0041_policy_pace"
down_revision = "0038_gitops"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE policy ADD COLUMN pace jsonb NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    op.execute("ALTER TABLE policy DROP COLUMN pace")
