"""Overlay values of settings on a View, as input of the later policies of a round and of a backtest."""

from coresteer_core.node.view import View
from coresteer_core.settings import parse_setting
from coresteer_core.settings.modified_view import ModifiedView


def overlay(view: View, settings: dict[str, str]) -> View:
    """Return a View of a node as it would be with these values of settings (by key), its load included.

    Raises SettingError for a key that is no setting's.
    """
    if not settings:
        return view
    modified = ModifiedView(view)
    for key, value in settings.items():
        parse_setting(key).overlay(modified, value)
    return modified.build()
