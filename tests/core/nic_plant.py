"""NICs that do not exist, with a driver that takes, rounds, refuses or ignores what it is asked, under made-up traffic.

How often they interrupt comes from the model (simulate/nic.py); with one packet in flight it follows from the wait
itself. A Plant is carried through rounds of the engine with one policy, and what its driver made of values is learned.
"""

from collections.abc import Callable
from functools import cache

from msgspec import Struct
from msgspec.structs import replace
from tests.support.views import make_netdev, make_view

from coresteer_core.changes.plan import Action
from coresteer_core.node.inventory import Irq, Queue
from coresteer_core.node.load import IrqLoad, Load, NetdevLoad
from coresteer_core.node.nic import DriverRecord, DriverResponse, NicKnowledge, Timer, Verdict, selects_adaptive_mode
from coresteer_core.node.nic_model import HostCosts, Prediction, QueueTraffic, TimerParams, predict
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Damping, Evaluation, Mode
from coresteer_core.policies.coalescing.spec import Coalescing
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write

USECS, FRAMES, ADAPTIVE = "coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx"
DEFER, FLUSH = "napi_defer_hard_irqs", "gro_flush_timeout"
OWN_PACE_US = 50.0
"""What a driver that sets its own pace chooses: 20,000 interrupts a second."""
DRIVERS: dict[Timer | None, str] = {Timer.THROTTLE: "igb", Timer.RESTARTING: "mlx5_core", Timer.ABSOLUTE: "virtio_net"}


def drivers_own(name: str, value: str) -> str:
    """A driver that takes everything as it is."""
    return value


class Traffic(Struct, frozen=True):
    """packets_per_s: of all queues. in_flight_rtt_us: one packet in flight a queue, with that round-trip time."""

    packets_per_s: float
    frame_bytes: float = 1500.0
    queues: int = 1
    in_flight_rtt_us: float | None = None
    link_bits_per_s: int = 10**10
    drops_from_us: float | None = None
    """A wait from which on a tenth is dropped."""


class Plant(Struct, frozen=True):
    """One NIC. timer: how it really waits. driver: what it makes of a value; raises ValueError to refuse."""

    timer: Timer
    name: str
    params: dict[str, str]
    traffic: Traffic
    driver: Callable[[str, str], str] = drivers_own
    learned: NicKnowledge = NicKnowledge()
    adaptive_us: float = 20.0
    time_s: float = 1000.0

    def view(self, scale: float = 1.0, interrupts: float = 1.0) -> View:
        """What an agent would see. scale, interrupts: noise on the traffic and on the interrupts."""
        traffic, queues = self.traffic, range(self.traffic.queues)
        per_queue, rtt_us, predicted = self.measured(scale)
        irqs = [Irq(40 + q, f"eth0-{q}", "PCI", "0", "0", None, True, None, "eth0", [f"rx-{q}"]) for q in queues]
        netdev = make_netdev(
            driver=self.name, speed_bits_per_s=traffic.link_bits_per_s, numa_node=None, params=self.params,
            queues=[Queue(f"rx-{q}", 40 + q) for q in queues],
        )  # fmt: skip
        packets_per_s = per_queue * traffic.queues
        dropped = predicted.dropped_share
        if traffic.drops_from_us is not None and self.usecs() >= traffic.drops_from_us:
            dropped = 0.1
        answered = 1.0 if traffic.in_flight_rtt_us is not None else 0.02
        load = Load(
            seconds=ROUND_PERIOD_S,
            irqs=[IrqLoad(irq.irq, 0, predicted.interrupts_per_s * interrupts) for irq in irqs],
            rtt_p50_us=round(rtt_us),
            netdevs=[
                NetdevLoad(
                    "eth0",
                    packets_per_s * (1 - dropped),
                    packets_per_s * (1 - dropped) * traffic.frame_bytes,
                    packets_per_s * answered,
                    packets_per_s * answered * 60,
                    packets_per_s * dropped,
                )
            ],
        )
        return make_view(netdevs=[netdev], irqs=irqs, load=load, time_s=self.time_s, learned=self.learned)

    def usecs(self) -> float:
        """For how long it waits in truth."""
        if self.params.get(ADAPTIVE) == "on":
            return self.adaptive_us
        kernels = int(self.params[FLUSH]) / 1000 if self.params.get(DEFER, "0") != "0" else 0.0
        value = int(self.params.get(USECS, "0"))
        return OWN_PACE_US if selects_adaptive_mode(self.name, value) else max(float(value), kernels)

    def measured(self, scale: float = 1.0) -> tuple[float, float, Prediction]:
        """Packets per second of a queue, round-trip time and what the model says."""
        traffic, usecs = self.traffic, self.usecs()
        counts = FRAMES in self.params and self.params.get(ADAPTIVE) != "on" and self.params.get(DEFER, "0") == "0"
        frames = int(self.params[FRAMES]) if counts else None
        if traffic.in_flight_rtt_us is not None:
            base = traffic.in_flight_rtt_us
            waits = 0.0 if frames == 1 else usecs
            rtt_us = max(base, waits) if self.timer is Timer.THROTTLE else base + waits
            per_s = 1e6 / rtt_us * scale
            return per_s, rtt_us, Prediction(per_s, 1.0, rtt_us - base, rtt_us - base, rtt_us - base, 0.0)
        per_s = traffic.packets_per_s / traffic.queues * scale
        predicted = _predicted(
            round(per_s, -2), traffic.frame_bytes, traffic.link_bits_per_s, TimerParams(self.timer, usecs, frames)
        )
        return per_s, 100.0 + predicted.added_mean_us, predicted

    def after(self, actions: list[Action]) -> tuple["Plant", list[Action]]:
        """The NIC a round later, and what of the actions was done (what reads back otherwise is undone)."""
        params, done, tried = dict(self.params), [], []
        for action in actions:
            name = action.key.removeprefix("netdev/eth0/")
            try:
                stood = self.driver(name, action.becomes)
            except ValueError as error:
                tried.append(DriverResponse(name, action.becomes, Verdict.REFUSED, None, str(error), 0))
                continue
            if stood == action.becomes:
                params[name] = stood
                done.append(action)
                tried.append(DriverResponse(name, action.becomes, Verdict.ACCEPTED, stood, "", 0))
            else:
                verdict = Verdict.IGNORED if stood == params[name] else Verdict.ROUNDED
                tried.append(DriverResponse(name, action.becomes, verdict, stood, "", 0))
        record = self.learned.drivers[0].responses if self.learned.drivers else []
        new = {(each.name, each.requested) for each in tried}
        kept = [each for each in record if (each.name, each.requested) not in new]
        learned = NicKnowledge([DriverRecord(self.name, "6.12", [*kept, *tried])])
        return replace(self, params=params, learned=learned, time_s=self.time_s + ROUND_PERIOD_S), done


@cache
def _predicted(per_s: float, frame_bytes: float, link_bits_per_s: int, wait: TimerParams) -> Prediction:
    return predict(QueueTraffic(max(per_s, 1.0), frame_bytes, link_bits_per_s), wait, HostCosts(ring=4096))


class Course(Struct):
    """What a policy did to a plant: its state after each round, what was evaluated and written, by round."""

    plants: list[Plant]
    evaluations: list[Evaluation]
    writes: list[tuple[int, Action]]
    memory: EngineMemory = EngineMemory()

    @property
    def end(self) -> Plant:
        """The last state."""
        return self.plants[-1]

    @property
    def values(self) -> list[str]:
        """rx-usecs one after the other, without repetitions."""
        seen = [plant.params[USECS] for plant in self.plants]
        return [value for n, value in enumerate(seen) if n == 0 or value != seen[n - 1]]

    def usecs_over(self, usecs: float) -> int:
        """In how many rounds it waited longer."""
        return sum(plant.usecs() > usecs for plant in self.plants)

    def last_write(self) -> int:
        """The round of it; -1 without."""
        return max((round_ for round_, _ in self.writes), default=-1)


def in_force(spec: Coalescing, **damping: float) -> PolicyInForce:
    """The policy as an agent has it."""
    return PolicyInForce("1", 1, "coalescing", 1, Mode.ENFORCE, spec, damping=Damping(**damping))  # type: ignore[arg-type]  # fields by name


def run(
    plant: Plant,
    spec: Coalescing,
    rounds: int,
    *,
    change: Callable[[int, Plant], Plant] = lambda _, plant: plant,
    scale: Callable[[int], tuple[float, float]] = lambda _: (1.0, 1.0),
    **damping: float,
) -> Course:
    """Enforce it for some rounds. change: what else happens to the plant; scale: noise of view()."""
    policy, memory = in_force(spec, **damping), EngineMemory()
    course = Course([plant], [], [])
    for round_ in range(rounds):
        plant = change(round_, plant)
        view = plant.view(*scale(round_))
        (evaluation,), memory = evaluate_round(view, [policy], memory)
        plant, done = plant.after(evaluation.actions)
        for action in done:
            memory = record_write(memory, "1", action, view.time_s)
            course.writes.append((round_, action))
        course.plants.append(plant)
        course.evaluations.append(evaluation)
    course.memory = memory
    return course
