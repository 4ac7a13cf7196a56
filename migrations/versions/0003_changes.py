"""Changes and their steps."""

from alembic import op

revision = "0003_changes"
down_revision = "0002_nodes_and_telemetry"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE change (
        id                 uuid PRIMARY KEY,
        node_id            integer NOT NULL REFERENCES node ON DELETE CASCADE,
        plan               jsonb NOT NULL,
        sentence           text NOT NULL,
        state              text NOT NULL
                           CHECK (state IN ('applying', 'unconfirmed', 'confirmed', 'rolled_back', 'failed')),
        ended_by           text CHECK (
            ended_by IN ('user', 'timeout', 'guardrail', 'lost_backend', 'agent_restart', 'error')
        ),
        created_by         text NOT NULL,
        reason             text NOT NULL,
        created_at         timestamptz NOT NULL,
        applied_at         timestamptz,
        ended_at           timestamptz,
        deadline_at        timestamptz,
        confirm_timeout_s  double precision NOT NULL,
        guardrails         jsonb NOT NULL,
        results            jsonb NOT NULL
    );
    CREATE INDEX change_created_at_id_idx ON change (created_at, id);
    CREATE INDEX change_node_id_created_at_id_idx ON change (node_id, created_at, id);
    CREATE INDEX change_open_idx ON change (node_id) WHERE state IN ('applying', 'unconfirmed');

    CREATE TABLE change_step (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        change_id  uuid NOT NULL REFERENCES change ON DELETE CASCADE,
        at         timestamptz NOT NULL,
        state      text NOT NULL,
        sentence   text NOT NULL
    );
    CREATE INDEX change_step_change_id_id_idx ON change_step (change_id, id);
    """)


def downgrade() -> None:
    op.execute("DROP TABLE change_step, change")
