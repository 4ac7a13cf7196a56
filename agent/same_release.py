"""Makes the agent's wheel need the core of its own release: the two share types, which change with any release."""

from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SameRelease(BuildHookInterface[BuilderConfig]):
    """Hatchling's build hook of this distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # Any: as hatchling declares it
        """Add the requirement, except for an installation that uses the checkout (version ``editable``)."""
        if version != "editable":
            build_data["dependencies"].append(f"coresteer-core=={self.metadata.version}")
