"""How each kind of Setting is read and written: one module a kind, all with the same functions."""

from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from coresteer_agent.apply import (
    cgroup_weight,
    channels,
    irq_affinity,
    netdev_params,
    queue_cpus,
    queue_params,
    rss_table,
    task_affinity,
    task_nice,
)
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_core.node.view import View
from coresteer_core.protocol import Outcome
from coresteer_core.settings import (
    CgroupWeight,
    Channels,
    IrqAffinity,
    NetdevParam,
    QueueParam,
    Rps,
    RssTable,
    Setting,
    TaskAffinity,
    TaskNice,
    Xps,
)

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

Error: TypeAlias = OSError | ReadOnlyModeError


class Kind(Protocol[S_contra]):
    """What such a module has. root: the directory below which the machine is, ``/`` or a captured tree."""

    def exists(self, root: Path, setting: S_contra, /) -> bool:
        """Whether the node has it. Raises OSError when that cannot be found out."""

    def read(self, root: Path, setting: S_contra, /) -> str:
        """The value in canonical form. Raises OSError, or SettingError for what makes no sense."""

    def write(self, root: Path, setting: S_contra, value: str, /) -> None:
        """Make a canonical value stand. Raises OSError or ReadOnlyModeError."""

    def attainable(self, root: Path, setting: S_contra, value: str, /) -> str:
        """The value as read() gives it where it stands: without what is gone meanwhile, such as threads."""

    def owners(self, root: Path, setting: S_contra, /) -> list[str]:
        """Whose it is, to tell whether it is another one's with the same name later; empty when not known."""

    def explain(self, error: Error, root: Path, /) -> tuple[Outcome, str]:
        """A failed write's outcome, refused or failed, and a sentence for it."""


class Tunable(Generic[S]):
    """One setting of one machine, of whatever kind; see Kind."""

    def __init__(self, root: Path, kind: Kind[S], setting: S) -> None:
        self._root = root
        self._kind = kind
        self._setting = setting

    def exists(self) -> bool:
        """Whether the node has it. Raises OSError."""
        return self._kind.exists(self._root, self._setting)

    def read(self) -> str:
        """The value now. Raises OSError or SettingError."""
        return self._kind.read(self._root, self._setting)

    def write(self, value: str) -> None:
        """Make a value stand. Raises OSError or ReadOnlyModeError."""
        self._kind.write(self._root, self._setting, value)

    def attainable(self, value: str) -> str:
        """The value as read() gives it where it stands."""
        return self._kind.attainable(self._root, self._setting, value)

    def owners(self) -> list[str]:
        """Whose it is."""
        return self._kind.owners(self._root, self._setting)

    def explain(self, error: Error) -> tuple[Outcome, str]:
        """What a failed write means."""
        return self._kind.explain(error, self._root)


AnyKnob: TypeAlias = (
    Tunable[IrqAffinity]
    | Tunable[TaskAffinity]
    | Tunable[TaskNice]
    | Tunable[CgroupWeight]
    | Tunable[Rps | Xps]
    | Tunable[RssTable]
    | Tunable[Channels]
    | Tunable[NetdevParam]
    | Tunable[QueueParam]
)


def tunable(root: Path, setting: Setting) -> AnyKnob:  # noqa: PLR0911 - one return a kind
    """The tunable of a setting."""
    match setting:
        case IrqAffinity():
            return Tunable(root, irq_affinity, setting)
        case TaskAffinity():
            return Tunable(root, task_affinity, setting)
        case TaskNice():
            return Tunable(root, task_nice, setting)
        case CgroupWeight():
            return Tunable(root, cgroup_weight, setting)
        case Rps() | Xps():
            return Tunable[Rps | Xps](root, queue_cpus, setting)
        case RssTable():
            return Tunable(root, rss_table, setting)
        case Channels():
            return Tunable(root, channels, setting)
        case NetdevParam():
            return Tunable(root, netdev_params, setting)
        case QueueParam():
            return Tunable(root, queue_params, setting)


def seen(root: Path, setting: Setting, view: View) -> View:
    """The view with what the guard has to know of a setting at this moment."""
    match setting:
        case TaskAffinity():
            return task_affinity.seen(root, setting, view)
        case TaskNice():
            return task_nice.seen(root, setting, view)
    return view
