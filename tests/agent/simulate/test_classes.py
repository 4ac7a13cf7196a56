"""Service classes of simulated nodes."""

from msgspec.structs import replace

from coresteer_agent.simulate.classes import SimulatedClasses
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses

SPEC = ServiceClasses([ServiceClass("gold", 90), ServiceClass("bronze", 40, deadline_ms=5)], window_s=5)


def over_time(spec: ServiceClasses, seconds: int, *, cpus: int = 8) -> list[list[ClassFigures]]:
    classes = SimulatedClasses(spec, 1, cpus=cpus)
    return [classes.figures(1000.0 + second) for second in range(seconds)]


def test_classes_queue_at_the_gate_and_differ_in_attainment() -> None:
    seconds = over_time(SPEC, 240)
    gold, bronze = zip(*seconds[5:], strict=True)
    assert all(one.source == "gate" and one.requests > 20 for one in (*gold, *bronze))
    assert max(one.waiting for one in bronze) > 0, "at its peak they wait"
    assert sum(one.satisfied for one in gold) > 5 * sum(one.satisfied for one in bronze), "few are done in 5 ms"
    assert all(one.active + two.active <= 4 for one, two in zip(gold, bronze, strict=True))


def test_a_pause_of_the_simulation_does_not_count_as_waiting() -> None:
    classes = SimulatedClasses(replace(SPEC, slots=1), 1, cpus=8)
    for second in range(20):
        classes.figures(1000.0 + second)
    waits = [one.longest_wait_us for one in classes.figures(5000.0)]
    assert all(wait is None or wait < 100_000_000 for wait in waits)
