"""Experiments, their runs, and links to their reports."""

from alembic import op

revision = "0007_experiments"
down_revision = "0006_classes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE experiment (
        id            serial PRIMARY KEY,
        node_id       integer NOT NULL REFERENCES node ON DELETE CASCADE,
        peer_node_id  integer REFERENCES node ON DELETE SET NULL,
        spec          jsonb NOT NULL,
        seed          integer NOT NULL,
        runs_planned  integer NOT NULL,
        planned_s     double precision NOT NULL,
        state         text NOT NULL CHECK (state IN ('queued', 'running', 'done', 'stopped', 'cancelled', 'failed')),
        ending        text CHECK (ending IN ('done', 'stopped', 'cancelled', 'failed')),
        sentence      text NOT NULL,
        now           text NOT NULL,
        machine       jsonb NOT NULL,
        before        jsonb,
        after         jsonb,
        created_at    timestamptz NOT NULL,
        created_by    text NOT NULL,
        started_at    timestamptz,
        ended_at      timestamptz
    );
    CREATE INDEX experiment_node_id_id_idx ON experiment (node_id, id);
    CREATE INDEX experiment_open_idx ON experiment (id) WHERE state IN ('queued', 'running');

    CREATE TABLE experiment_run (
        experiment_id  integer NOT NULL REFERENCES experiment ON DELETE CASCADE,
        number         integer NOT NULL,
        attempt        integer NOT NULL,
        kept_at        timestamptz NOT NULL,
        run            jsonb NOT NULL,
        discarded      text,
        PRIMARY KEY (experiment_id, number, attempt)
    );

    ALTER TABLE change ADD COLUMN experiment_id integer REFERENCES experiment ON DELETE SET NULL;
    CREATE INDEX change_experiment_id_idx ON change (experiment_id) WHERE experiment_id IS NOT NULL;

    CREATE TABLE report_share (
        token_hash     bytea PRIMARY KEY,
        experiment_id  integer NOT NULL REFERENCES experiment ON DELETE CASCADE,
        created_at     timestamptz NOT NULL,
        created_by     text NOT NULL,
        expires_at     timestamptz NOT NULL
    );
    CREATE INDEX report_share_experiment_id_idx ON report_share (experiment_id);
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE report_share;
    ALTER TABLE change DROP COLUMN experiment_id;
    DROP TABLE experiment_run, experiment;
    """)
