"""Functions with which a role that owns no table creates and drops partitions."""

from alembic import op

revision = "0023_partition_functions"
down_revision = "0022_audit_chain"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE FUNCTION create_partition(parent text, partition text, from_time timestamptz, to_time timestamptz)
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        IF NOT starts_with(partition, parent || '_') THEN
            RAISE EXCEPTION '% is not named as a partition of %', partition, parent;
        END IF;
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
            partition, parent, from_time, to_time);
    END $$;

    CREATE FUNCTION drop_partition(partition text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        PERFORM FROM pg_class WHERE oid = to_regclass(quote_ident(partition)) AND relispartition;
        IF FOUND THEN
            EXECUTE format('DROP TABLE %I', partition);
        END IF;
    END $$;

    REVOKE EXECUTE ON FUNCTION create_partition, drop_partition FROM PUBLIC;
    """)


def downgrade() -> None:
    op.execute("DROP FUNCTION create_partition, drop_partition")
