"""ParseError, which collectors raise for a kernel file that they cannot parse."""


class ParseError(ValueError):
    """Raised for a kernel file whose text is not in the expected format.

    path: below the root directory; line: counted from 1, None for the whole file.
    """

    def __init__(self, path: str, line: int | None, sentence: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {sentence}")
        self.path = path
        self.line = line
        self.sentence = sentence
