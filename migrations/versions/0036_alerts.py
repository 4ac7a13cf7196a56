"""Alerts: rules with defaults, alerts that fire or fired, silences, receivers and what is sent to them."""

from alembic import op

revision = "0036_alerts"
down_revision = "0035_role_labels"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE alert_rule (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL UNIQUE,
            signal text NOT NULL,
            labels jsonb NOT NULL DEFAULT '{}',
            threshold double precision NOT NULL,
            clear double precision NOT NULL,
            for_s double precision NOT NULL,
            keep_s double precision NOT NULL,
            severity text NOT NULL,
            enabled boolean NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now(),
            updated_by text NOT NULL,
            notified_at timestamptz,
            repeated_at timestamptz
        );
        CREATE TABLE alert (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            rule_id integer NOT NULL REFERENCES alert_rule (id) ON DELETE CASCADE,
            subject integer NOT NULL,
            name text NOT NULL,
            labels jsonb NOT NULL,
            value double precision,
            fired_at timestamptz NOT NULL,
            resolved_at timestamptz,
            notified text NOT NULL DEFAULT ''
        );
        CREATE UNIQUE INDEX alert_firing_idx ON alert (rule_id, subject) WHERE resolved_at IS NULL;
        CREATE INDEX alert_resolved_at_idx ON alert (resolved_at);
        CREATE TABLE alert_silence (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            labels jsonb NOT NULL,
            comment text NOT NULL,
            created_at timestamptz NOT NULL,
            created_by text NOT NULL,
            ends_at timestamptz NOT NULL
        );
        CREATE TABLE alert_receiver (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL UNIQUE,
            kind text NOT NULL,
            url text NOT NULL,
            secret text NOT NULL,
            username text NOT NULL,
            sender text NOT NULL,
            recipients jsonb NOT NULL,
            severity text NOT NULL,
            enabled boolean NOT NULL,
            created_at timestamptz NOT NULL,
            created_by text NOT NULL
        );
        CREATE TABLE alert_delivery (
            id uuid PRIMARY KEY,
            receiver_id integer NOT NULL REFERENCES alert_receiver (id) ON DELETE CASCADE,
            rule_id integer NOT NULL REFERENCES alert_rule (id) ON DELETE CASCADE,
            number bigint GENERATED ALWAYS AS IDENTITY,
            notification jsonb NOT NULL,
            created_at timestamptz NOT NULL,
            state text NOT NULL,
            attempts integer NOT NULL,
            due_at timestamptz NOT NULL,
            outcome text NOT NULL
        );
        CREATE INDEX alert_delivery_waiting_idx ON alert_delivery (number) WHERE state = 'waiting';
        CREATE INDEX alert_delivery_created_at_idx ON alert_delivery (created_at);
        INSERT INTO alert_rule (name, signal, threshold, clear, for_s, keep_s, severity, enabled, updated_by) VALUES
            ('Node disconnected', 'disconnected', 1, 1, 120, 30, 'critical', true, 'coresteer'),
            ('Change rolled back', 'rollbacks', 1, 1, 0, 0, 'warning', true, 'coresteer'),
            ('Setting drifted', 'drifts', 1, 1, 0, 60, 'warning', true, 'coresteer'),
            ('Packets dropped', 'softnet_dropped_per_s', 1, 0.1, 120, 300, 'warning', true, 'coresteer'),
            ('CPU saturated by softirq', 'softirq_cpu_percent', 90, 75, 300, 120, 'critical', true, 'coresteer'),
            ('Harmful policy', 'harmful', 1, 1, 0, 0, 'critical', true, 'coresteer'),
            ('Disk almost full', 'disk_used_percent', 90, 85, 60, 300, 'critical', true, 'coresteer');
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE alert_delivery, alert_receiver, alert_silence, alert, alert_rule")
