"""The agent's version. Here and not asked of the installed package, as importlib.metadata costs 1.6 MiB of memory."""

VERSION = "0.1.0"
