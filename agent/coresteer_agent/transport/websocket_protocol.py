"""Imports the parts of the websockets package that the agent uses, without importlib.metadata.

websockets needs that module only for its unreleased versions, and it costs 1.4 MiB of the agent's budget of 32. So an
empty module replaces it during the import.
"""
# ruff: noqa: E402 - what the imports load depends on what is done before them

import sys
from types import ModuleType

_UNUSED = "importlib.metadata"
_emptied = _UNUSED not in sys.modules
if _emptied:
    sys.modules[_UNUSED] = ModuleType(_UNUSED)

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.uri import WebSocketURI, parse_uri

if _emptied:
    del sys.modules[_UNUSED]

__all__ = [
    "ClientProtocol",
    "Close",
    "Frame",
    "InvalidStatus",
    "Opcode",
    "State",
    "WebSocketException",
    "WebSocketURI",
    "parse_uri",
]
