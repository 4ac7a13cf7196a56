"""Policy ``irq-spread``: spread interrupts by load over CPUs near their devices, unlike irqbalance by queue.

The cost of an interrupt is its part, by arrivals, of the softirq time of the CPUs that it arrives on, or what its moves
have shown where that is more. A round has four reasons to move an interrupt, the most urgent first, and each move
counts in the load that the next one considers. Processes bound to the CPU of the interrupt that receives their packets
count as part of the move, so that this policy and network-process do not chase each other:

1. It arrives on an isolated or excluded CPU.
2. Its CPU is at act_percent or more without steal time. It moves to a CPU that is gap_points less loaded and would,
   with it, still be half of that gap below. Each move lowers the sum of the squared loads, so moves end. Where all
   interrupts that may move use less than half of gap_points, the CPU is busy with something else, and they stay.
3. It is busy and on another NUMA node than its device.
4. It is busy and shares a CPU (or a core, unless smt is any) with another busy queue of its netdev while another CPU
   has none. This applies below act_percent too, because bursts fill a CPU sooner than its mean shows, but only once: no
   rule brings two queues together while such a CPU exists.

Rules 3 and 4 fill a CPU only up to gap_points below act_percent, so that they never cause 2, and do not undo what 2 did
without such a CPU. An interrupt to which no rule applies is skipped, so a steady load reaches a steady state.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.policies.base import (
    ALLOW_ISOLATED_FIELD,
    Decision,
    PolicyKind,
    PolicySpec,
    Scope,
)
from coresteer_core.policies.irq_load import ActiveIrq, PendingMove, active_irqs, correct_costs, local_cpus_finder
from coresteer_core.policies.irq_spread.spread import SpreadRound
from coresteer_core.policies.skipped import SkippedGroups
from coresteer_core.schema import labelled


class IrqSpread(PolicySpec, frozen=True, tag="irq-spread"):
    """Parameters of the policy that spreads interrupts over the CPUs near their devices."""

    label = "Spread interrupts"
    summary = "Moves interrupts from busy CPUs to less busy CPUs near their device."

    act_percent: Annotated[
        float,
        Meta(ge=1, le=100),
        labelled(
            "Load threshold",
            "Interrupts are moved away from a CPU that is at least this busy, unless other work makes it so.",
            unit="%",
        ),
    ] = 65.0
    gap_points: Annotated[
        float,
        Meta(ge=1, le=100),
        labelled(
            "Minimum load difference",
            "The destination CPU is at least this much less busy than the source CPU.",
            unit="percentage points",
        ),
    ] = 20.0
    numa: Annotated[
        Literal["local", "any"],
        labelled(
            "NUMA placement",
            "CPUs to which an interrupt may move. A NUMA node without a usable CPU is replaced by the nearest.",
            group="advanced",
            options={"local": "the device's NUMA node", "any": "any NUMA node"},
        ),
    ] = "local"
    smt: Annotated[
        Literal["last", "any"],
        labelled(
            "SMT siblings",
            "When an interrupt may move to a CPU whose sibling hardware thread handles interrupts too.",
            group="advanced",
            options={"last": "only when no core is free", "any": "like any other CPU"},
        ),
    ] = "last"
    exclude: Annotated[
        str,
        Meta(pattern="^[0-9,:/ -]*$", max_length=4096),
        labelled(
            "Excluded CPUs", "No interrupt is moved to these CPUs.", format="cpu-list", placeholder="none, or 0-1,8"
        ),
    ] = ""
    allow_isolated: Annotated[bool, ALLOW_ISOLATED_FIELD] = False


class IrqSpreadMemory(Struct, frozen=True, tag="irq-spread"):
    """Memory of the policy for the next round by IRQ: proposed moves, and costs per occurrence learned from moves."""

    moving: dict[int, PendingMove] = {}
    learned: dict[int, float] = {}


def decide(view: View, spec: IrqSpread, scope: Scope, memory: IrqSpreadMemory) -> Decision:
    """Return proposals for the interrupts to move to another CPU, and why each other one is skipped."""
    try:
        excluded = parse_cpu_list(spec.exclude)
    except CpuListError as error:
        return Decision(f"Nothing is moved: the list of excluded CPUs cannot be parsed. {error}", memory)
    usable = view.usable_cpus(allow_isolated=spec.allow_isolated) - excluded
    closed = view.inventory.limits.settings.closed_cpus  # nothing moves there, but what arrives there may stay
    forbidden = view.topology.online() - usable - closed | excluded
    if not view.load.irqs:
        return Decision("Nothing is moved: no interrupt is known to be active.", memory)
    near = local_cpus_finder(view, usable, local=spec.numa == "local")
    found = active_irqs(view, scope, near)
    load = {cpu: 100 * busy for cpu, busy in enumerate(view.load.busy) if busy is not None}
    known = {irq.irq for irq in view.inventory.irqs}
    before = {number: cost for number, cost in memory.learned.items() if number in known}
    learned = correct_costs(found, load, memory.moving, before)
    found.sort(key=lambda each: (-each.cost, each.irq.irq))
    spread = SpreadRound(
        view,
        found,
        load,
        {cpu: 100 * share for cpu, share in enumerate(view.load.steal) if share},
        forbidden=forbidden,
        closed=closed,
        act_percent=spec.act_percent,
        gap_points=spec.gap_points,
        any_thread=spec.smt == "any",
    )
    for step in (spread.vacate_forbidden, spread.relieve, spread.move_to_local_node, spread.separate_queues):
        step()
    moving = {number: move for number, move in memory.moving.items() if _is_pending(found, number, move)}
    skipped = SkippedGroups(_name)
    for each in found:
        if not spread.moved(each):
            skipped.add(each.irq.name, each.irq.irq, each.blocked or spread.why_not(each))
    after = IrqSpreadMemory(moving | spread.moving, learned)
    return Decision(spread.sentence(), after, spread.proposals, skipped.skipped())


def _name(irqs: list[tuple[str, int]]) -> str:
    """Return interrupts for a sentence: ``IRQ 41 (eth0-rx-0)``, ``IRQs 41-43``."""
    if len(irqs) > 1:
        return f"IRQs {format_cpu_list(number for _, number in irqs)}"
    ((name, number),) = irqs
    return f"IRQ {number} ({name})" if name else f"IRQ {number}"


def _is_pending(found: list[ActiveIrq], number: int, move: PendingMove) -> bool:
    """Return whether an interrupt was moved but its measured load is still from before the move."""
    return any(
        each.irq.irq == number and each.irq.requested == str(move.target) and each.cpu == move.origin for each in found
    )


KIND = PolicyKind(IrqSpread, IrqSpreadMemory, decide)
