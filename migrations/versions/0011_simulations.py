"""Coscheduling studies, their runs, and traces of jobs. At most one study runs at a time."""

from alembic import op

revision = "0011_simulations"
down_revision = "0010_leave_pages"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE simulation_trace (
        name        text PRIMARY KEY,
        facts       jsonb NOT NULL,
        content     bytea NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL
    );
    ALTER TABLE simulation_trace ALTER COLUMN content SET STORAGE EXTERNAL;

    CREATE TABLE simulation (
        id            serial PRIMARY KEY,
        spec          jsonb NOT NULL,
        trace         jsonb,
        runs_planned  integer NOT NULL,
        state         text NOT NULL CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
        sentence      text NOT NULL,
        created_at    timestamptz NOT NULL,
        created_by    text NOT NULL,
        ended_at      timestamptz
    );
    CREATE UNIQUE INDEX simulation_running_idx ON simulation (state) WHERE state = 'running';

    CREATE TABLE simulation_run (
        simulation_id  integer NOT NULL REFERENCES simulation ON DELETE CASCADE,
        number         integer NOT NULL,
        run            jsonb NOT NULL,
        PRIMARY KEY (simulation_id, number)
    );
    """)


def downgrade() -> None:
    op.execute("DROP TABLE simulation_run, simulation, simulation_trace")
