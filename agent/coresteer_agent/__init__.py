"""The agent: observes a machine, applies changes through a single write path, and connects to the backend."""

import sys

# msgspec imports typing_extensions instead of typing if it is installed, as it is with the backend. That costs the
# agent 0.3 MiB (measured, of a budget of 32), so it is hidden during that import.
_HIDDEN = "typing_extensions"
if "msgspec" not in sys.modules and _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]  # how the import system spells "not to be found"
    import msgspec  # noqa: F401 - for its side effect

    del sys.modules[_HIDDEN]
