"""A backend that does not lead stores a violation of a rollout's guardrails by a node that is connected to it."""

from alembic import op

revision = "0034_rollout_violation"
down_revision = "0033_enrolment_tokens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE rollout ADD COLUMN violation text")


def downgrade() -> None:
    op.execute("ALTER TABLE rollout DROP COLUMN violation")
