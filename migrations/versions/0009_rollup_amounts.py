"""Roll-ups hold amounts of any scalar by name, so that a new counter needs no column of its own."""

from alembic import op

revision = "0009_rollup_amounts"
down_revision = "0008_standard_terms"
branch_labels = None
depends_on = None

TABLES = ("telemetry_minute", "telemetry_hour")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN amounts jsonb")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN amounts")
