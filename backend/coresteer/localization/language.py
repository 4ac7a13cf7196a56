"""Languages of reports and of the sentences in them."""

from typing import Literal, TypeAlias

Language: TypeAlias = Literal["en", "ko"]
