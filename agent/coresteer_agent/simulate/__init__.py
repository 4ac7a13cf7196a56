"""Simulated nodes: many agents in one process that speak the real protocol about made-up machines."""

from coresteer_agent.simulate.cli import add_arguments, main

__all__ = ["add_arguments", "main"]
