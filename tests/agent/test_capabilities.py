"""What the agent's process may do."""

import subprocess
import sys

from coresteer_agent.linux.capabilities import NEEDED

SHOW = """
import subprocess
from coresteer_agent.linux.capabilities import held, keep_needed
before = held()
keep_needed()
print(*before)
print(*held())
print(subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout)
"""


def test_an_agent_keeps_only_what_it_needs_and_neither_it_nor_its_programs_gain_more() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    before, after, *status = done.stdout.splitlines()
    assert after.split() == [name for name in NEEDED if name in before.split()]
    of_a_program = dict(line.split(":\t") for line in status if line.startswith(("Cap", "NoNewPrivs")))
    assert of_a_program["NoNewPrivs"] == "1"
    needed = sum(1 << number for number in NEEDED.values())
    assert int(of_a_program["CapEff"], 16) & ~needed == 0
    assert int(of_a_program["CapPrm"], 16) & ~needed == 0
