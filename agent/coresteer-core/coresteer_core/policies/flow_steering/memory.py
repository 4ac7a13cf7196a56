"""Memory of the policy ``flow-steering`` between two rounds. Times are those of views."""

from msgspec import Struct


class HeldRule(Struct, frozen=True, gc=False):
    """A flow rule that the policy wants. flow, pid, started_ticks: whose it is. moved_s: its value is since then.

    gone_s: the first view since when the flow is not among the heavy ones of the process, None while it is: neither a
    quiet round nor the time in which no agent ran ends a flow. missing_s: the first view since when the slot does not
    have the value, None while it has; moved_s where it has never had it.
    """

    flow: str
    pid: int
    started_ticks: int
    value: str
    moved_s: float
    gone_s: float | None = None
    missing_s: float | None = None


class HeldEntry(Struct, frozen=True, gc=False):
    """An RSS entry that the policy gave to another queue, at moved_s. gone_s: the first view since when it has no heavy
    flow, None while it has one, as in HeldRule.
    """

    queue: int
    moved_s: float
    gone_s: float | None = None


class HeldTable(Struct, frozen=True):
    """The RSS table of a netdev: its pattern from before the policy, and the entries that the policy moved."""

    original: str
    entries: dict[int, HeldEntry] = {}


class SettledConsumer(Struct, frozen=True, gc=False):
    """The affinity of a process that receives much, and since when it has that."""

    started_ticks: int
    affinity: str
    since_s: float


class RfsMemory(Struct, frozen=True):
    """RFS: the values that it wants, by key, with those from before; empty while it is off.

    before, after: CPU time per gigabit received, seconds, in rounds without and with it. judged: it was compared.
    quiet_since_s: the first of the latest rounds in which it is not worth its cost. until_s: it is not tried before
    this time, as it cost more; why: the sentence that says so, or how the comparison ended.
    """

    originals: dict[str, str] = {}
    values: dict[str, str] = {}
    before: list[float] = []
    after: list[float] = []
    judged: bool = False
    settling: int = 0
    quiet_since_s: float | None = None
    until_s: float = 0.0
    why: str = ""


class HeldXps(Struct, frozen=True):
    """XPS of a netdev: values from before the policy and wanted ones, by key. moved_s: these are wanted since then;
    gone_s: the first view since when no process transfers much over it, None while one does, as in HeldRule.
    """

    originals: dict[str, str]
    values: dict[str, str]
    moved_s: float
    gone_s: float | None = None


class FlowSteeringMemory(Struct, frozen=True, tag="flow-steering"):
    """Memory of the policy for the next round.

    first_seen: of heavy flows that may be steered, by flow. consumers: by PID. rules: by key of their setting. tables,
    xps: by netdev. barred: flows whose rule had no effect or is not in force, until when they get none; refused: those
    of them whose rule was never written. restoring: by key the values from before the policy of settings that it gave
    up and that do not have them yet.
    """

    first_seen: dict[str, float] = {}
    consumers: dict[int, SettledConsumer] = {}
    rules: dict[str, HeldRule] = {}
    tables: dict[str, HeldTable] = {}
    barred: dict[str, float] = {}
    refused: dict[str, float] = {}
    rfs: RfsMemory = RfsMemory()
    restoring: dict[str, str] = {}
    xps: dict[str, HeldXps] = {}
