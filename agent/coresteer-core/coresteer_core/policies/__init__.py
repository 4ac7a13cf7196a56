"""Registry of the kinds of policy: each is a folder here whose policy.py has a ``KIND``, listed in KINDS."""

from typing import TYPE_CHECKING, TypeAlias, Union

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicySpec, Scope
from coresteer_core.policies.coalescing import policy as coalescing
from coresteer_core.policies.coscheduling import policy as coscheduling
from coresteer_core.policies.fixed_settings import policy as fixed_settings
from coresteer_core.policies.flow_steering import policy as flow_steering
from coresteer_core.policies.irq_spread import policy as irq_spread
from coresteer_core.policies.network_process import policy as network_process
from coresteer_core.policies.numa import policy as numa
from coresteer_core.policies.service_class import policy as service_class

KINDS = (
    irq_spread.KIND,
    network_process.KIND,
    flow_steering.KIND,
    numa.KIND,
    coalescing.KIND,
    service_class.KIND,
    coscheduling.KIND,
    fixed_settings.KIND,
)
"""Every kind of policy, in the order in which forms offer them."""

if TYPE_CHECKING:
    Spec: TypeAlias = PolicySpec
    Memory: TypeAlias = Struct
else:  # unions of tagged structs, by which msgspec decodes and the API describes
    Spec = Union[tuple(kind.spec for kind in KINDS)]  # noqa: UP007 - made from the registry
    Memory = Union[tuple(kind.memory for kind in KINDS)]  # noqa: UP007 - as above

_BY_SPEC = {kind.spec: kind for kind in KINDS}


def decide(view: View, spec: Spec, scope: Scope, memory: Memory | None) -> Decision:
    """Return the decision of one policy for a node. memory: of its last round; None or another kind's starts afresh."""
    kind = _BY_SPEC[type(spec)]
    return kind.decide(view, spec, scope, memory if isinstance(memory, kind.memory) else kind.memory())
