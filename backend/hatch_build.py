"""Adds to a wheel or source distribution what the repository has beside this folder: the migrations and the page.

It also needs the core of its own release: the two share types, which change with any release.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageNotBuiltError(Exception):
    """frontend/dist does not exist; the message says how to build it."""


class RepositoryFiles(BuildHookInterface[BuilderConfig]):
    """Hatchling's build hook of this distribution; coresteer.config finds what it adds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # Any: as hatchling declares it
        """Add the requirement, and the folders ``migrations`` and ``page``. Raises PageNotBuiltError.

        version: ``editable`` for an installation that uses the repository's own.
        """
        if version == "editable":
            return
        build_data["dependencies"].append(f"coresteer-core=={self.metadata.version}")
        if (Path(self.root) / "PKG-INFO").exists():  # which a source distribution has
            return
        repository = Path(self.root).parent
        page = repository / "frontend" / "dist"
        if not (page / "index.html").exists():
            raise PageNotBuiltError(
                f"The page is not built: {page} has no index.html. `make dist` builds it, as does `npm run build` in "
                f"{repository / 'frontend'}."
            )
        added = build_data["force_include"]
        added[str(repository / "migrations")] = "coresteer/migrations"
        for path in page.iterdir():
            if not path.name.startswith("."):  # make's note of when it was built
                added[str(path)] = f"coresteer/page/{path.name}"
