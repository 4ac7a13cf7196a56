"""Imports the parts of the websockets package that the agent uses, without modules of 2 MiB.

websockets needs importlib.metadata only for its unreleased versions, and dataclasses needs inspect only for classes
without a docstring.
"""

from coresteer_agent.replaced_modules import replaced_modules

with replaced_modules({"importlib.metadata": {}, "inspect": {}}):
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.frames import Close, Frame, Opcode
    from websockets.protocol import State
    from websockets.uri import WebSocketURI, parse_uri

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
