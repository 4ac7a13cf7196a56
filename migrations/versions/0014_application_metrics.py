"""Application metrics: named queries of Prometheus servers."""

from alembic import op

revision = "0014_application_metrics"
down_revision = "0013_ert_sign"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE application_metric (
        id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name        text NOT NULL UNIQUE,
        label       text NOT NULL,
        unit        text NOT NULL,
        better      text NOT NULL CHECK (better IN ('more', 'less', '')),
        url         text NOT NULL,
        query       text NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL,
        deleted_at  timestamptz
    );
    """)


def downgrade() -> None:
    op.execute("DROP TABLE application_metric;")
