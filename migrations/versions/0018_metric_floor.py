"""The smallest value of an application metric that counts, which stands for 0 where a logarithm is taken.

Metrics that exist already have none, since their units are not known here: their 0 does not count, as before.
"""

from alembic import op

revision = "0018_metric_floor"
down_revision = "0017_rejected_samples"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE application_metric ADD COLUMN floor double precision CHECK (floor > 0)")


def downgrade() -> None:
    op.execute("ALTER TABLE application_metric DROP COLUMN floor")
