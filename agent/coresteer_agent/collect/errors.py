"""What a collector says about a kernel file it does not understand."""


class ParseError(ValueError):
    """A kernel file whose text is not what its format promises.

    path: below the root directory; line: counted from 1, None when the whole file is meant.
    """

    def __init__(self, path: str, line: int | None, sentence: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {sentence}")
        self.path = path
        self.line = line
        self.sentence = sentence
