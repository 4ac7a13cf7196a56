"""Numbers of episodes that outlive them, the block for which one is excluded, and sums of groups that are shown."""

from alembic import op

revision = "0019_proof_counts"
down_revision = "0018_metric_floor"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE proof_episode
        ADD COLUMN block text CHECK (block IN ('enforced', 'holdout')),
        ADD COLUMN counted boolean NOT NULL DEFAULT false;
    CREATE INDEX proof_episode_uncounted_idx ON proof_episode (state) WHERE NOT counted;

    CREATE TABLE proof_node (
        policy_id  integer NOT NULL,
        version    integer NOT NULL,
        node_id    integer NOT NULL,
        episodes   bigint NOT NULL,
        PRIMARY KEY (policy_id, version, node_id),
        FOREIGN KEY (policy_id, version) REFERENCES proof_version
    );

    CREATE TABLE proof_excluded (
        policy_id  integer NOT NULL,
        version    integer NOT NULL,
        reason     text NOT NULL,
        block      text NOT NULL CHECK (block IN ('enforced', 'holdout', '')),
        episodes   bigint NOT NULL,
        PRIMARY KEY (policy_id, version, reason, block),
        FOREIGN KEY (policy_id, version) REFERENCES proof_version
    );

    -- groups of guardrails were never shown
    DELETE FROM proof_sum USING policy_version AS stored
    WHERE stored.policy_id = proof_sum.policy_id AND stored.version = proof_sum.version AND proof_sum.label <> ''
      AND proof_sum.metric <> coalesce(stored.body->'proof'->>'metric', 'cpu_s_per_gbit');
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE proof_excluded, proof_node;
    ALTER TABLE proof_episode DROP COLUMN block, DROP COLUMN counted;
    """)
