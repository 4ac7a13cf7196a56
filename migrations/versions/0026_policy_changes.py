"""An index for the changes of a policy, for its overview."""

from alembic import op

revision = "0026_policy_changes"
down_revision = "0025_stops"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX change_policy_id_idx ON change (policy_id, created_at) WHERE policy_id IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX change_policy_id_idx")
