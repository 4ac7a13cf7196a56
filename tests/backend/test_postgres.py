from sqlalchemy import text

from coresteer.db import Database


async def test_the_test_database_answers(database: Database) -> None:
    async with database.session() as session:
        assert (await session.execute(text("SELECT count(*) FROM app_user"))).scalar_one() == 0
