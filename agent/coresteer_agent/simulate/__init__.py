"""Simulated nodes: many agents with generated machines in one process, using the real protocol."""

from coresteer_agent.simulate.cli import add_arguments, main

__all__ = ["add_arguments", "main"]
