"""The policies there are. A new one is a module beside these and a line in each of the three places here."""

from typing import TypeAlias

from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Scope
from coresteer_core.policies.coalescing import policy as coalescing
from coresteer_core.policies.coalescing.policy import Coalescing, CoalescingMemory
from coresteer_core.policies.irq_spread import policy as irq_spread
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory
from coresteer_core.policies.network_process import policy as network_process
from coresteer_core.policies.network_process.policy import NetworkProcess, NetworkProcessMemory
from coresteer_core.policies.service_class import policy as service_class
from coresteer_core.policies.service_class.policy import ServiceClasses, ServiceClassesMemory

Spec: TypeAlias = IrqSpread | NetworkProcess | Coalescing | ServiceClasses
Memory: TypeAlias = IrqSpreadMemory | NetworkProcessMemory | CoalescingMemory | ServiceClassesMemory


def decide(view: View, spec: Spec, scope: Scope, memory: Memory | None) -> Decision:
    """What a policy wants on a node. memory: of its last round, None or another policy's to begin anew."""
    match spec:
        case IrqSpread():
            mine = memory if isinstance(memory, IrqSpreadMemory) else IrqSpreadMemory()
            return irq_spread.decide(view, spec, scope, mine)
        case NetworkProcess():
            own = memory if isinstance(memory, NetworkProcessMemory) else NetworkProcessMemory()
            return network_process.decide(view, spec, scope, own)
        case Coalescing():
            its = memory if isinstance(memory, CoalescingMemory) else CoalescingMemory()
            return coalescing.decide(view, spec, scope, its)
        case ServiceClasses():
            theirs = memory if isinstance(memory, ServiceClassesMemory) else ServiceClassesMemory()
            return service_class.decide(view, spec, scope, theirs)
