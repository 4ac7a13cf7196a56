"""State of a node's policies that survives a restart of the agent: policies, held settings and changes."""

from msgspec import Struct

from coresteer_core.changes.plan import Action
from coresteer_core.policies.engine_state import EnforcementStop, EngineMemory, Holding, PolicyInForce


class PolicyChange(Struct, frozen=True):
    """A change made for a policy, and what it wrote.

    actions: those that wrote, with the values that they found. restored: keys that got their original values.
    again: it wrote the values from before a holdout. taken_over: by key, other policies' holdings that it replaced.
    """

    policy_id: str
    actions: list[Action]
    restored: list[str] = []
    confirmed: bool = False
    again: bool = False
    taken_over: dict[str, Holding] = {}


class Refusal(Struct, frozen=True):
    """A setting that policies must not write until until_s (monotonic). times: consecutive refusals.

    restoring: it could not be restored either.
    """

    sentence: str
    until_s: float
    times: int
    restoring: bool = False


class PolicyState(Struct, frozen=True):
    """Policies of a node and what they set. A reboot restores all, so only policies, stops and hold_from_ms outlive it.

    former: policies that set something and are no longer enforced, until that is restored. changes: by change id.
    refusals: by setting key. leave_pages, stops, hold_from_ms: as in Policies. restored: ids of stops that restored
    everything.
    """

    policies: list[PolicyInForce] = []
    former: dict[str, PolicyInForce] = {}
    memory: EngineMemory = EngineMemory()
    changes: dict[str, PolicyChange] = {}
    refusals: dict[str, Refusal] = {}
    leave_pages: list[str] = []
    stops: list[EnforcementStop] = []
    restored: list[int] = []
    hold_from_ms: int | None = None
