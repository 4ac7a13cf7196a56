"""Users and sessions of an issuer (OpenID Connect)."""

from alembic import op

revision = "0037_single_sign_on"
down_revision = "0036_alerts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE app_user
        ADD COLUMN issuer text, ADD COLUMN subject text, ADD COLUMN confirmed_at timestamptz;
    ALTER TABLE session
        ADD COLUMN issuer_session text, ADD COLUMN issuer_ends_at timestamptz, ADD COLUMN renew_at timestamptz,
        ADD COLUMN issuer_tokens bytea;
    CREATE TABLE logout_token (id_hash bytea PRIMARY KEY, expires_at timestamptz NOT NULL);
    """)


def downgrade() -> None:
    # the previous version knows no end of a session with an issuer; its users have no password
    op.execute("""
    DELETE FROM session WHERE issuer_ends_at IS NOT NULL;
    UPDATE app_user SET disabled = true WHERE issuer IS NOT NULL;
    ALTER TABLE app_user DROP COLUMN issuer, DROP COLUMN subject, DROP COLUMN confirmed_at;
    ALTER TABLE session DROP COLUMN issuer_session, DROP COLUMN issuer_ends_at, DROP COLUMN renew_at,
        DROP COLUMN issuer_tokens;
    DROP TABLE logout_token;
    """)
