"""Configuration of an agent: its values, and the checks of what people write."""

import os
import re
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from coresteer_core.bounds import LABEL_NAME, MAX_LABEL
from coresteer_core.node.limits import LIMITS_FILE

DEFAULT_BACKEND = "http://127.0.0.1:8420"
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 60.0
MAX_PORT_RANGES = 16
MAX_LABELS = 32
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?\Z", re.ASCII)


class ConfigError(ValueError):
    """Raised for an invalid argument; the message is a sentence for the operator."""


class Config(Struct, frozen=True):
    """Configuration of an agent. backends: equivalent ones, http or https addresses without a trailing slash.

    root: the machine's root directory or a captured tree. load_option_ports: whose messages carry the node's load.
    labels: of the node, which go before those of its platform.
    """

    backends: tuple[str, ...]
    state_dir: Path
    root: Path
    interval_s: float
    name: str
    token_file: Path | None = None
    load_option_ports: tuple[range, ...] = ()
    labels: dict[str, str] = {}

    @property
    def key_path(self) -> Path:
        """Return the path of the file with the node's key."""
        return self.state_dir / "agent/key.json"

    @property
    def client_cert_path(self) -> Path:
        """Return the path of the operator's certificate and key for this node, for backends that require one."""
        return self.state_dir / "agent/client.pem"

    @property
    def journal_path(self) -> Path:
        """Return the path of the journal, which contains the original values of settings."""
        return self.state_dir / "agent/journal.jsonl"

    @property
    def policies_path(self) -> Path:
        """Return the path of the file with the policies in force and the settings that they hold."""
        return self.state_dir / "agent/policies.json"

    @property
    def commands_path(self) -> Path:
        """Return the path of the operator's list of commands for experiments; the agent never writes it."""
        return self.state_dir / "agent/commands.toml"

    @property
    def limits_path(self) -> Path:
        """Return the path of the administrator's limits of what any backend may do; in /etc, whatever the arguments."""
        return self.root / LIMITS_FILE.lstrip("/")

    @property
    def gate_path(self) -> Path:
        """Return the path of the gate's socket: in /run for the machine's own agent, else in state_dir."""
        own = os.geteuid() == 0 and self.state_dir == Path("/var/lib/coresteer")
        return Path("/run/coresteer/gate.sock") if own else self.state_dir / "agent/gate.sock"

    @property
    def nics_path(self) -> Path:
        """Return the path of the file with measurements and driver responses of the NICs."""
        return self.state_dir / "agent/nics.json"


def default_state_dir() -> Path:
    """Return the state directory: CORESTEER_STATE_DIR, else /var/lib/coresteer for root, else in XDG_STATE_HOME."""
    if configured := os.environ.get("CORESTEER_STATE_DIR"):
        return Path(configured)
    if os.geteuid() == 0:
        return Path("/var/lib/coresteer")
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local/state") / "coresteer"


def is_loopback(url: str) -> bool:
    """Return whether a URL certainly refers to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_backends(texts: Iterable[str], *, insecure: bool) -> tuple[str, ...]:
    """Return the addresses in texts, each one or several separated by commas, once each. Raises ConfigError."""
    urls = [url.strip() for text in texts for url in text.split(",") if url.strip()]
    if not urls:
        raise ConfigError("No backend is given; write for example --backend https://coresteer.example:8420.")
    return tuple(dict.fromkeys(check_backend(url, insecure=insecure) for url in urls))


def check_backend(url: str, *, insecure: bool) -> str:
    """Return the backend's address without a trailing slash. Raises ConfigError for an invalid or insecure one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"“{url[:200]}” is not a backend address; write for example https://coresteer.example:8420.")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ConfigError(f"The backend address {url[:200]} may have only scheme, host, port and path.")
    if parts.scheme == "http" and not insecure and not is_loopback(url):
        raise ConfigError(
            f"{url} is not on this machine, and http is not encrypted: the key and the changes would be readable on "
            "the network. Use https, or pass --insecure to accept that."
        )
    return url.rstrip("/")


def check_interval(seconds: float) -> float:
    """Return the sampling interval in seconds. Raises ConfigError if it is out of bounds."""
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise ConfigError(f"The interval is {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds, not {seconds:g}.")
    return seconds


def parse_ports(text: str) -> tuple[range, ...]:
    """Return the TCP ports in a list such as ``7700-7799,8080``, at most 16 ranges. Raises ConfigError."""
    found = []
    for part in text.split(",") if text.strip() else ():
        match = _PORTS.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, 0)
        if not 0 < first <= last < 1 << 16:
            raise ConfigError(f"“{part.strip()[:40]}” is not a TCP port or a range; write for example 7700-7799,8080.")
        found.append(range(first, last + 1))
    if len(found) > MAX_PORT_RANGES:
        raise ConfigError(f"At most {MAX_PORT_RANGES} ports or ranges are possible, not {len(found)}.")
    return tuple(found)


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Return the labels in texts such as ``rack=r01 role=db``, at most 32. Raises ConfigError."""
    labels = {}
    for part in (part for text in texts for part in re.split(r"[\s,]+", text) if part):
        name, equals, value = part.partition("=")
        if not equals or not re.fullmatch(LABEL_NAME, name):
            raise ConfigError(
                f"“{part[:80]}” is not a label; write for example rack=r01. A name is made of a-z, 0-9 and . _ / -, "
                "and begins with a letter or digit."
            )
        if len(name) > MAX_LABEL or len(value) > MAX_LABEL or not value.isprintable():
            raise ConfigError(f"Name and value of the label “{part[:80]}” may have {MAX_LABEL} characters each.")
        labels[name] = value
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"At most {MAX_LABELS} labels are possible, not {len(labels)}.")
    return labels
