"""What a stop of enforcement reached when it began, and who lifted it."""

from alembic import op

revision = "0028_stop_records"
down_revision = "0027_undoes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE enforcement_stop
        ADD COLUMN nodes integer,
        ADD COLUMN settings integer,
        ADD COLUMN lifted_by text;
    """)


def downgrade() -> None:
    op.execute("""
    ALTER TABLE enforcement_stop
        DROP COLUMN nodes,
        DROP COLUMN settings,
        DROP COLUMN lifted_by;
    """)
