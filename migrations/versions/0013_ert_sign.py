"""Stored studies name the sign of the elapsed time in ERT instead of giving it as a number."""

from alembic import op

revision = "0013_ert_sign"
down_revision = "0012_proof"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    UPDATE simulation SET spec = jsonb_set(
        spec, '{parameters,ert_sign}',
        CASE WHEN (spec #>> '{parameters,ert_sign}')::float < 0 THEN '"minus"' ELSE '"printed"' END::jsonb
    ) WHERE jsonb_typeof(spec #> '{parameters,ert_sign}') = 'number'
    """)


def downgrade() -> None:
    op.execute("""
    UPDATE simulation SET spec = jsonb_set(
        spec, '{parameters,ert_sign}',
        CASE WHEN spec #>> '{parameters,ert_sign}' = 'minus' THEN '-1' ELSE '1' END::jsonb
    ) WHERE jsonb_typeof(spec #> '{parameters,ert_sign}') = 'string'
    """)
