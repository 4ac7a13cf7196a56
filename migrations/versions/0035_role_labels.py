"""The role operator of users and API tokens may be limited to nodes by labels."""

from alembic import op

revision = "0035_role_labels"
down_revision = "0034_rollout_violation"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE app_user ADD COLUMN role_labels jsonb NOT NULL DEFAULT '{}';
    ALTER TABLE api_token ADD COLUMN role_labels jsonb NOT NULL DEFAULT '{}';
    DROP TRIGGER notify_of_user ON app_user;
    CREATE TRIGGER notify_of_user AFTER UPDATE OF role, role_labels, disabled ON app_user
        FOR EACH ROW EXECUTE FUNCTION notify_of_user();
    """)


def downgrade() -> None:
    # an operator of some nodes must not become one of all
    op.execute("""
    UPDATE app_user SET role = 'viewer' WHERE role_labels != '{}';
    UPDATE api_token SET role = 'viewer' WHERE role_labels != '{}';
    DROP TRIGGER notify_of_user ON app_user;
    ALTER TABLE app_user DROP COLUMN role_labels;
    ALTER TABLE api_token DROP COLUMN role_labels;
    CREATE TRIGGER notify_of_user AFTER UPDATE OF role, disabled ON app_user
        FOR EACH ROW EXECUTE FUNCTION notify_of_user();
    """)
