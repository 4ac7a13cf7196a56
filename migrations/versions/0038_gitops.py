"""Resources that were applied from files, and the version of a policy that was rolled back last."""

from alembic import op

revision = "0038_gitops"
down_revision = "0037_single_sign_on"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE managed_resource (
        kind         text NOT NULL,
        resource_id  integer NOT NULL,
        managed_by   text NOT NULL,
        PRIMARY KEY (kind, resource_id)
    );
    ALTER TABLE policy ADD COLUMN rolled_back_version integer, ADD COLUMN rolled_back_because text;
    """)


def downgrade() -> None:
    op.execute("""
    DROP TABLE managed_resource;
    ALTER TABLE policy DROP COLUMN rolled_back_version, DROP COLUMN rolled_back_because;
    """)
