"""What the papers state of the measurements that templates redo, by template and arm."""

from typing import NamedTuple

from coresteer.experiments.schemas import AuthorsRow

_PLACEMENT = "Jang, Jin, Kim: network-process scheduling for multicore systems, 2009"
_COALESCING = "Park, Woo, Lee, Kim: interrupt coalescing parameters"
_CLASSES = "Kim, Song, Lee: percentile scheduling for differentiated services"


class Paper(NamedTuple):
    """A template's title and source, and the figures in it. An arm that no experiment has is the authors' own."""

    title: str
    source: str
    explains: str
    rows: list[AuthorsRow]


def _row(arm: str, metric: str, text: str, value: float | None = None) -> AuthorsRow:
    return AuthorsRow(arm=arm, metric=metric, text=text, value=value)


def _few(cores: str, throughput: str, effectiveness: str) -> list[AuthorsRow]:
    return [
        _row(cores, "throughput_bit_per_s", f"{throughput} against Linux 2.6.18 / 2.6.28"),
        _row(cores, "cpu_s_per_gbit", f"CPU effectiveness {effectiveness} against Linux 2.6.18 / 2.6.28"),
    ]


_FEW = (
    "Packets arrive on few CPUs. Compared are the kernel, which places processes as it does, and Coresteer's policy of "
    "the kind network-process, which runs them where their packets are handled or beside."
)
_2S = _few("network-process, 2 cores that share a cache", "+21 % / +4 %", "+63 % / +59 %")
_2N = _few("network-process, 2 cores that share none", "+32 % / +20 %", "+43 % / +39 %")
_FEWER = _row("any", "throughput_bit_per_s", "the fewer the interrupt cores, the larger the gain")

PAPERS = {
    "m-n": Paper(
        "⟨m-n⟩: interrupt on CPU m, process on CPU n",
        _PLACEMENT,
        "Packets arrive on CPU m throughout, and the process that receives them runs on one CPU after the other: what "
        "does its distance cost?",
        [
            _row("any n", "throughput_bit_per_s", "hardly changes with the core of the process"),
            _row("an n that shares no cache with m", "cpu_busy_percent", "up to 27 % more CPU"),
        ],
    ),
    "few-interrupt-cores": Paper("One interrupt CPU: who places the processes", _PLACEMENT, _FEW, [*_2S, *_2N, _FEWER]),
    "few-interrupt-cores-2s": Paper("2S: two interrupt CPUs that share a cache", _PLACEMENT, _FEW, [*_2S, _FEWER]),
    "few-interrupt-cores-2n": Paper("2N: two interrupt CPUs that share no cache", _PLACEMENT, _FEW, [*_2N, _FEWER]),
    "few-interrupt-cores-4s": Paper("4S: four interrupt CPUs that share a cache", _PLACEMENT, _FEW, [*_2S, _FEWER]),
    "few-interrupt-cores-4n": Paper("4N: four interrupt CPUs that share no cache", _PLACEMENT, _FEW, [*_2N, _FEWER]),
    "rx-usecs": Paper(
        "rx-usecs: how long to wait for more packets",
        _COALESCING,
        "The longer the card waits for more packets, the fewer interrupts there are; from where on, and at what price?",
        [
            _row("18 µs", "interrupts_per_s", "~20,000", 20_000),
            _row("36 µs", "interrupts_per_s", "not fewer yet", 20_000),
            _row("54 µs", "interrupts_per_s", "coalescing sets in"),
            _row("90 µs", "interrupts_per_s", "~4,000", 4_000),
            _row("90 µs", "throughput_bit_per_s", "unaffected"),
        ],
    ),
    "rx-frames": Paper(
        "rx-frames: how many packets to wait for",
        _COALESCING,
        "A count of packets ends the wait early. It matters only where the time is longer than the gap between "
        "packets: measured below it and past it.",
        [
            _row("18 µs, 6 frames", "interrupts_per_s", "~20,000", 20_000),
            _row("18 µs, 18 frames", "interrupts_per_s", "nothing changes", 20_000),
            _row("18 µs, 42 frames", "interrupts_per_s", "nothing changes", 20_000),
            _row("90 µs, 6 frames", "interrupts_per_s", "~4,000", 4_000),
            _row("90 µs, 18 frames", "interrupts_per_s", "cut further"),
            _row("90 µs, 42 frames", "interrupts_per_s", "cut further"),
            _row("90 µs, 42 frames", "throughput_bit_per_s", "not fallen yet"),
            _row("90 µs, 42 frames", "cpu_busy_percent", "less than half of the 11 % before"),
            _row("90 µs, 48 frames", "throughput_bit_per_s", "begins to fall past 42"),
        ],
    ),
    "service-classes": Paper(
        "Service classes: nice against percentile scheduling",
        _CLASSES,
        "Five classes with different targets ask a server that forks for each request. Who goes first is decided by "
        "nice values or by how far each class is from its target: how far apart are the classes?",
        [
            _row(arm, metric, f"{value / 1000:.3f} ms" if metric.endswith("_us") else f"{value:.2f}", value)
            for arm, values in (
                ("nice", (3780, 5004, 5791, 6061, 7724, 5672, 2.04)),
                ("percentile", (3177, 4401, 5507, 7197, 10125, 6081, 3.19)),
            )
            for metric, value in zip(
                [*(f"c{number}_mean_us" for number in range(1, 6)), "all_mean_us", "c5_by_c1"], values, strict=True
            )
        ],
    ),
}
"""By the template's slug. Effects that are told in percent have no value: they stand on no axis of a figure."""
