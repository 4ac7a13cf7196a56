"""Which class of work goes first: the one that has the least of what it was promised.

Kim, Song and Lee, percentile scheduling for differentiated services, without a patched kernel: at a gate for servers
that ask, and by the weights that the kernel has for those that do not.
"""

from collections.abc import Mapping, Sequence, Set
from fnmatch import fnmatchcase
from math import exp, log
from typing import Annotated, Literal

from msgspec import Meta, Struct

from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, PolicySpec, Proposal, Scope, Skipped
from coresteer_core.policies.service_class.attainment import Promise
from coresteer_core.policies.service_class.matching import Address, Match
from coresteer_core.policies.service_class.weights import STEP, USUAL, value_of
from coresteer_core.schema import labelled
from coresteer_core.settings import CgroupWeight, TaskNice, parse_setting

LEAST_WEIGHT, MOST_WEIGHT = USUAL / 16, USUAL * 16
"""Steering stays within, so that no class is left with nothing."""
_PACE = 2.0
"""How fast weights follow: F answers half a window late, and a loop that is faster by half swings."""
_MOST_STEP = log(STEP)
_FAR = 3.0
"""A class further behind counts as this far, as one without a success is: e to the power of it."""
_NEAR = 0.05
"""F that differ by less are equal."""
_NAMED = 8
_OCTET = r"(\.(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9]))"
"""What is no octet would be a name, which may lead elsewhere."""
_HISTOGRAM = rf"^http://(localhost|127{_OCTET}{{3}}|\[::1\])(:[0-9]{{1,5}})?/[^#\s]*#[a-zA-Z_:][a-zA-Z0-9_:]*$"


_EXAMPLE = [
    {"name": "gold", "target_percent": 90},
    {"name": "silver", "target_percent": 70},
    {"name": "bronze", "target_percent": 50},
]


class ServiceClass(Struct, frozen=True):
    """A class of work and its target: the percentage of its requests that are to be served in time."""

    name: Annotated[
        str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,31}$"), labelled("Class", "Lower-case letters, digits, - and _.")
    ]
    target_percent: Annotated[
        float, Meta(gt=0, le=100), labelled("Target", "Percentage of requests to serve in time.", unit="%")
    ]
    deadline_ms: Annotated[
        Annotated[float, Meta(gt=0, le=600_000)] | None,
        labelled("Deadline", "Requests that take longer do not count as served.", unit="ms", placeholder="none"),
    ] = None
    match: Annotated[Match, labelled("Work", "Which processes and connections belong to the class.")] = Match()
    histogram: Annotated[
        Annotated[str, Meta(max_length=512, pattern=_HISTOGRAM)] | None,
        labelled(
            "Response-time histogram",
            "Where work does not use the gate: a Prometheus page on the node, # and the histogram's name. "
            "Needs a deadline, as it counts completed requests only.",
            placeholder="http://127.0.0.1:9100/metrics#http_request_duration_seconds",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for a histogram without a deadline."""
        if self.histogram is not None and self.deadline_ms is None:
            raise ValueError(f"Give class {self.name} a deadline: its histogram tells of completed requests only.")

    @property
    def promise(self) -> Promise:
        """What its attainment is measured against."""
        deadline_us = None if self.deadline_ms is None else round(self.deadline_ms * 1000)
        return Promise(self.name, self.target_percent, deadline_us)


class ServiceClasses(PolicySpec, frozen=True, tag="service-class"):
    """Fields of the policy that serves classes of work by how far each is from its target."""

    label = "Service classes"
    summary = "Gives gate admission, CPU time and I/O first to the class that is furthest from its target."

    classes: Annotated[
        list[ServiceClass],
        Meta(min_length=1, max_length=16, examples=[_EXAMPLE]),
        labelled(
            "Classes",
            "In order of precedence. The class with the lowest S ÷ (N × P) is served first: S of its N requests were "
            "served in time, P is its target.",
            format="service-classes",
        ),
    ]
    window_s: Annotated[
        float, Meta(ge=0.1, le=3600), labelled("Time window", "Only requests within it count.", unit="s")
    ] = 10.0
    slots: Annotated[
        int,
        Meta(ge=0, le=4096),
        labelled(
            "Concurrency limit",
            "Requests inside the gate at once; 0 is the number of CPUs that the workers may use.",
            unit="requests",
        ),
    ] = 0
    weights: Annotated[
        list[Literal["nice", "cpu", "io"]],
        labelled(
            "Adjusted weights",
            "For work that does not use the gate.",
            options={"nice": "nice value of processes", "cpu": "CPU weight of cgroups", "io": "I/O weight of cgroups"},
        ),
    ] = []

    def __post_init__(self) -> None:
        """Raises ValueError for two classes of one name."""
        names = [graded.name for graded in self.classes]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"Two classes are named {twice}; give each a name of its own.")


class ServiceClassesMemory(Struct, frozen=True, tag="service-class"):
    """What a round leaves for the next: nothing, the engine knows what is held."""


class Enrolment(Struct, frozen=True):
    """What is weighed for which class. settings: by key the name of the class. tasks: that match, by class.

    unmatched: processes of no class. skipped: what is left alone, and why.
    """

    settings: dict[str, str]
    tasks: dict[str, list[NetTask]]
    unmatched: list[NetTask]
    skipped: list[Skipped]


def class_of_task(classes: Sequence[ServiceClass], task: NetTask) -> ServiceClass | None:
    """The first that a process fits."""
    return next((graded for graded in classes if graded.match.fits_task(task)), None)


def class_of_connection(
    classes: Sequence[ServiceClass], client: Address, port: int, task: NetTask | None
) -> ServiceClass | None:
    """The first that a connection fits, from a client to a local port, served by a process (None: not known)."""
    return next((graded for graded in classes if graded.match.fits_connection(client, port, task)), None)


def first_weights(classes: Sequence[ServiceClass]) -> dict[str, float]:
    """Before anything was measured: a step for each place in the order of targets, then of the spec; none is USUAL."""
    ordered = sorted(classes, key=lambda graded: -graded.target_percent)
    above = (len(ordered) + 1) // 2
    places = [above - rank if rank < above else above - rank - 1 for rank in range(len(ordered))]
    return {graded.name: USUAL * STEP**place for graded, place in zip(ordered, places, strict=True)}


def steer(
    figures: Sequence[ClassFigures], values: Mapping[str, float], spec: ServiceClasses, elapsed_s: float = 0.1
) -> dict[str, float]:
    """The weights of the classes after one step towards equal F; the lower a class's F, the more it gets.

    values: the weights that stand, by class (as in weights.py). elapsed_s: since the last step. A class that had no
    request, or of which nothing is measured, keeps its weight; so do all where the others' F are equal. What one class
    gains the others lose, as only ratios count; within a bounded step and LEAST_WEIGHT to MOST_WEIGHT.
    """
    counted = [each for each in figures if each.source is not None and each.requests and each.name in values]
    best = max((each.f for each in counted), default=0.0)
    if best <= 0:
        return dict(values)
    behind = {each.name: min(_FAR, log(best / each.f)) if each.f > 0 else _FAR for each in counted}
    if max(behind.values()) < _NEAR:
        return dict(values)
    middle = sum(behind.values()) / len(behind)
    pace = _PACE * elapsed_s / spec.window_s
    steered = dict(values)
    for name, far in behind.items():
        step = min(_MOST_STEP, max(-_MOST_STEP, pace * (far - middle)))
        steered[name] = min(MOST_WEIGHT, max(LEAST_WEIGHT, values[name] * exp(step)))
    return steered


def enrol(view: View, spec: ServiceClasses, scope: Scope) -> Enrolment:
    """Which settings weigh which class: a cgroup's where all of its processes are of one class, else nice values."""
    return _Enrolling(view, spec, scope).enrol()


def decide(view: View, spec: ServiceClasses, scope: Scope, memory: ServiceClassesMemory) -> Decision:
    """First weights for work that has none yet, and how far each class gets what it was promised.

    From then on the agent frozenset=steered=frozenset what the policy holds; see steer().
    """
    enrolled = enrol(view, spec, scope)
    weights = first_weights(spec.classes)
    targets = {graded.name: graded.target_percent for graded in spec.classes}
    proposals = []
    for key, name in enrolled.settings.items():
        setting = parse_setting(key)
        if not isinstance(setting, TaskNice | CgroupWeight):
            raise AssertionError(f"{key} is no weight.")
        value = value_of(setting, weights[name])
        stands = setting.current(view)
        if stands is not None and setting.equal(setting.shown(stands), value):
            value = value_of(setting, weights[name] * STEP)  # another one than now, so that it is ours to steer
        reason = f"{setting.describe(view)} is of class {name}, which has the target {targets[name]:g} %."
        proposals.append(Proposal(key, value, setting.describe(view), reason))
    proposals.sort(key=lambda proposal: -targets[enrolled.settings[proposal.key]])
    sentence = f"{_attainment(view, spec)} {len(proposals)} weight{'' if len(proposals) == 1 else 's'} to steer."
    return Decision(sentence, memory, proposals, enrolled.skipped, steered=frozenset(enrolled.settings))


def _attainment(view: View, spec: ServiceClasses) -> str:
    names = [graded.name for graded in spec.classes]
    figures = next((told for told in view.classes.values() if [each.name for each in told] == names), [])
    parts = [
        f"{each.name} F {each.f:.2f} ({each.satisfied:,} of {each.requests:,} in {spec.window_s:g} s, "
        f"target {each.target_percent:g} %)"
        for each in figures
        if each.requests
    ]
    return f"{', '.join(parts)}." if parts else "No requests of its classes are known."


class _Enrolling:
    def __init__(self, view: View, spec: ServiceClasses, scope: Scope) -> None:
        self.view, self.spec, self.scope = view, spec, scope
        self.settings: dict[str, str] = {}
        self.left: dict[str, list[str]] = {}

    def enrol(self) -> Enrolment:
        """The whole."""
        tasks: dict[str, list[NetTask]] = {graded.name: [] for graded in self.spec.classes}
        unmatched: list[NetTask] = []
        for task in self.view.tasks:
            graded = class_of_task(self.spec.classes, task) if self._in_scope(task) else None
            (unmatched if graded is None else tasks[graded.name]).append(task)
        weighed = [
            (task, name) for name, its in tasks.items() for task in its if self.spec.weights and self._weighable(task)
        ]
        for which in ("cpu", "io"):
            if which in self.spec.weights:
                self._weigh_groups(which, weighed, {_group(self.view, task, which) for task in unmatched})
        for task, name in weighed if "nice" in self.spec.weights else []:
            if _group(self.view, task, "cpu") not in self.settings and "nice" in task.params:
                self.settings[TaskNice(task.pid).key] = name
        skipped = [Skipped(_list(subjects), why) for why, subjects in self.left.items()]
        if unmatched:
            many = f"{len(unmatched)} process{'' if len(unmatched) == 1 else 'es'}"
            skipped.append(Skipped(many, "Of no class, or not in the policy's scope."))
        return Enrolment(self.settings, tasks, unmatched, skipped)

    def _weighable(self, task: NetTask) -> bool:
        if task.realtime:
            self._leave(f"{task.name} ({task.pid})", "A real-time task, which runs before all classes by itself.")
        return not (task.realtime or task.kernel)

    def _weigh_groups(
        self, which: Literal["cpu", "io"], weighed: Sequence[tuple[NetTask, str]], others: Set[str | None]
    ) -> None:
        shared: dict[str, list[str]] = {}
        for task, name in weighed:
            if (key := _group(self.view, task, which)) is not None:
                names = shared.setdefault(key, [])
                if name not in names:
                    names.append(name)
            elif which == "io" or "nice" not in self.spec.weights:
                why = f"Its cgroup has no {which} weight of its own."
                self._leave(f"{task.name} ({task.pid})", why)
        for key, names in shared.items():
            if key in others:
                why = "Processes of no class, or not in the policy's scope, share this cgroup."
                self._leave(parse_setting(key).describe(), why)
            elif len(names) == 1:
                self.settings[key] = names[0]
            else:
                why = f"Processes of the classes {_list(names)} share this cgroup; each class needs one of its own."
                self._leave(parse_setting(key).describe(), why)

    def _in_scope(self, task: NetTask) -> bool:
        tasks, cgroups = self.scope.tasks, self.scope.cgroups
        return (not tasks or any(fnmatchcase(task.name, pattern) for pattern in tasks)) and (
            not cgroups or any(fnmatchcase(task.cgroup or "", pattern) for pattern in cgroups)
        )

    def _leave(self, subject: str, why: str) -> None:
        self.left.setdefault(why, []).append(subject)


def _group(view: View, task: NetTask, which: Literal["cpu", "io"]) -> str | None:
    """The key of the weight of the cgroup that a process is in; None where it has none."""
    of_version_1 = (task.cpu_cgroup, "cpu.shares") if which == "cpu" else (None, "")
    for path, name in (of_version_1, (task.cgroup, f"{which}.weight")):
        if path is not None and name in view.cgroups.get(path.lstrip("/"), {}):
            return CgroupWeight(path.lstrip("/"), name).key
    return None


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


KIND = PolicyKind(ServiceClasses, ServiceClassesMemory, decide)
