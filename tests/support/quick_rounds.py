"""coresteer-agent whose simulated nodes evaluate their policies every second, for blocks of ten seconds."""

import sys

from coresteer_agent.__main__ import main
from coresteer_agent.simulate import agent

if __name__ == "__main__":
    agent.ROUND_PERIOD_S = 1.0  # type: ignore[attr-defined] # imported there, read in each round
    sys.exit(main())
