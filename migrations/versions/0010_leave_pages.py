"""A policy that ends may leave memory where it has moved it."""

from alembic import op

revision = "0010_leave_pages"
down_revision = "0009_rollup_amounts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE policy ADD COLUMN leave_pages boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE policy DROP COLUMN leave_pages")
