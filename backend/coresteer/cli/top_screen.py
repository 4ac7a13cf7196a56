"""`coresteer top`: prints the view, or draws it on a terminal every two seconds and reads keys."""

import argparse
import curses
import locale
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import replace

from coresteer.cli import top
from coresteer.cli.api_client import ApiClient, UnreachableError

_PERIOD_MS = 2000
_HELP = "s sort   ↑ ↓ page   q quit"
_OTHER_LINES = 14
"""Lines that are no nodes: the summary, titles, and the hot spots."""


def run(arguments: argparse.Namespace, client: ApiClient) -> int:
    """Run `coresteer top` until q or Ctrl-C; return its exit code. Raises ApiError and UnreachableError."""
    view = top.View(" ".join(arguments.filter), arguments.sort)
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        locale.setlocale(locale.LC_ALL, "")  # or curses writes no arrows
        with suppress(KeyboardInterrupt):
            curses.wrapper(_live, client, view)
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    for line in top.lines(*top.fetch(client, view), view, address=client.url, width=width):
        print(line.text.rstrip())
    return 0


def _live(screen: curses.window, client: ApiClient, view: top.View) -> None:
    """Draw until q. A backend that does not answer is named in the last line, and asked again."""
    styles = {"plain": 0, "head": curses.A_BOLD, "hot": curses.A_REVERSE, "away": curses.A_DIM}
    with suppress(curses.error):  # of a terminal without colors
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        styles["hot"] = curses.color_pair(1) | curses.A_BOLD
    screen.timeout(_PERIOD_MS)
    found: list[top.Line] = []
    while True:
        height, width = screen.getmaxyx()
        view = replace(view, rows=max(height - _OTHER_LINES, 1))
        try:
            answer, suggestions = top.fetch(client, view)
            if view.offset and not answer["rows"]:  # past the last node
                view = replace(view, offset=max(view.offset - view.rows, 0))
                continue
            found = top.lines(answer, suggestions, view, address=client.url, width=width - 1)
            told = top.Line(_HELP, "away")
        except UnreachableError as error:
            told = top.Line(str(error), "hot")
        screen.erase()
        for at, line in enumerate([*found[: height - 1], told]):
            screen.addnstr(at, 0, line.text, width - 1, styles[line.style])
        key = screen.getch()
        if key == ord("q"):
            return
        if key == ord("s"):
            view = replace(view, sort=top.SORTS[(top.SORTS.index(view.sort) + 1) % len(top.SORTS)], offset=0)
        elif key in (curses.KEY_DOWN, curses.KEY_NPAGE):
            view = replace(view, offset=view.offset + view.rows)
        elif key in (curses.KEY_UP, curses.KEY_PPAGE):
            view = replace(view, offset=max(view.offset - view.rows, 0))
