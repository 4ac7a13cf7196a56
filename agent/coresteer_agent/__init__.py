"""Everything that touches the machine: collectors, the one door for changes, and the link to the backend."""

import sys
from types import ModuleType

# The agent's budget is 32 MiB, and two libraries load what they do not use (measured): msgspec takes typing_extensions
# instead of typing where it happens to be installed, as it is beside the backend, 0.3 MiB; websockets loads
# importlib.metadata, with which only its unreleased versions find out their number, 1.4 MiB. So these are out of sight
# for the moment of that import.
_HIDDEN = "typing_extensions"
if "msgspec" not in sys.modules and _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]  # how the import system spells "not to be found"
    import msgspec  # noqa: F401 - for its side effect

    del sys.modules[_HIDDEN]

_EMPTIED = "importlib.metadata"
if "websockets" not in sys.modules and _EMPTIED not in sys.modules:
    sys.modules[_EMPTIED] = ModuleType(_EMPTIED)
    import websockets.version  # noqa: F401 - for its side effect

    del sys.modules[_EMPTIED]
