"""A node as it would be with other settings: what later policies of a round decide from, and a backtest."""

from coresteer_core.node.view import View
from coresteer_core.settings import parse_setting
from coresteer_core.settings.modified_view import ModifiedView


def overlay(view: View, settings: dict[str, str]) -> View:
    """Return a View as it would be with these values by key, its load included; see ModifiedView.

    Raises SettingError for a key that is no setting's.
    """
    if not settings:
        return view
    modified = ModifiedView(view)
    for key, value in settings.items():
        parse_setting(key).overlay(modified, value)
    return modified.build()
