"""Two-person approval: actions on policies that wait for another operator, and above how many nodes they do."""

from alembic import op

revision = "0043_approvals"
down_revision = "0042_change_windows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE approval (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            policy_id integer NOT NULL REFERENCES policy,
            action text NOT NULL,
            request jsonb NOT NULL,
            basis jsonb NOT NULL,
            nodes jsonb NOT NULL,
            above integer NOT NULL,
            state text NOT NULL,
            reason text NOT NULL,
            requested_at timestamptz NOT NULL,
            requested_by text NOT NULL,
            expires_at timestamptz NOT NULL,
            decided_at timestamptz,
            decided_by text
        )
        """
    )
    op.execute("CREATE UNIQUE INDEX approval_waiting ON approval (policy_id) WHERE state = 'waiting'")
    op.execute("CREATE TABLE approval_threshold (id integer PRIMARY KEY CHECK (id = 1), above integer NOT NULL)")


def downgrade() -> None:
    op.execute("DROP TABLE approval, approval_threshold")
