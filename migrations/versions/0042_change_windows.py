"""Change windows: the times at which policies may write on the nodes of labels."""

from alembic import op

revision = "0042_change_windows"
down_revision = "0041_policy_pace"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE change_window (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL UNIQUE,
            labels jsonb NOT NULL,
            zone text NOT NULL,
            weekdays jsonb NOT NULL,
            start_min integer NOT NULL,
            end_min integer NOT NULL,
            created_at timestamptz NOT NULL,
            created_by text NOT NULL
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE change_window")
