"""The part of an agent that decides, on a small captured tree, with a clock and policies of the test's own."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.views import make_view

from coresteer_agent.runtime import changes, holdouts, policies
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S, PolicyRunner
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import Irq
from coresteer_core.node.view import View
from coresteer_core.policies import Memory, Spec, engine
from coresteer_core.policies.base import ROUND_PERIOD_S, Decision, Mode, Proposal, Scope, Skipped
from coresteer_core.policies.engine_state import Holding, PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.protocol import DecisionMessage, StoppedMessage

IRQS = (41, 42)
SPREAD = PolicyInForce("p1", 1, "spread", 10, Mode.ENFORCE, IrqSpread())
RAIL = Guardrail("busiest_cpu_percent", 90)


def make_root(tmp_path: Path) -> Path:
    """A captured tree with two interrupts on CPUs 0 to 7."""
    root = tmp_path / "root"
    for irq in IRQS:
        (root / f"proc/irq/{irq}").mkdir(parents=True)
        (root / f"proc/irq/{irq}/smp_affinity_list").write_text("0-7\n")
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot 1\n")
    return root


def affinity(root: Path, irq: int) -> str:
    return (root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip()


class Node:
    """An agent's part that decides, with a clock of the test's own. wants: what every irq-spread proposes, by IRQ."""

    def __init__(self, root: Path, state_dir: Path, *, observe_reason: str | None = None) -> None:
        self.root = root
        self.now = 1000.0
        self.told: list[DecisionMessage | ChangeMessage | StoppedMessage] = []
        self.wants: dict[int, str] = {}
        self.skipped: list[Skipped] = []
        self.changes = NodeChanges(root, state_dir / "journal.jsonl", observe_reason, self.view, self.told.append)
        file = PoliciesFile(state_dir / "policies.json", root)
        self.policies = PolicyRunner(
            self.changes,
            self.told.append,
            report_stops=self.told.append,
            state=file.read(),
            save=file.write,
            ended=file.settings_of_ended_processes,
            observe_only=observe_reason is not None,
        )

    def view(self) -> View:
        irqs = []
        for irq in (irq for irq in IRQS if (self.root / f"proc/irq/{irq}").exists()):
            stands = affinity(self.root, irq)
            irqs.append(Irq(irq, f"eth0-rx-{irq}", "PCI-MSI", stands, stands, None, True))
        return make_view(8, irqs=irqs, time_s=self.now)

    def decide(self, view: View, spec: Spec, scope: Scope, memory: Memory | None) -> Decision:
        if isinstance(spec, NetworkProcess):
            raise ZeroDivisionError("a mistake of ours")
        proposals = [
            Proposal(f"irq/{irq}/affinity", value, f"IRQ {irq}", "test")
            for irq, value in self.wants.items()
            if affinity(self.root, irq) != value
        ]
        return Decision(f"It is {view.time_s:.0f} o'clock.", IrqSpreadMemory(), proposals, self.skipped)

    def steps(self, seconds: float) -> list[DecisionMessage | ChangeMessage | StoppedMessage]:
        """As the loop does it: a tick each second and a step every ROUND_PERIOD_S. What is said meanwhile."""
        before = len(self.told)
        for second in range(1, int(seconds) + 1):
            self.now += 1
            self.changes.tick()
            if second % ROUND_PERIOD_S == 0:
                self.policies.step(self.view())
        return self.told[before:]

    def held(self) -> dict[str, Holding]:
        return self.policies._state.memory.holdings

    def ends(self) -> list[ChangeMessage]:
        open_ones = (ChangeState.APPLYING, ChangeState.UNCONFIRMED)
        return [told for told in self.told if isinstance(told, ChangeMessage) and told.state not in open_ones]

    def decisions(self) -> list[DecisionMessage]:
        return [told for told in self.told if isinstance(told, DecisionMessage)]


Start = Callable[..., Node]


def starter(root: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Returns what starts the node; each one takes the place of the one before, at the same moment."""
    nodes: list[Node] = []

    def now() -> float:
        return nodes[-1].now if nodes else 1000.0

    clock = SimpleNamespace(monotonic=now, time_ns=lambda: int(now() * 1e9))
    monkeypatch.setattr(changes, "time", clock)
    monkeypatch.setattr(policies, "time", clock)
    monkeypatch.setattr(holdouts, "time", clock)

    def decide(view: View, spec: Spec, scope: Scope, memory: Memory | None) -> Decision:
        return nodes[-1].decide(view, spec, scope, memory)

    monkeypatch.setattr(engine, "decide", decide)

    def start(observe_reason: str | None = None) -> Node:
        node = Node(root, state_dir, observe_reason=observe_reason)
        if nodes:
            node.now, node.wants = nodes[-1].now, nodes[-1].wants
        nodes.append(node)
        return node

    return start


def enforced(node: Node, policy: PolicyInForce = SPREAD, wants: dict[int, str] | None = None) -> Node:
    """A node that has carried out and kept what its policy wants."""
    node.wants = wants or {41: "2"}
    node.policies.set_policies([policy])
    node.steps(ROUND_PERIOD_S + CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert node.ends()[-1].state is ChangeState.CONFIRMED
    return node
