"""Everything that touches the machine: collectors, the one door for changes, and the link to the backend."""

import sys

# msgspec takes typing_extensions instead of typing where it happens to be installed, as it is beside the backend,
# which costs the agent 0.3 MiB (measured, of a budget of 32); so it is out of sight for the moment of that import.
_HIDDEN = "typing_extensions"
if "msgspec" not in sys.modules and _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]  # how the import system spells "not to be found"
    import msgspec  # noqa: F401 - for its side effect

    del sys.modules[_HIDDEN]
