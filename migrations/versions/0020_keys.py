"""Keys of agents that rotate and expire, and tokens that readmit a node."""

from alembic import op

revision = "0020_keys"
down_revision = "0019_proof_counts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE node
        ADD COLUMN key_created_at timestamptz NOT NULL DEFAULT now(),
        ADD COLUMN key_used_at timestamptz,
        ADD COLUMN previous_key_hash bytea UNIQUE,
        ADD COLUMN previous_key_until timestamptz;
    ALTER TABLE one_time_token ADD COLUMN node_id integer REFERENCES node ON DELETE CASCADE;

    DROP TRIGGER notify_of_key ON node;
    CREATE OR REPLACE FUNCTION notify_of_key() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('coresteer_trust', encode(hash, 'hex'))
            FROM unnest(ARRAY[OLD.key_hash, OLD.previous_key_hash]) AS hash WHERE hash IS NOT NULL;
        RETURN NULL;
    END $$;
    CREATE TRIGGER notify_of_key AFTER DELETE OR UPDATE OF key_hash, previous_key_hash ON node
        FOR EACH ROW EXECUTE FUNCTION notify_of_key();
    """)


def downgrade() -> None:
    op.execute("""
    DROP TRIGGER notify_of_key ON node;
    CREATE OR REPLACE FUNCTION notify_of_key() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('coresteer_trust', encode(OLD.key_hash, 'hex'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER notify_of_key AFTER DELETE OR UPDATE OF key_hash ON node
        FOR EACH ROW WHEN (OLD.key_hash IS NOT NULL) EXECUTE FUNCTION notify_of_key();
    ALTER TABLE one_time_token DROP COLUMN node_id;
    ALTER TABLE node DROP COLUMN key_created_at, DROP COLUMN key_used_at, DROP COLUMN previous_key_hash,
        DROP COLUMN previous_key_until;
    """)
