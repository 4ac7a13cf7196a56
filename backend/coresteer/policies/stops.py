"""Stops of enforcement: which nodes they apply to, and which agents have obeyed."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.nodes.tables import NodeRow
from coresteer.policies import repository
from coresteer.policies.context import PolicyContext
from coresteer.policies.schemas import Selector
from coresteer.policies.selector import NodeAttributes, matches
from coresteer.policies.tables import StopNodeRow, StopRow
from coresteer_core.protocol import StoppedMessage


async def in_force(session: AsyncSession) -> Sequence[StopRow]:
    """Return the stops that are not lifted, oldest first."""
    return (await session.scalars(select(StopRow).where(StopRow.lifted_at.is_(None)).order_by(StopRow.id))).all()


def applying(stops: Iterable[StopRow], node: NodeAttributes) -> list[StopRow]:
    """Return those of the stops that apply to a node."""
    return [stop for stop in stops if matches(Selector.model_construct(labels=stop.labels), node)]


async def stopped_nodes(session: AsyncSession, node_ids: Sequence[int] | None = None) -> frozenset[int]:
    """Return the nodes on which enforcement is stopped now, of all nodes or of the given ones."""
    stops = await in_force(session)
    nodes = await repository.node_attributes(session, node_ids) if stops else []
    return frozenset(node.node_id for node in nodes if applying(stops, node))


async def record_stopped(context: PolicyContext, node_id: int, message: StoppedMessage) -> None:
    """Store that a node's agent obeys stops; its first answer to each counts."""
    async with context.database.session() as session:
        known = select(StopRow.id).where(StopRow.id.in_(message.stop_ids), StopRow.lifted_at.is_(None))
        exists = select(NodeRow.id).where(NodeRow.id == node_id)
        if await session.scalar(exists) is None:
            return
        at = datetime.now(UTC)
        for stop_id in (await session.scalars(known)).all():
            new = insert(StopNodeRow).values(
                stop_id=stop_id, node_id=node_id, was_connected=False, obeyed_at=at, stuck=message.stuck
            )
            first = func.coalesce(StopNodeRow.obeyed_at, new.excluded.obeyed_at)
            changes = {"obeyed_at": first, "stuck": func.greatest(StopNodeRow.stuck, new.excluded.stuck)}
            await session.execute(new.on_conflict_do_update(index_elements=["stop_id", "node_id"], set_=changes))
