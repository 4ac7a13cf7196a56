"""When a node of a rollout's present stage could enforce the version first."""

from alembic import op

revision = "0044_rollout_begin"
down_revision = "0043_approvals"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE rollout ADD COLUMN begun_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE rollout DROP COLUMN begun_at")
