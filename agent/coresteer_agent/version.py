"""The agent's version as a constant, because importlib.metadata would cost 1.6 MiB of memory."""

VERSION = "0.3.0"
