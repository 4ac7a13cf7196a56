"""The change that a change undoes."""

from alembic import op

revision = "0027_undoes"
down_revision = "0026_policy_changes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE change ADD COLUMN undoes uuid;
    CREATE INDEX change_undoes ON change (undoes) WHERE undoes IS NOT NULL;
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX change_undoes;
    ALTER TABLE change DROP COLUMN undoes;
    """)
