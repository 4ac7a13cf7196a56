"""Observations of changes: figures in the 2 minutes before and after each."""

from alembic import op

revision = "0024_observations"
down_revision = "0023_partition_functions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE change ADD COLUMN observation jsonb;
    CREATE INDEX change_unobserved ON change (applied_at) WHERE observation IS NULL AND experiment_id IS NULL;
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX change_unobserved;
    ALTER TABLE change DROP COLUMN observation;
    """)
