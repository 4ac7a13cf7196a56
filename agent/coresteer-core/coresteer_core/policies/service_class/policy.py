"""Policy ``service-class``: give precedence to the service class that is furthest from its target.

Source: Kim, Song and Lee, percentile scheduling for differentiated services; here without a patched kernel: by a gate
for servers that use it, and by the kernel's CPU and I/O weights for all others.
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
from coresteer_core.policies.service_class.attainment import ClassTarget
from coresteer_core.policies.service_class.matching import Address, Match
from coresteer_core.policies.service_class.weights import DEFAULT_WEIGHT, NICE_STEP_RATIO, nearest_value
from coresteer_core.schema import labelled
from coresteer_core.settings import CgroupWeight, TaskNice, parse_setting

MIN_WEIGHT, MAX_WEIGHT = DEFAULT_WEIGHT / 16, DEFAULT_WEIGHT * 16
"""Bounds of the weights that the policy sets, so that every class gets some CPU time."""
_PACE = 2.0
"""Gain of the control loop of weights: F lags by half a window, and a 1.5 times higher gain oscillates."""
_MOST_STEP = log(NICE_STEP_RATIO)
_FAR = 3.0
"""Limit of log(best F / F) for one class, also used for a class without a satisfied request."""
_NEAR = 0.05
"""Difference of log F below which attainments count as equal."""
_NAMED = 8
_OCTET = r"(\.(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9]))"
"""Octet of an IPv4 address; anything else would be a host name, which may resolve to another machine."""
_HISTOGRAM = rf"^http://(localhost|127{_OCTET}{{3}}|\[::1\])(:[0-9]{{1,5}})?/[^#\s]*#[a-zA-Z_:][a-zA-Z0-9_:]*$"


_EXAMPLE = [
    {"name": "gold", "target_percent": 90},
    {"name": "silver", "target_percent": 70},
    {"name": "bronze", "target_percent": 50},
]


class ServiceClass(Struct, frozen=True):
    """A service class: the processes and connections in it, and the percentage of requests to serve in time."""

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
            "For work that does not use the gate: a URL of Prometheus metrics, # and the histogram's name. "
            "Needs a deadline, as it counts completed requests only.",
            placeholder="http://127.0.0.1:9100/metrics#http_request_duration_seconds",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for a histogram without a deadline."""
        if self.histogram is not None and self.deadline_ms is None:
            raise ValueError(f"Give class {self.name} a deadline: its histogram counts completed requests only.")

    @property
    def target(self) -> ClassTarget:
        """Return the class's target, to measure attainment against."""
        deadline_us = None if self.deadline_ms is None else round(self.deadline_ms * 1000)
        return ClassTarget(self.name, self.target_percent, deadline_us)


class ServiceClasses(PolicySpec, frozen=True, tag="service-class"):
    """Parameters of the policy that gives precedence to the service class that is furthest from its target."""

    label = "Service classes"
    summary = (
        "Serves the class that is furthest below its target first: it sets CPU and I/O weights, and the order in which "
        "cooperating servers start requests (the gate)."
    )

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
        float,
        Meta(ge=0.1, le=3600),
        labelled("Time window", "Period over which requests are counted.", unit="s", group="advanced"),
    ] = 10.0
    slots: Annotated[
        int,
        Meta(ge=0, le=4096),
        labelled(
            "Concurrency limit",
            "Requests active at the gate at the same time; 0 is the number of CPUs that the workers may use.",
            unit="requests",
            group="advanced",
        ),
    ] = 0
    weights: Annotated[
        list[Literal["nice", "cpu", "io"]],
        labelled(
            "Adjusted weights",
            "Kernel weights that the policy adjusts, for work that does not use the gate.",
            group="advanced",
            options={"nice": "nice value of processes", "cpu": "CPU weight of cgroups", "io": "I/O weight of cgroups"},
        ),
    ] = []

    def __post_init__(self) -> None:
        """Raises ValueError for two classes of one name."""
        names = [service_class.name for service_class in self.classes]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"Two classes are named {twice}; give each a name of its own.")

    @property
    def steers(self) -> bool:
        """Return True: the agent adjusts the weights to the attainment of each class."""
        return True


class ServiceClassesMemory(Struct, frozen=True, tag="service-class"):
    """Memory of the policy for the next round: none, as the engine remembers the settings that it has set."""


class ClassAssignment(Struct, frozen=True):
    """Processes of each service class (tasks), and the class of each weight setting by key (settings).

    unmatched: processes of no class. skipped: what has no setting, and why.
    """

    settings: dict[str, str]
    tasks: dict[str, list[NetTask]]
    unmatched: list[NetTask]
    skipped: list[Skipped]


def class_of_task(classes: Sequence[ServiceClass], task: NetTask) -> ServiceClass | None:
    """Return the first service class to which a process belongs; None without one."""
    return next((service_class for service_class in classes if service_class.match.matches_task(task)), None)


def class_of_connection(
    classes: Sequence[ServiceClass], client: Address, port: int, task: NetTask | None
) -> ServiceClass | None:
    """Return the first service class of a connection from a client to a local port. task: its server, if known."""
    return next(
        (service_class for service_class in classes if service_class.match.matches_connection(client, port, task)), None
    )


def initial_weights(classes: Sequence[ServiceClass]) -> dict[str, float]:
    """Return each class's weight before any measurement: by target, one nice level apart; none is DEFAULT_WEIGHT."""
    ordered = sorted(classes, key=lambda service_class: -service_class.target_percent)
    above = (len(ordered) + 1) // 2
    places = [above - rank if rank < above else above - rank - 1 for rank in range(len(ordered))]
    return {
        service_class.name: DEFAULT_WEIGHT * NICE_STEP_RATIO**place
        for service_class, place in zip(ordered, places, strict=True)
    }


def steer_weights(
    figures: Sequence[ClassFigures], values: Mapping[str, float], spec: ServiceClasses, elapsed_s: float = 0.1
) -> dict[str, float]:
    """Return each class's weight after one step of the control loop towards equal attainment F.

    values: the current weights by class (scale of weights.py). elapsed_s: since the last step. A class without requests
    or measurements keeps its weight; all do if their F are equal. What one class gains the others lose, because only
    ratios count. A step is bounded, and so are weights (MIN_WEIGHT to MAX_WEIGHT).
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
        steered[name] = min(MAX_WEIGHT, max(MIN_WEIGHT, values[name] * exp(step)))
    return steered


def assign_classes(view: View, spec: ServiceClasses, scope: Scope) -> ClassAssignment:
    """Return the weight settings of each service class: of cgroups whose processes are all in it, else nice values."""
    return _Assignment(view, spec, scope).assign()


def decide(view: View, spec: ServiceClasses, scope: Scope, memory: ServiceClassesMemory) -> Decision:
    """Return proposals of initial weights for processes and cgroups of each service class.

    The agent then steers the settings that the policy holds; see steer_weights().
    """
    assigned = assign_classes(view, spec, scope)
    weights = initial_weights(spec.classes)
    targets = {service_class.name: service_class.target_percent for service_class in spec.classes}
    proposals = []
    for key, name in assigned.settings.items():
        setting = parse_setting(key)
        if not isinstance(setting, TaskNice | CgroupWeight):
            raise AssertionError(f"{key} is no weight.")
        value = nearest_value(setting, weights[name])
        current = setting.current(view)
        if current is not None and setting.equal(setting.value_in_view(current), value):
            value = nearest_value(
                setting, weights[name] * NICE_STEP_RATIO
            )  # differs from the current one, so that it becomes held
        reason = f"{setting.describe(view)} belongs to class {name} with the target {targets[name]:g} %."
        proposals.append(Proposal(key, value, setting.describe(view), reason))
    proposals.sort(key=lambda proposal: -targets[assigned.settings[proposal.key]])
    sentence = f"{_attainment(view, spec)} {len(proposals)} weight{'' if len(proposals) == 1 else 's'} to adjust."
    return Decision(sentence, memory, proposals, assigned.skipped, wanted=frozenset(assigned.settings))


def _attainment(view: View, spec: ServiceClasses) -> str:
    names = [service_class.name for service_class in spec.classes]
    figures = next((found for found in view.classes.values() if [each.name for each in found] == names), [])
    parts = [
        f"{each.name} F {each.f:.2f} ({each.satisfied:,} of {each.requests:,} requests in {spec.window_s:g} s, "
        f"target {each.target_percent:g} %)"
        for each in figures
        if each.requests
    ]
    return f"{', '.join(parts)}." if parts else "No requests of these classes are known."


class _Assignment:
    """Assigns the weight settings and processes of one view of a node to service classes."""

    def __init__(self, view: View, spec: ServiceClasses, scope: Scope) -> None:
        self.view, self.spec, self.scope = view, spec, scope
        self.settings: dict[str, str] = {}
        self._skipped: dict[str, list[str]] = {}

    def assign(self) -> ClassAssignment:
        """Return the processes and weight settings of each service class."""
        tasks: dict[str, list[NetTask]] = {service_class.name: [] for service_class in self.spec.classes}
        unmatched: list[NetTask] = []
        for task in self.view.tasks:
            service_class = class_of_task(self.spec.classes, task) if self._in_scope(task) else None
            (unmatched if service_class is None else tasks[service_class.name]).append(task)
        weighed = [
            (task, name)
            for name, members in tasks.items()
            for task in members
            if self.spec.weights and self._weighable(task)
        ]
        for which in ("cpu", "io"):
            if which in self.spec.weights:
                self._weigh_groups(which, weighed, {_group(self.view, task, which) for task in unmatched})
        for task, name in weighed if "nice" in self.spec.weights else []:
            if _group(self.view, task, "cpu") not in self.settings and "nice" in task.params:
                self.settings[TaskNice(task.pid).key] = name
        skipped = [Skipped(_list(subjects), why) for why, subjects in self._skipped.items()]
        if len(unmatched) == 1:
            skipped.append(Skipped("1 process", "It matches no class, or is not in the policy's scope."))
        elif unmatched:
            why = "They match no class, or are not in the policy's scope."
            skipped.append(Skipped(f"{len(unmatched)} processes", why))
        return ClassAssignment(self.settings, tasks, unmatched, skipped)

    def _weighable(self, task: NetTask) -> bool:
        if task.realtime:
            self._skip(f"{task.name} ({task.pid})", "A real-time task runs before all classes.")
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
                self._skip(f"{task.name} ({task.pid})", why)
        for key, names in shared.items():
            if key in others:
                why = "Processes of no class, or not in the policy's scope, share this cgroup."
                self._skip(parse_setting(key).describe(), why)
            elif len(names) == 1:
                self.settings[key] = names[0]
            else:
                why = f"Processes of the classes {_list(names)} share this cgroup; each class needs one of its own."
                self._skip(parse_setting(key).describe(), why)

    def _in_scope(self, task: NetTask) -> bool:
        tasks, cgroups = self.scope.tasks, self.scope.cgroups
        return (not tasks or any(fnmatchcase(task.name, pattern) for pattern in tasks)) and (
            not cgroups or any(fnmatchcase(task.cgroup or "", pattern) for pattern in cgroups)
        )

    def _skip(self, subject: str, why: str) -> None:
        self._skipped.setdefault(why, []).append(subject)


def _group(view: View, task: NetTask, which: Literal["cpu", "io"]) -> str | None:
    """Return the key of the CPU or I/O weight of a process's cgroup; None where it has none."""
    of_version_1 = (task.cpu_cgroup, "cpu.shares") if which == "cpu" else (None, "")
    for path, name in (of_version_1, (task.cgroup, f"{which}.weight")):
        if path is not None and name in view.cgroups.get(path.lstrip("/"), {}):
            return CgroupWeight(path.lstrip("/"), name).key
    return None


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


KIND = PolicyKind(ServiceClasses, ServiceClassesMemory, decide)
