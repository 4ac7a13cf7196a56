"""Policies, their rollouts, what nodes conclude from them, and the flows and snapshots that replays need."""

from alembic import op

revision = "0004_policies"
down_revision = "0003_changes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE node ADD COLUMN netdevs jsonb NOT NULL DEFAULT '{}';
    UPDATE node SET netdevs = (
        SELECT coalesce(jsonb_object_agg(netdev->>'name', netdev->'driver'), '{}')
        FROM jsonb_array_elements(inventory->'netdevs') AS netdev
    ) WHERE inventory IS NOT NULL;

    CREATE TABLE policy (
        id          serial PRIMARY KEY,
        name        text NOT NULL,
        enabled     boolean NOT NULL,
        version     integer NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL,
        deleted_at  timestamptz
    );
    CREATE UNIQUE INDEX policy_name_key ON policy (name) WHERE deleted_at IS NULL;

    ALTER TABLE change ADD COLUMN policy_id integer REFERENCES policy;

    CREATE TABLE policy_version (
        policy_id   integer NOT NULL REFERENCES policy,
        version     integer NOT NULL,
        body        jsonb NOT NULL,
        created_at  timestamptz NOT NULL,
        created_by  text NOT NULL,
        note        text NOT NULL,
        PRIMARY KEY (policy_id, version)
    );

    CREATE TABLE rollout (
        id            serial PRIMARY KEY,
        policy_id     integer NOT NULL REFERENCES policy,
        from_version  integer,
        to_version    integer NOT NULL,
        state         text NOT NULL CHECK (state IN ('canary', 'batches', 'done', 'stopped', 'undone')),
        stage         integer NOT NULL,
        stages        jsonb NOT NULL,
        sentence      text NOT NULL,
        wait_s        double precision NOT NULL,
        guardrails    jsonb NOT NULL,
        stage_at      timestamptz NOT NULL,
        started_at    timestamptz NOT NULL,
        started_by    text NOT NULL,
        ended_at      timestamptz
    );
    CREATE UNIQUE INDEX rollout_unfinished_key ON rollout (policy_id) WHERE state IN ('canary', 'batches', 'stopped');

    CREATE TABLE decision (
        id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node_id      integer NOT NULL REFERENCES node ON DELETE CASCADE,
        at           timestamptz NOT NULL,
        policy_id    integer NOT NULL,
        policy_name  text NOT NULL,
        version      integer NOT NULL,
        mode         text NOT NULL,
        conclusion   jsonb NOT NULL,
        change_id    uuid REFERENCES change ON DELETE CASCADE
    );
    CREATE INDEX decision_node_id_at_id_idx ON decision (node_id, at, id);
    CREATE INDEX decision_node_id_policy_id_id_idx ON decision (node_id, policy_id, id);
    CREATE INDEX decision_change_id_idx ON decision (change_id) WHERE change_id IS NOT NULL;
    CREATE INDEX decision_at_idx ON decision (at);

    CREATE TABLE drift (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node_id    integer NOT NULL REFERENCES node ON DELETE CASCADE,
        at         timestamptz NOT NULL,
        policy_id  integer NOT NULL,
        key        text NOT NULL,
        expected   text NOT NULL,
        found      text NOT NULL,
        cause      text,
        response   text NOT NULL
    );
    CREATE INDEX drift_node_id_at_id_idx ON drift (node_id, at, id);
    CREATE INDEX drift_at_idx ON drift (at);

    CREATE TABLE early_report (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node_id    integer NOT NULL REFERENCES node ON DELETE CASCADE,
        change_id  uuid NOT NULL,
        at         timestamptz NOT NULL,
        message    jsonb NOT NULL
    );
    CREATE INDEX early_report_node_id_id_idx ON early_report (node_id, id);

    CREATE TABLE node_snapshot (
        node_id  integer NOT NULL REFERENCES node ON DELETE CASCADE,
        kind     text NOT NULL CHECK (kind IN ('topology', 'inventory')),
        at       timestamptz NOT NULL,
        digest   bytea NOT NULL,
        data     bytea NOT NULL,
        PRIMARY KEY (node_id, kind, at)
    );
    ALTER TABLE node_snapshot ALTER COLUMN data SET STORAGE EXTERNAL;

    CREATE TABLE telemetry_flows (
        node_id  integer NOT NULL,
        t0       timestamptz NOT NULL,
        data     bytea NOT NULL,
        PRIMARY KEY (node_id, t0)
    ) PARTITION BY RANGE (t0);
    ALTER TABLE telemetry_flows ALTER COLUMN data SET STORAGE EXTERNAL;
    """)


def downgrade() -> None:
    op.execute("""
    ALTER TABLE change DROP COLUMN policy_id;
    DROP TABLE telemetry_flows, node_snapshot, early_report, drift, decision, rollout, policy_version, policy;
    ALTER TABLE node DROP COLUMN netdevs;
    """)
