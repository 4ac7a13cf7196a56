"""Continuous proof of policies: episodes, their blocks, and the sums of which confidence sequences consist.

Versions that exist already keep what they do: they are not held out until a new version asks for it.
"""

from alembic import op

revision = "0012_proof"
down_revision = "0011_simulations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE decision ADD COLUMN holdout jsonb;

    UPDATE policy_version SET body = body || '{"proof": {"holdout_percent": 0}}';

    CREATE TABLE proof_fleet (
        id         integer PRIMARY KEY CHECK (id = 1),
        seed       bigint NOT NULL,
        paused_at  timestamptz,
        paused_by  text
    );

    CREATE TABLE proof_version (
        policy_id       integer NOT NULL REFERENCES policy,
        version         integer NOT NULL,
        started_at      timestamptz NOT NULL,
        rho             double precision NOT NULL,
        washout_s       double precision NOT NULL,
        washout_at      timestamptz NOT NULL,
        findings        jsonb NOT NULL DEFAULT '{}',
        rolled_back_at  timestamptz,
        PRIMARY KEY (policy_id, version)
    );

    CREATE TABLE proof_episode (
        id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        policy_id      integer NOT NULL,
        version        integer NOT NULL,
        node_id        integer REFERENCES node ON DELETE SET NULL,
        period         bigint NOT NULL,
        started_at     timestamptz NOT NULL,
        block_s        double precision NOT NULL,
        washout_s      double precision NOT NULL,
        holdout_first  boolean NOT NULL,
        labels         jsonb NOT NULL,
        state          text NOT NULL CHECK (state IN ('running', 'waiting', 'included', 'excluded')),
        reason         text,
        differences    jsonb NOT NULL DEFAULT '{}',
        ended_at       timestamptz,
        FOREIGN KEY (policy_id, version) REFERENCES proof_version,
        UNIQUE (policy_id, version, node_id, period)
    );
    CREATE INDEX proof_episode_open_idx ON proof_episode (started_at) WHERE state IN ('running', 'waiting');
    CREATE INDEX proof_episode_version_idx ON proof_episode (policy_id, version, started_at);

    CREATE TABLE proof_block (
        episode_id  bigint NOT NULL REFERENCES proof_episode ON DELETE CASCADE,
        holdout     boolean NOT NULL,
        started_at  timestamptz NOT NULL,
        figures     jsonb NOT NULL,
        parts       double precision[] NOT NULL,
        factors     jsonb NOT NULL,
        PRIMARY KEY (episode_id, holdout)
    );

    CREATE TABLE proof_sum (
        policy_id  integer NOT NULL,
        version    integer NOT NULL,
        metric     text NOT NULL,
        label      text NOT NULL,
        value      text NOT NULL,
        at         timestamptz NOT NULL,
        episodes   bigint NOT NULL,
        total      double precision NOT NULL,
        squares    double precision NOT NULL,
        PRIMARY KEY (policy_id, version, metric, label, value, at),
        FOREIGN KEY (policy_id, version) REFERENCES proof_version
    );
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE proof_sum, proof_block, proof_episode, proof_version, proof_fleet;
    UPDATE policy_version SET body = body - 'proof';
    ALTER TABLE decision DROP COLUMN holdout;
    """)
