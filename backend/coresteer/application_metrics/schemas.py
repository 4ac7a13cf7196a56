"""Request and response bodies of application metrics."""

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field

from coresteer.application_metrics.reading import NODE, Missing
from coresteer.guarded_http import is_forbidden
from coresteer.inputs import STORABLE, RequestBody, TextPattern, validation_error

Name = Annotated[
    str,
    Field(min_length=1, max_length=40),
    TextPattern("[a-z][a-z0-9_]*", "A name begins with a letter and has lower-case letters, digits and _ only."),
]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise validation_error("The text must not contain control characters.")
    return text


def _server(url: str) -> str:
    """Return the address of a server without its last slash; the address has no password, query or fragment."""
    sentence = "Write the address of a Prometheus server, such as https://prometheus.example:9090."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise validation_error(sentence) from None
    if not url.isascii() or not url.isprintable() or " " in url:
        raise validation_error(sentence)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise validation_error(sentence)
    if "@" in parts.netloc:
        raise validation_error("The address must not contain a user name or password.")
    if is_forbidden(parts.hostname):
        raise validation_error("Link-local addresses and those of a cloud's metadata service are not asked.")
    return url.rstrip("/")


def _of_a_node(query: str) -> str:
    if NODE not in query:
        raise validation_error(f"The query must select one node: write {NODE} where its name belongs.")
    return query


class ApplicationMetricCreate(RequestBody):
    """An application metric to be declared.

    better: whether more or less of it is better, empty where neither is. url: of a Prometheus server. query: PromQL
    with ``{{node}}`` for the node's name, and optionally ``{{range}}`` for the length of the measured period. floor:
    the smallest value that counts; in proofs it stands for smaller ones and for 0, which have no ratio.
    """

    name: Name
    label: Annotated[str, Field(min_length=1, max_length=80), STORABLE, AfterValidator(_printable)]
    unit: Annotated[str, Field(max_length=20), STORABLE, AfterValidator(_printable)] = ""
    better: Literal["more", "less", ""] = ""
    url: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_server)]
    query: Annotated[str, Field(min_length=1, max_length=2000), STORABLE, AfterValidator(_of_a_node)]
    floor: Annotated[float, Field(ge=1e-12, le=1e12)]


class ApplicationMetric(BaseModel):
    """A declared application metric. floor: None for one declared before there were floors; 0 does not count then."""

    id: int
    name: str
    label: str
    unit: str
    better: Literal["more", "less", ""]
    url: str
    query: str
    floor: float | None
    created_at: datetime
    created_by: str


class ApplicationReading(BaseModel):
    """The value of an application metric for a node in a period. value: None where it is missing; reason says why."""

    value: float | None
    missing: Missing | None
    reason: str
    from_time: datetime
    to_time: datetime
