"""How far service classes get what they were promised."""

from alembic import op

revision = "0006_classes"
down_revision = "0005_learned"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE telemetry_classes (
        node_id    integer NOT NULL,
        policy_id  integer NOT NULL,
        t0         timestamptz NOT NULL,
        data       bytea NOT NULL,
        PRIMARY KEY (node_id, policy_id, t0)
    ) PARTITION BY RANGE (t0);
    ALTER TABLE telemetry_classes ALTER COLUMN data SET STORAGE EXTERNAL;
    """)


def downgrade() -> None:
    op.execute("DROP TABLE telemetry_classes")
