"""Saved views of the fleet page: a name and the page's search parameters."""

from alembic import op

revision = "0029_fleet_views"
down_revision = "0028_stop_records"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE fleet_view (
        id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name        text NOT NULL,
        search      text NOT NULL,
        shared      boolean NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL,
        UNIQUE (created_by, name)
    );
    """)


def downgrade() -> None:
    op.execute("DROP TABLE fleet_view;")
