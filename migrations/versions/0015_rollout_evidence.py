"""The figures on which the stages of rollouts passed."""

from alembic import op

revision = "0015_rollout_evidence"
down_revision = "0014_application_metrics"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE rollout ADD COLUMN evidence jsonb NOT NULL DEFAULT '[]'")


def downgrade() -> None:
    op.execute("ALTER TABLE rollout DROP COLUMN evidence")
