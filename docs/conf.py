"""The documentation site: every Markdown file of the repository that is for readers, and pages generated from code.

``make docs`` builds it; broken links between pages and pages in no menu are errors. The source folder is the
repository, so that its files link each other as they do in a checkout.
"""

import runpy
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

project = "Coresteer"
version = release = metadata.version("coresteer")
_PARTS = ("agent", "agent/coresteer-core", "backend", "frontend")
extensions = ["myst_parser"]
include_patterns = [
    "docs/**.md",
    "*.md",
    "agent/README.md",
    "agent/coresteer-core/README.md",
    "backend/README.md",
    "frontend/README.md",
    "examples/gitops/README.md",
]
exclude_patterns = ["README.md", ".venv", "build", "frontend/node_modules", "frontend/dist", "tests"]
root_doc = "docs/index"
html_theme = "furo"
html_title = f"Coresteer {version}"
html_extra_path = ["root"]
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]
"""Shell blocks may hold placeholders that no lexer knows."""


def setup(app: Sphinx) -> None:
    """Write the generated pages before the sources are looked for."""
    app.connect("config-inited", lambda *_: _generate())


def _generate() -> None:
    runpy.run_path(str(Path(__file__).parent / "reference" / "generate.py"), run_name="__main__")
