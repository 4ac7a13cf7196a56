"""Which class of work goes first: the one that has the least of what it was promised.

Kim, Song and Lee, percentile scheduling for differentiated services, without a patched kernel: at a gate for servers
that ask, and by the weights that the kernel has for those that do not.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from coresteer_core.attainment import Promise
from coresteer_core.model import View
from coresteer_core.policies.base import Decision, Scope

_Patterns = Annotated[list[str], Meta(max_length=32)]


class Match(Struct, frozen=True):
    """Which work belongs to a class: every list that is not empty must have one that fits (shell patterns, fnmatch).

    cgroups: paths. units: of systemd. users: names or numbers. commands: the first word without its folder.
    listens: TCP ports. clients: networks in CIDR notation, of the other end of a connection.
    """

    cgroups: _Patterns = []
    units: _Patterns = []
    users: _Patterns = []
    commands: _Patterns = []
    listens: Annotated[list[Annotated[int, Meta(ge=1, le=65_535)]], Meta(max_length=32)] = []
    clients: _Patterns = []


class ServiceClass(Struct, frozen=True):
    """One class. target_percent: P. deadline_ms: a request counts as served only within it; None: when it completes.

    histogram: URL of a Prometheus histogram's metrics page and, after #, its name, on this node only.
    """

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,31}$")]
    target_percent: Annotated[float, Meta(gt=0, le=100)]
    deadline_ms: Annotated[float, Meta(gt=0, le=600_000)] | None = None
    match: Match = Match()
    histogram: Annotated[str, Meta(max_length=512)] | None = None

    @property
    def promise(self) -> Promise:
        """What its attainment is measured against."""
        deadline_us = None if self.deadline_ms is None else round(self.deadline_ms * 1000)
        return Promise(self.name, self.target_percent, deadline_us)


class ServiceClasses(Struct, frozen=True, tag="service-class"):
    """What the operator wants.

    classes: in order of precedence. window_s: what is older is forgotten. slots: how many requests are inside the gate
    at once; 0 is the number of CPUs that the workers may use. weights: what is steered for work that does not ask at
    the gate, besides.
    """

    classes: Annotated[list[ServiceClass], Meta(min_length=1, max_length=16)]
    window_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    slots: Annotated[int, Meta(ge=0, le=4096)] = 0
    weights: list[Literal["nice", "cpu", "io"]] = []

    @property
    def allow_isolated(self) -> bool:
        """It moves nothing onto any CPU."""
        return False


class ServiceClassesMemory(Struct, frozen=True, tag="service-class"):
    """What a round leaves for the next."""


def decide(view: View, spec: ServiceClasses, scope: Scope, memory: ServiceClassesMemory) -> Decision:
    """First weights for work that has none yet, and how far each class gets what it was promised."""
    return Decision("No class is looked at.", memory)
