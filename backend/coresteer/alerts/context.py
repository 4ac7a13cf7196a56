"""What the features of alerts share."""

from dataclasses import dataclass

from coresteer.alerts.readings import DiskUsed
from coresteer.alerts.sending import Sending
from coresteer.db import Database
from coresteer.fleet.directory import FleetDirectory


@dataclass(frozen=True)
class AlertContext:
    """What the features of alerts share. public_url: of the backend, None without one."""

    database: Database
    directory: FleetDirectory
    disk_used: DiskUsed
    sending: Sending
    public_url: str | None

    @property
    def page_url(self) -> str:
        """Return the address of the page of alerts, empty without a public URL."""
        return f"{self.public_url.rstrip('/')}/alerts" if self.public_url else ""
