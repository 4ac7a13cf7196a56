"""Stops of enforcement, and how many settings of each node have not their original value."""

from alembic import op

revision = "0025_stops"
down_revision = "0024_observations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE node ADD COLUMN changed_settings integer;
    CREATE TABLE enforcement_stop (
        id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        labels      jsonb NOT NULL,
        restore     boolean NOT NULL,
        reason      text NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL,
        lifted_at   timestamptz
    );
    CREATE TABLE enforcement_stop_node (
        stop_id        integer NOT NULL REFERENCES enforcement_stop (id) ON DELETE CASCADE,
        node_id        integer NOT NULL REFERENCES node (id) ON DELETE CASCADE,
        was_connected  boolean NOT NULL,
        obeyed_at      timestamptz,
        stuck          integer NOT NULL DEFAULT 0,
        PRIMARY KEY (stop_id, node_id)
    );
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE enforcement_stop_node;
    DROP TABLE enforcement_stop;
    ALTER TABLE node DROP COLUMN changed_settings;
    """)
