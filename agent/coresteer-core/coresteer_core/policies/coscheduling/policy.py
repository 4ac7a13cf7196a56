"""Policy ``coscheduling``: run processes that exchange messages at the same time, without changing them.

Source: Yu, Azougagh, Kim and Maeng (PROC), whose periodic boost with reordering (PB+RO) it is. A round enrols the
processes of the job: each gets a nice value one below its own, so that its original is in the journal. From then on the
agent gives it its own value back and boosts the first of the order (boost.py) for one period at a time.
"""

from msgspec import Struct

from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, Proposal, Scope, Skipped
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.scope import in_scope
from coresteer_core.policies.skipped import SkippedGroups, name_tasks
from coresteer_core.settings import TaskNice


class CoschedulingMemory(Struct, frozen=True, tag="coscheduling"):
    """Memory of the policy for the next round: none, as the engine remembers the settings that it has set."""


class Members(Struct, frozen=True):
    """The processes of a view that the policy may boost, and those of the job that it may not, with the reasons."""

    tasks: list[NetTask]
    skipped: list[Skipped]


def find_members(view: View, spec: Coscheduling, scope: Scope) -> Members:
    """Return the processes of a node that match, without real-time tasks and kernel threads."""
    tasks: list[NetTask] = []
    skipped = SkippedGroups(name_tasks)
    for task in view.tasks:
        if not (in_scope(scope, task.name, task.cgroup) and spec.match.matches_task(task)):
            continue
        if (why := _why_not(task, spec)) is None:
            tasks.append(task)
        else:
            skipped.add(task.name, task.pid, why)
    return Members(tasks, skipped.skipped())


def _why_not(task: NetTask, spec: Coscheduling) -> str | None:
    if task.kernel:
        return "A kernel thread is never boosted."
    if task.agent:
        return "The agent does not boost itself."
    if task.realtime:
        return "A real-time task runs before all boosted processes."
    if "nice" not in task.params:
        return "Its nice value is unknown."
    if int(task.params["nice"]) < spec.nice_boost:
        return f"Its own nice value is below that of a boost, {spec.nice_boost}."
    return None


def decide(view: View, spec: Coscheduling, scope: Scope, memory: CoschedulingMemory) -> Decision:
    """Return proposals that enrol the processes of the job; the agent then boosts them, one period at a time."""
    members = find_members(view, spec, scope)
    proposals = []
    for task in members.tasks:
        nice = int(task.params["nice"])
        if nice > spec.nice_boost:
            why = f"Enrolled; from nice {nice} it is then boosted to {spec.nice_boost}, {spec.period_ms} ms at a time."
            proposals.append(Proposal(TaskNice(task.pid).key, str(nice - 1), f"{task.name} ({task.pid})", why))
    count = len(members.tasks)
    sentence = f"{count} process{'' if count == 1 else 'es'} of the job can be boosted."
    if not members.tasks and not members.skipped:
        sentence = "No process matches."
    wanted = frozenset(TaskNice(task.pid).key for task in members.tasks)
    return Decision(sentence, memory, proposals, members.skipped, wanted=wanted)


KIND = PolicyKind(Coscheduling, CoschedulingMemory, decide)
