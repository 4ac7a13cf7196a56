"""News of credentials that changed, for the open connections of every process of the backend."""

from alembic import op

revision = "0016_trust"
down_revision = "0015_rollout_evidence"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Every process of the backend listens (coresteer.auth.trust). A trigger, so that no writer can forget it. The
    # payload is the hash of the credential; its text is known to its owner only.
    op.execute("""
    CREATE FUNCTION notify_of_key() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('coresteer_trust', encode(OLD.key_hash, 'hex'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER notify_of_key AFTER DELETE OR UPDATE OF key_hash ON node
        FOR EACH ROW WHEN (OLD.key_hash IS NOT NULL) EXECUTE FUNCTION notify_of_key();

    CREATE FUNCTION notify_of_token() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('coresteer_trust', encode(OLD.token_hash, 'hex'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER notify_of_session AFTER DELETE ON session FOR EACH ROW EXECUTE FUNCTION notify_of_token();
    CREATE TRIGGER notify_of_api_token AFTER DELETE OR UPDATE OF role, expires_at ON api_token
        FOR EACH ROW EXECUTE FUNCTION notify_of_token();

    CREATE FUNCTION notify_of_user() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('coresteer_trust', encode(token_hash, 'hex')) FROM (
            SELECT token_hash FROM session WHERE user_id = OLD.id
            UNION ALL SELECT token_hash FROM api_token WHERE user_id = OLD.id
        ) AS credentials;
        RETURN NULL;
    END $$;
    CREATE TRIGGER notify_of_user AFTER UPDATE OF role, disabled ON app_user
        FOR EACH ROW EXECUTE FUNCTION notify_of_user();
    """)


def downgrade() -> None:
    op.execute("""
    DROP TRIGGER notify_of_key ON node;
    DROP TRIGGER notify_of_session ON session;
    DROP TRIGGER notify_of_api_token ON api_token;
    DROP TRIGGER notify_of_user ON app_user;
    DROP FUNCTION notify_of_key, notify_of_token, notify_of_user;
    """)
