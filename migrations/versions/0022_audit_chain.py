"""A hash chain over the audit log, and functions for what only the owner of the tables may do.

The database writes the chain, not the backend: the backend's role may only insert entries, so that it can neither
choose an entry's time and place nor compute a chain of its own. A link is appended when the transaction commits (a
deferred trigger), as its last lock: transactions that lock other rows after their entry cannot deadlock with it.
"""

from alembic import op

revision = "0022_audit_chain"
down_revision = "0021_own_sessions"
branch_labels = None
depends_on = None

_CHAIN = """
    CREATE TABLE audit_chain (
        number         bigint PRIMARY KEY,
        audit_id       bigint NOT NULL UNIQUE,
        actor_salt     bytea,
        actor_digest   bytea NOT NULL,
        target_salt    bytea,
        target_digest  bytea NOT NULL,
        detail_salt    bytea,
        detail_digest  bytea NOT NULL,
        previous       bytea NOT NULL,
        hash           bytea NOT NULL
    );
    CREATE TABLE audit_head (
        only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        number    bigint NOT NULL,
        hash      bytea NOT NULL
    );
    INSERT INTO audit_head (number, hash) VALUES (0, '');
    CREATE TABLE audit_export (
        destination  text PRIMARY KEY,
        number       bigint NOT NULL
    );

    CREATE FUNCTION append_audit_link(entry audit, head audit_head) RETURNS audit_head LANGUAGE plpgsql AS $$
    DECLARE
        link audit_chain;
    BEGIN
        link.number := head.number + 1;
        link.audit_id := entry.id;
        -- 122 random bits: a name cannot be guessed from its digest once the salt is removed
        link.actor_salt := uuid_send(gen_random_uuid());
        link.target_salt := uuid_send(gen_random_uuid());
        link.detail_salt := uuid_send(gen_random_uuid());
        link.actor_digest := sha256(link.actor_salt || convert_to(entry.actor, 'UTF8'));
        link.target_digest := sha256(link.target_salt || convert_to(entry.target, 'UTF8'));
        link.detail_digest := sha256(link.detail_salt || convert_to(entry.detail::text, 'UTF8'));
        link.previous := head.hash;
        link.hash := sha256(convert_to(jsonb_build_array(
            link.number, entry.id, (extract(epoch FROM entry.at) * 1000000)::bigint,
            entry.action, entry.node_id, entry.result,
            encode(link.actor_digest, 'hex'), encode(link.target_digest, 'hex'), encode(link.detail_digest, 'hex'),
            encode(link.previous, 'hex'))::text, 'UTF8'));
        INSERT INTO audit_chain VALUES (link.*);
        head.number := link.number;
        head.hash := link.hash;
        RETURN head;
    END $$;

    -- the row of audit_head is the lock of the chain, until the transaction ends
    CREATE FUNCTION chain_audit_entry() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DECLARE
        head audit_head;
    BEGIN
        SELECT * INTO STRICT head FROM audit_head FOR UPDATE;
        head := append_audit_link(NEW, head);
        UPDATE audit_head SET number = head.number, hash = head.hash;
        RETURN NULL;
    END $$;

    CREATE CONSTRAINT TRIGGER chain_audit_entry AFTER INSERT ON audit DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION chain_audit_entry();
"""

_ANONYMIZATION = """
    CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'UPDATE' AND current_setting('coresteer.anonymizes_audit', true) = 'on' THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'entries of the audit log are never changed or removed';
    END $$;
    CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_chain
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

    CREATE FUNCTION anonymize_audit(former_name text, former_id integer, requested_by text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DECLARE
        pseudonym text := format('(deleted user %s)', former_id);
        actors int8multirange;
        targets int8multirange;
        details int8multirange;
    BEGIN
        IF EXISTS (SELECT FROM app_user WHERE username = former_name OR id = former_id) THEN
            RAISE EXCEPTION 'the audit log is anonymized only for deleted users, and % is not one', former_name;
        END IF;
        SET CONSTRAINTS chain_audit_entry IMMEDIATE;  -- entries of this transaction are chained as they are now
        SELECT range_agg(int8range(id, id, '[]')) INTO actors FROM audit WHERE actor = former_name;
        SELECT range_agg(int8range(id, id, '[]')) INTO targets FROM audit WHERE target = 'user ' || former_name;
        SELECT range_agg(int8range(id, id, '[]')) INTO details FROM audit
        WHERE detail ? 'from' AND (actor = former_name OR target = 'user ' || former_name)
            -- a user may be named like a word of Coresteer's own, which is no reason to remove evidence
            OR jsonb_path_query_array(
                detail - ARRAY['role', 'why', 'quota', 'mode', 'state', 'password', 'changed'], '$.**'
            ) @> jsonb_build_array(former_name);
        PERFORM set_config('coresteer.anonymizes_audit', 'on', true);
        UPDATE audit_chain SET actor_salt = NULL WHERE audit_id <@ actors;
        UPDATE audit_chain SET target_salt = NULL WHERE audit_id <@ targets;
        UPDATE audit_chain SET detail_salt = NULL WHERE audit_id <@ details;
        UPDATE audit SET actor = pseudonym WHERE id <@ actors;
        UPDATE audit SET target = 'user ' || pseudonym WHERE id <@ targets;
        UPDATE audit SET detail = '{}' WHERE id <@ details;
        PERFORM set_config('coresteer.anonymizes_audit', 'off', true);
        INSERT INTO audit (actor, action, target, result, detail) VALUES (
            CASE WHEN requested_by = former_name THEN pseudonym ELSE requested_by END,
            'audit.anonymize', 'user ' || pseudonym, 'ok',
            jsonb_build_object(
                'actor', coalesce(actors, '{}')::text,
                'target', coalesce(targets, '{}')::text,
                'detail', coalesce(details, '{}')::text));
    END $$;
    REVOKE EXECUTE ON FUNCTION anonymize_audit FROM PUBLIC;
"""


def upgrade() -> None:
    op.execute(_CHAIN)
    op.execute("""
    DO $$
    DECLARE
        entry audit;
        head audit_head;
    BEGIN
        SELECT * INTO STRICT head FROM audit_head;
        FOR entry IN SELECT * FROM audit ORDER BY id LOOP
            head := append_audit_link(entry, head);
        END LOOP;
        UPDATE audit_head SET number = head.number, hash = head.hash;  -- once: row versions of one transaction add up
    END $$;
    """)
    op.execute(_ANONYMIZATION)


def downgrade() -> None:
    op.execute("""
    DROP FUNCTION anonymize_audit;
    DROP TRIGGER chain_audit_entry ON audit;
    DROP FUNCTION chain_audit_entry;
    DROP FUNCTION append_audit_link;
    DROP TABLE audit_chain, audit_head, audit_export;
    CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'entries of the audit log are never changed or removed';
    END $$;
    """)
