"""Changes that restore values as found: they undo every earlier change of their settings."""

from alembic import op

revision = "0030_restores"
down_revision = "0029_fleet_views"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE change ADD COLUMN restores boolean NOT NULL DEFAULT false;
    CREATE INDEX change_restores ON change (node_id, created_at) WHERE restores;
    """)


def downgrade() -> None:
    op.execute("""
    DROP INDEX change_restores;
    ALTER TABLE change DROP COLUMN restores;
    """)
