import pytest
from msgspec.structs import replace
from tests.agent.simulate.test_generators import irq_target_cpus
from tests.support.rates import make_rates

from coresteer_agent.simulate.interval import make_interval
from coresteer_agent.simulate.load import NOISE_VARIANTS
from coresteer_agent.simulate.machine import Fault, Machine, make_machine
from coresteer_core.node.load import Load, mean_load
from coresteer_core.node.view import View
from coresteer_core.policies.suggest import suggest

_ROUNDING = 1.0


def measured(machine: Machine, placement: tuple[int, ...], level: int) -> Load:
    """The load of a simulated machine at a load level, with each of its interrupts at a CPU."""
    rates = []
    for variant in range(NOISE_VARIANTS):
        interval = make_interval(machine, placement, level, variant, 1.0)
        columns = {name: getattr(interval, name) for name in ("shares", "irq_ids", "irq_cpus", "irq_counts")}
        rates.append(replace(make_rates(), cpus=len(machine.topology.cpus), **columns))
    return mean_load(rates)


@pytest.mark.parametrize("level", [14, 18, 20, 22, 24, 26])
@pytest.mark.parametrize(("cpus", "kind"), [(64, 2), (64, 0), (32, 1), (8, 2)])
def test_a_hot_queues_suggested_moves_end_within_the_predicted_range(cpus: int, kind: int, level: int) -> None:
    machine = make_machine(cpus=cpus, irqs=40, kind=kind, seed=0, fault=Fault.HOT_QUEUE)
    before = irq_target_cpus(machine)
    (spot,) = suggest(View(machine.topology, machine.inventory, load=measured(machine, before, level))).hot
    option = spot.options[0]
    to = {move.key: int(move.target) for move in option.moves}
    after = tuple(
        to.get(f"irq/{irq.irq}/affinity", cpu) for irq, cpu in zip(machine.inventory.irqs, before, strict=True)
    )
    busy = measured(machine, after, level).busy
    assert {forecast.cpu for forecast in option.forecasts} == {spot.cpu, *to.values()}
    for forecast in option.forecasts:
        share = busy[forecast.cpu]
        assert share is not None
        least, most = forecast.before + forecast.least, forecast.before + forecast.most
        assert least - _ROUNDING <= 100 * share <= most + _ROUNDING, forecast
