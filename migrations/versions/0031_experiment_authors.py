"""Changes of experiments are by the experiment, as those of policies are by the policy."""

from alembic import op

revision = "0031_experiment_authors"
down_revision = "0030_restores"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE change SET created_by = 'experiment ' || experiment_id WHERE experiment_id IS NOT NULL")


def downgrade() -> None:
    op.execute("""
    UPDATE change SET created_by = experiment.created_by FROM experiment WHERE experiment.id = change.experiment_id
    """)
