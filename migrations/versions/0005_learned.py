"""What a node's agent has learned of its NICs."""

from alembic import op

revision = "0005_learned"
down_revision = "0004_policies"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE node ADD COLUMN learned jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE node DROP COLUMN learned")
