"""How many samples of an agent were rejected, so that it learns of those whose rejection it missed."""

from alembic import op

revision = "0017_rejected_samples"
down_revision = "0016_trust"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE node ADD COLUMN rejected_samples bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE node DROP COLUMN rejected_samples")
