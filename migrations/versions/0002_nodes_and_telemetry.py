"""Nodes, their samples in chunks, and the roll-ups by minute and hour."""

from alembic import op

revision = "0002_nodes_and_telemetry"
down_revision = "0001_people_and_audit"
branch_labels = None
depends_on = None

# bytea columns are zstd frames already; EXTERNAL keeps PostgreSQL from compressing them again
CHUNK_COLUMNS = (
    *("busy", "user", "system", "irq", "softirq", "steal", "iowait"),
    *("net_rx", "net_tx", "softirq_other", "processed", "dropped", "time_squeeze"),
    *("irqs", "netdevs"),
)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE node (
        id             serial PRIMARY KEY,
        name           text NOT NULL UNIQUE,
        simulated      boolean NOT NULL,
        labels         jsonb NOT NULL DEFAULT '{}',
        key_hash       bytea UNIQUE,
        created_at     timestamptz NOT NULL DEFAULT now(),
        last_seen_at   timestamptz,
        hello          jsonb,
        topology       jsonb,
        inventory      jsonb,
        cpus           integer,
        packages       integer,
        numa_nodes     integer,
        drivers        text[] NOT NULL DEFAULT '{}',
        stream         text,
        acked_seq      bigint NOT NULL DEFAULT 0,
        clock_skew_ms  double precision
    );
    """)
    columns = ",\n".join(f'"{name}" bytea' for name in CHUNK_COLUMNS)
    external = ", ".join(f'ALTER COLUMN "{name}" SET STORAGE EXTERNAL' for name in ("scalars", *CHUNK_COLUMNS))
    op.execute(f"""
    CREATE TABLE telemetry_chunk (
        node_id    integer NOT NULL,
        t0         timestamptz NOT NULL,
        t1         timestamptz NOT NULL,
        first_seq  bigint NOT NULL,
        last_seq   bigint NOT NULL,
        samples    integer NOT NULL,
        cpus       integer NOT NULL,
        scalars    bytea NOT NULL,
        {columns},
        PRIMARY KEY (node_id, t0)
    ) PARTITION BY RANGE (t0);
    ALTER TABLE telemetry_chunk {external};
    """)
    for table in ("telemetry_minute", "telemetry_hour"):
        op.execute(f"""
        CREATE TABLE {table} (
            node_id          integer NOT NULL,
            t0               timestamptz NOT NULL,
            t1               timestamptz NOT NULL,
            samples          integer NOT NULL,
            cpus             integer NOT NULL,
            duration_s       double precision NOT NULL,
            shares           bytea NOT NULL,
            netdevs          bytea NOT NULL,
            interrupts       bigint,
            dropped          bigint,
            squeezed         bigint,
            rtt_p50_us       bigint,
            rtt_p95_us       bigint,
            rtt_p99_us       bigint,
            retransmits      bigint,
            agent_cpu_s      double precision,
            agent_rss_bytes  bigint,
            PRIMARY KEY (node_id, t0)
        ) PARTITION BY RANGE (t0);
        ALTER TABLE {table} ALTER COLUMN shares SET STORAGE EXTERNAL, ALTER COLUMN netdevs SET STORAGE EXTERNAL;
        """)


def downgrade() -> None:
    op.execute("DROP TABLE telemetry_hour, telemetry_minute, telemetry_chunk, node;")
