"""All sentences of reports, in English and Korean.

Korean particles depend on how the word before them ends, so a placeholder names both forms where one follows it:
``{metric:이/가}``.
"""

import re
import string
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from coresteer.localization.language import Language
from coresteer.localization.text_change_steps import STEPS
from coresteer.localization.text_changes import CHANGE
from coresteer.localization.text_comparisons import COMPARE
from coresteer.localization.text_experiment_method import METHOD
from coresteer.localization.text_experiments import EXPERIMENT, WORKLOAD_LABELS
from coresteer.localization.text_labels import LABELS
from coresteer.localization.text_metrics import FIGURES, METRIC_LABELS
from coresteer.localization.text_reasons import EARLIER_REASONS, REASONS
from coresteer.localization.text_simulation import PARAMETERS, STUDY
from coresteer.localization.text_tune import TUNE


class BilingualText(NamedTuple):
    """A sentence in English and Korean, with the same placeholders."""

    en: str
    ko: str

    def filled(self, **values: object) -> "BilingualText":
        """Return the sentence with its placeholders filled."""
        return BilingualText(*(_formatter.vformat(each, (), values) for each in self))


SENTENCES: Mapping[str, BilingualText] = MappingProxyType(
    {
        key: BilingualText(*both)
        for part in (
            *(FIGURES, METRIC_LABELS, WORKLOAD_LABELS, EXPERIMENT, METHOD, CHANGE, COMPARE, REASONS, STEPS),
            *(STUDY, PARAMETERS, TUNE),
        )
        for key, both in part.items()
    }
)

_ENDS_IN_CONSONANT = frozenset("LMNRlmnr013678")
"""Latin letters and digits whose Korean reading ends in a consonant: 엘 엠 엔 아르(알); 영 일 삼 육 칠 팔."""
_ENDS_IN_L = frozenset("LRlr178")


class _Formatter(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        text = str(value)
        return text + _particle(text, *format_spec.split("/")) if "/" in format_spec else format(value, format_spec)


def _particle(text: str, after_consonant: str, after_vowel: str) -> str:
    """Return the form of a particle that follows the text; 으로 is 로 also after ㄹ."""
    last = next((c for c in reversed(_without_brackets(text)) if c.isalnum() or c == "%"), "")
    if "가" <= last <= "힣":
        final = (ord(last) - ord("가")) % 28
        consonant, ends_in_l = final != 0, final == 8
    else:
        consonant, ends_in_l = last in _ENDS_IN_CONSONANT, last in _ENDS_IN_L
    return after_vowel if not consonant or (ends_in_l and after_consonant == "으로") else after_consonant


def _without_brackets(text: str) -> str:
    return text[: text.rfind("(")] if text.endswith(")") and "(" in text else text


_formatter = _Formatter()


def text(language: Language, key: str, /, **values: object) -> str:
    """Return the sentence of this key in the language, with its placeholders filled."""
    return _formatter.vformat(getattr(SENTENCES[key], language), (), values)


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    """Return a template's pattern; a placeholder is within one sentence, except {sentence}."""
    parts = _formatter.parse(template)
    groups = {None: "", "sentence": "(?P<sentence>.+)"}
    return re.compile(
        "".join(re.escape(text) + groups.get(name, rf"(?P<{name}>(?:(?!\. ).)+?)") for text, name, _, _ in parts)
    )


_NEXT_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9])")
_MAX_LENGTH = 500
"""A longer sentence is a text of an agent, not one of REASONS."""
_REASONS = [
    *((key, _pattern(english)) for key, english in EARLIER_REASONS.items()),
    *((key, _pattern(english)) for key, (english, _) in (*STEPS.items(), *REASONS.items())),
]


def translate(language: Language, sentence: str) -> str:
    """Return a stored English reason in the language; sentences that are none of REASONS and STEPS are unchanged."""
    if language != "en" and len(sentence) <= _MAX_LENGTH:
        for key, pattern in _REASONS:
            if found := pattern.fullmatch(sentence):
                values = found.groupdict()
                if "sentence" in values:
                    values["sentence"] = translate(language, values["sentence"])
                return text(language, key, **values)
        first, *others = _NEXT_SENTENCE.split(sentence, maxsplit=1)
        if others:
            return f"{translate(language, first)} {translate(language, others[0])}"
    return sentence


def translate_name(language: Language, name: str, names_ko: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a name of LABELS, or of a template's names_ko, in the language; others are unchanged."""
    if language != "en":
        for english, korean in chain(names_ko.items(), LABELS.items()):
            if found := _pattern(english).fullmatch(name):
                return _formatter.vformat(korean, (), found.groupdict())
    return name


def metric_label(language: Language, metric: str, otherwise: str | None = None) -> str:
    """Return the label of a metric in the language.

    otherwise: of a metric without a translation, e.g. one of a command.
    """
    key = f"metric.{metric}"
    return text(language, key) if key in SENTENCES else otherwise or metric.removeprefix("command.")
