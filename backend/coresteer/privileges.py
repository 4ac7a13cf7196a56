"""What the backend's database role may do: work with the rows of all tables, but own none, and only add audit entries.

What it needs beyond rows (partitions, anonymization) are functions of the owner: those with SECURITY DEFINER.
"""

from collections.abc import Iterable
from typing import LiteralString

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, text

_READ_ONLY = ("audit", "audit_chain", "audit_head", "alembic_version")
_GIVEN_BY_THE_BACKEND = ("actor", "action", "target", "node_id", "result", "detail")  # the database gives id and time


def owns_tables(connection: Connection) -> bool:
    """Return whether the connection's role owns the tables, or there are none yet."""
    query = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('alembic_version')"
    return connection.execute(text(query)).scalar_one_or_none() is not False


def grant(connection: Connection, backend_url: str) -> None:
    """Let the role of backend_url work with the tables; create it if it does not exist. The owner itself needs nothing.

    connection: of the role that owns the tables.
    """
    wanted = conninfo_to_dict(backend_url)
    name = str(wanted.get("user") or "")
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if name in ("", owner):
        return
    if not connection.execute(text("SELECT FROM pg_roles WHERE rolname = :name"), {"name": name}).all():
        password = sql.SQL("PASSWORD {}").format(wanted["password"]) if "password" in wanted else sql.SQL("")
        _execute(connection, "CREATE ROLE {role} LOGIN {password}", role=sql.Identifier(name), password=password)
    # partitions are reached through their tables
    tables = connection.scalars(
        text(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
            "AND NOT relispartition AND pg_has_role(relowner, 'USAGE') ORDER BY relname"
        )
    ).all()
    readable = [table for table in tables if table in _READ_ONLY]
    functions = connection.scalars(
        text(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef "
            "AND prorettype != 'trigger'::regtype AND pg_has_role(proowner, 'USAGE') ORDER BY proname"
        )
    ).all()
    names = {
        "role": sql.Identifier(name),
        "tables": _listed(tables),
        "written": _listed(sorted(set(tables) - set(readable))),
        "readable": _listed(readable),
        "functions": _listed(functions),
        "given": _listed(_GIVEN_BY_THE_BACKEND),
    }
    for statement in (
        "GRANT USAGE ON SCHEMA public TO {role}",
        "REVOKE ALL ON TABLE {tables} FROM {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {written} TO {role}",
        "GRANT SELECT ON TABLE {readable} TO {role}",
        "GRANT INSERT ({given}) ON TABLE audit TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
        "GRANT EXECUTE ON FUNCTION {functions} TO {role}",
    ):
        _execute(connection, statement, **names)


def _listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _execute(connection: Connection, statement: LiteralString, **parts: sql.Composable) -> None:
    driver = connection.connection.driver_connection
    assert driver is not None  # noqa: S101 - an open connection has one
    driver.execute(sql.SQL(statement).format(**parts))
