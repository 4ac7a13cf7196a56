"""Rules for values of settings in messages from agents, through the registry of settings."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from coresteer_core.settings import SettingError, parse_setting


def invalid_params(parent: str, params: Iterable[Mapping[str, str]]) -> str | None:
    """Return which parameter's name or value is not a setting's, None if none; ``parent`` is the start of the key.

    The parent is a placeholder such as ``netdev/eth0``, since messages also name devices that no setting may address.
    """
    for name, value in {item for each in params for item in each.items()}:
        if wrong := _invalid_short_value(f"{parent}/{name}", value):
            return wrong
    return None


def invalid_value(key: str, value: str) -> str | None:
    """Return why a setting's key or value is invalid, None if both are valid."""
    try:
        setting = parse_setting(key)
    except SettingError:
        return f"{key[:60]!r} is not a setting."
    try:
        setting.canonical(value)
    except SettingError as error:
        return str(error)
    return None


_invalid_short_value = lru_cache(maxsize=4096)(invalid_value)
"""For parameters, whose names and values have at most MAX_NAME characters; nodes of a fleet share most of them."""
