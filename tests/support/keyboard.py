"""Standard input of a command that a test runs in its own process."""

import io


class Keyboard(io.TextIOWrapper):
    """Standard input with what a person types, or with a file's content. typed: bytes for what may be no UTF-8."""

    def __init__(self, typed: str | bytes, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(typed.encode() if isinstance(typed, str) else typed), encoding="utf-8")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal
