"""People, their sessions and tokens, enrolment, and the append-only audit log."""

from alembic import op

revision = "0001_people_and_audit"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE app_user (
        id             serial PRIMARY KEY,
        username       text NOT NULL,
        role           text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
        password_hash  bytea NOT NULL,
        password_salt  bytea NOT NULL,
        scrypt_n       integer NOT NULL,
        scrypt_r       integer NOT NULL,
        scrypt_p       integer NOT NULL,
        disabled       boolean NOT NULL DEFAULT false,
        created_at     timestamptz NOT NULL DEFAULT now(),
        last_login_at  timestamptz
    );
    CREATE UNIQUE INDEX app_user_username_idx ON app_user (lower(username));

    CREATE TABLE session (
        token_hash  bytea PRIMARY KEY,
        user_id     integer NOT NULL REFERENCES app_user ON DELETE CASCADE,
        csrf_token  text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        expires_at  timestamptz NOT NULL
    );
    CREATE INDEX session_user_id_idx ON session (user_id);

    CREATE TABLE api_token (
        id            serial PRIMARY KEY,
        token_hash    bytea NOT NULL UNIQUE,
        name          text NOT NULL,
        role          text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
        user_id       integer NOT NULL REFERENCES app_user ON DELETE CASCADE,
        created_at    timestamptz NOT NULL DEFAULT now(),
        last_used_at  timestamptz,
        expires_at    timestamptz
    );

    CREATE TABLE one_time_token (
        token_hash  bytea PRIMARY KEY,
        purpose     text NOT NULL CHECK (purpose IN ('setup', 'enrolment')),
        simulated   boolean NOT NULL DEFAULT false,
        created_by  text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        expires_at  timestamptz NOT NULL
    );

    CREATE TABLE audit (
        id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at       timestamptz NOT NULL DEFAULT clock_timestamp(),
        actor    text NOT NULL,
        action   text NOT NULL,
        target   text NOT NULL,
        node_id  integer,
        result   text NOT NULL,
        detail   jsonb NOT NULL
    );
    CREATE INDEX audit_node_id_idx ON audit (node_id, id);
    CREATE INDEX audit_actor_idx ON audit (actor, id);

    CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'entries of the audit log are never changed or removed';
    END $$;
    CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE audit, one_time_token, api_token, session, app_user;
    DROP FUNCTION audit_is_append_only();
    """)
