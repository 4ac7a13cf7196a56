"""Response body of the simulated fleet."""

from pydantic import BaseModel


class SimulatedNodes(BaseModel):
    """The simulated fleet. nodes: number of simulated nodes, those of other simulations included.

    offered: how many nodes a start simulates. running: this backend simulates them now. unavailable_because: why this
    backend cannot start them, None if it can. failure: why the simulation ended by itself, None if it did not.
    """

    nodes: int
    offered: int
    running: bool
    unavailable_because: str | None
    failure: str | None
