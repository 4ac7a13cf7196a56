"""Enrolment tokens of their own: for several nodes, with labels, names and a window in which nodes enrol again.

one_time_token keeps its rows and columns for enrolment: the previous version's backend reads and writes them until it
is replaced. Each of its tokens is in one table only, so that it is used once; the use moves it to enrolment_token.
"""

from alembic import op

revision = "0033_enrolment_tokens"
down_revision = "0032_replicas"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE enrolment_token (
        id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        token_hash    bytea NOT NULL UNIQUE,
        created_by    text NOT NULL,
        created_at    timestamptz NOT NULL DEFAULT now(),
        expires_at    timestamptz NOT NULL,
        simulated     boolean NOT NULL DEFAULT false,
        node_id       integer REFERENCES node ON DELETE CASCADE,
        max_uses      integer NOT NULL DEFAULT 1,
        uses          integer NOT NULL DEFAULT 0 CHECK (uses <= max_uses),
        last_used_at  timestamptz,
        labels        jsonb NOT NULL DEFAULT '{}',
        name_pattern  text,
        rejoin_until  timestamptz
    );
    ALTER TABLE node ADD COLUMN token_labels jsonb NOT NULL DEFAULT '{}';
    """)


def downgrade() -> None:
    op.execute("""
    INSERT INTO one_time_token (token_hash, purpose, simulated, node_id, created_by, created_at, expires_at)
        SELECT token_hash, 'enrolment', simulated, node_id, created_by, created_at, expires_at
        FROM enrolment_token WHERE uses = 0 AND max_uses = 1 AND name_pattern IS NULL;
    DROP TABLE enrolment_token;
    ALTER TABLE node DROP COLUMN token_labels;
    """)
