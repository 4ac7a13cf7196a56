"""The simulated fleet over HTTP."""

from fastapi import APIRouter, Request, status

from coresteer.auth.dependencies import Admin, Viewer
from coresteer.db import Session
from coresteer.simulated_nodes.schemas import SimulatedNodes
from coresteer.simulated_nodes.service import SimulatedFleet

router = APIRouter(prefix="/simulated-nodes")


def _fleet(request: Request) -> SimulatedFleet:
    fleet: SimulatedFleet = request.app.state.simulated_fleet
    return fleet


@router.get("")
async def get_simulated_nodes(request: Request, session: Session, _: Viewer) -> SimulatedNodes:
    """Return how many simulated nodes there are, and whether this backend simulates them."""
    return await _fleet(request).state(session)


@router.post("", status_code=status.HTTP_201_CREATED)
async def start_simulated_nodes(request: Request, identity: Admin) -> SimulatedNodes:
    """Simulate a fleet until `coresteer up` ends; only its backend can. They are the same nodes each time."""
    return await _fleet(request).start(identity.username)


@router.delete("", status_code=status.HTTP_204_NO_CONTENT)
async def remove_simulated_nodes(request: Request, identity: Admin) -> None:
    """End the simulation; delete every simulated node, also of other simulations, with its history."""
    await _fleet(request).remove(identity.username)
