"""Parallel jobs over machines: loads between agents, the order of boosts, and what the policy leaves behind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import msgspec
import pytest
from tests.core.test_coscheduling import recomputed
from tests.lab.fleet import Backend, agent_in
from tests.lab.nics import enforced
from tests.lab.recording_agent import REORDERINGS
from tests.lab.rig import Guest
from tests.support.polling import poll

from coresteer_core.experiments.parallel_jobs import COMMAND
from coresteer_core.policies.coscheduling.boost import Reordering

T = TypeVar("T")

POLICY: dict[str, object] = {"type": "coscheduling", "match": {"commands": [COMMAND]}, "stale_ms": 10_000}
"""Under emulation a period of the agent takes seconds, as it uses a tenth of a CPU at most."""
BOOST = "-10"
JOBS = 3
RUN = (
    *("coresteer-agent", "workload", "bsp", "--jobs", str(JOBS), "--mpl", str(JOBS), "--loops", "10000"),
    *("--exchange-ms", "2", "--wait", "spin-block", "--cpus", "1"),
)
PORT = 7750
SECONDS = 240


@pytest.fixture
def agents(trio: list[Guest], host: Backend) -> Iterator[list[int]]:
    """Yield the PIDs of agents that record, in the first two guests, between which jobs run."""
    first, second, _ = trio
    with ExitStack() as stack:
        program = ("python", "-m", "tests.lab.recording_agent")
        agents = [stack.enter_context(agent_in(guest, host, program)) for guest in (first, second)]
        listening = first.start(*RUN, "--listen", f"10.1.0.1:{PORT}", output="jobs.log")
        wait_for(lambda: first.run("ss", "-Hltn", f"sport = :{PORT}").stdout, bool)
        joining = second.start(*RUN, "--join", f"10.1.0.1:{PORT}", output="jobs.log")
        yield agents
        for guest, pid in ((first, listening), (second, joining)):
            guest.run("kill", str(pid), check=False)
            print((guest.share / "jobs.log").read_text())  # why they ended, if they did


def wait_for(read: Callable[[], T], accept: Callable[[T], object]) -> T:
    """Return the first accepted value; a guest sends no event for it."""
    return poll(read, accept, timeout_s=SECONDS, interval_s=0.2)


def nices(guest: Guest) -> list[str]:
    return guest.run("ps", "-C", COMMAND, "-o", "ni=", check=False).stdout.split()


def reorderings(guest: Guest) -> list[Reordering]:
    """Return what the guest's agent has recorded so far."""
    path = guest.share / REORDERINGS
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Reordering) for line in lines]


def known_peers(records: list[Reordering]) -> set[str]:
    """Return the peers whose load was used."""
    return {message.peer for record in records for message in record.messages if message.load is not None}


def has_choices(guest: Guest) -> bool:
    """Return whether the agent has chosen a few times between processes whose peer's load it knew."""
    records = [record for record in reorderings(guest) if len({each.pid for each in record.messages}) > 1]
    return sum(1 for record in records if record.boosted and known_peers([record])) >= 3


@pytest.mark.slow("policies enrol processes in rounds of five seconds")
def test_agents_boost_the_process_whose_peer_on_another_machine_runs_soonest(
    trio: list[Guest], agents: list[int], host: Backend
) -> None:
    first, second, _ = trio
    with enforced(host, "jobs", POLICY, damping={"moves_per_step": 8}):
        for guest in (first, second):
            wait_for(partial(nices, guest), lambda found: BOOST in found)
            wait_for(partial(has_choices, guest), bool)
        assert known_peers(reorderings(first)) == {"10.1.0.2"}
        assert known_peers(reorderings(second)) == {"10.1.0.1"}

        second.run("kill", "-STOP", str(agents[1]))
        try:
            wait_for(lambda: reorderings(first)[-1], lambda record: record.lacks_loads)
        finally:
            second.run("kill", "-CONT", str(agents[1]))
    for guest in (first, second):
        wait_for(partial(nices, guest), lambda found: found == ["0"] * JOBS)
        for record in reorderings(guest):
            assert record.boosted == expected(record)


def expected(record: Reordering) -> list[int]:
    """Return the order of boosts that follows from the recorded inputs."""
    return [] if record.lacks_loads else recomputed(record)
