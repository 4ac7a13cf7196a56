"""Configuration of the backend, from environment variables and /etc/coresteer/backend.toml."""

import hashlib
import ipaddress
import json
import os
import re
import ssl
from pathlib import Path
from typing import Literal, Self, TypeAlias
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

_PACKAGE = Path(__file__).resolve().parent
REPOSITORY = _PACKAGE.parents[1]
"""The checkout, where this package is part of one."""
CONFIG_FILE = Path("/etc/coresteer/backend.toml")


def _installed_or(name: str, in_checkout: Path) -> Path:
    """Return a folder that a wheel has in the package (backend/hatch_build.py), else the checkout's."""
    installed = _PACKAGE / name
    return installed if installed.exists() else in_checkout


def default_state_dir() -> Path:
    """Return /var/lib/coresteer for root, else a folder of the user's XDG state directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/coresteer")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "coresteer"


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


_LABEL = r"[^=,\s]+=[^=,\s]+"
_MAPPED_ROLE = re.compile(rf"viewer|admin|operator(:{_LABEL}(,{_LABEL})*)?")

_HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")

LogFormat: TypeAlias = Literal["text", "json"]


class Config(BaseSettings):
    """Configuration of the backend: options, else the environment, else CONFIG_FILE.

    Each field is the variable ``CORESTEER_`` + its name, and a name of the file; ``DATABASE_URL`` is also read.
    """

    model_config = SettingsConfigDict(env_prefix="CORESTEER_", frozen=True, extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where values come from, the first first; the file only for accounts that may read its passwords."""
        file = CONFIG_FILE if os.access(CONFIG_FILE, os.R_OK) else None
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    state_dir: Path = Field(default_factory=default_state_dir)
    host: str = "127.0.0.1"
    port: int = Field(default=8420, ge=1, le=65535)
    database_url: str | None = Field(
        default=None, validation_alias=AliasChoices("database_url", "DATABASE_URL", "CORESTEER_DATABASE_URL")
    )
    owner_url: str | None = None
    """The database's address for the role that owns the tables; only ``coresteer migrate`` uses it."""
    pg_bin: Path | None = Field(default=None, validation_alias=AliasChoices("pg_bin", "PG_BIN", "CORESTEER_PG_BIN"))
    """Folder with the machine's own postgres and initdb, instead of the packaged ones."""
    backup_dir: Path | None = None
    """Where ``coresteer up`` archives its database's write-ahead log, and ``coresteer backup`` puts backups."""
    agent_root: Path | None = None
    """A captured tree that the local agent of ``coresteer up`` works on instead of this machine."""
    chunk_seconds: int = Field(default=60, ge=1, le=60)
    retention_days: int = Field(default=7, ge=1)
    rollup_retention_days: int = Field(default=400, ge=1)
    retention_bytes: int = Field(default=20 * 1024**3, ge=1024**2)
    key_rotation_days: int = Field(default=30, ge=1)
    """Age at which an agent's key is replaced, over the agent's connection."""
    key_expiry_days: int = Field(default=90, ge=1)
    """Days after which an agent's key that is not used expires."""
    frontend_dir: Path = _installed_or("page", REPOSITORY / "frontend" / "dist")
    migrations_dir: Path = _installed_or("migrations", REPOSITORY / "migrations")
    public_url: str | None = None
    """By which address others reach the backend, such as https://coresteer.example: a TLS proxy's or its own."""
    host_names: str = ""
    """More host names that requests may name, separated by commas, such as those by which agents reach a backend."""
    tls: Literal["auto"] | None = None
    """auto: TLS with a certificate of a private authority made for this installation."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    """PEM files of the certificate chain, and of its key."""
    tls_client_ca: Path | None = None
    """PEM file of the authorities that sign client certificates; then every client must have one."""
    trusted_proxies: str = "127.0.0.1"
    """Addresses or networks, separated by commas, of the proxies whose X-Forwarded-For and -Proto headers are used."""
    audit_export: str | None = None
    """Where every entry of the audit log is also written as a line of JSON: a file, or ``syslog``."""
    log_format: LogFormat = "text"
    """Lines for people, or an object of JSON each with time, level, logger, message, and the request or node."""
    nats_url: str | None = None
    """Addresses of NATS servers, separated by commas: over them, backends of a database reach each other's agents."""
    oidc_issuer: str | None = None
    """With which people sign in by OpenID Connect, as it writes itself: https://login.example.com/realms/ops."""
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    """Name and secret of Coresteer at the issuer."""
    oidc_scopes: str = "openid profile email"
    oidc_groups_claim: str = "groups"
    """The claim of the ID token, or else of the userinfo, with the user's groups."""
    oidc_roles: dict[str, str] = Field(default={})
    """Roles by group: viewer, admin, operator or operator:role=db,rack=r0*; the group * is everybody."""
    supervised: bool = False
    """Set by ``coresteer up`` for its backend, because it announces address and set-up link itself."""

    @field_validator("host")
    @classmethod
    def _named_host(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must name an address; 127.0.0.1 is this machine alone")
        return value.strip()

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, value: str | None) -> str | None:
        """Validate the scheme. http is allowed on loopback only, because secrets cross it."""
        if not value:
            return None
        url = urlsplit(value)
        if not url.hostname or not (url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname))):
            raise ValueError("must begin with https://, because secrets go over it")
        return value

    @field_validator("oidc_roles")
    @classmethod
    def _roles(cls, value: dict[str, str]) -> dict[str, str]:
        for group, role in value.items():
            if not _MAPPED_ROLE.fullmatch(role):
                raise ValueError(f"{group}: {role!r} must be viewer, operator, operator:role=db,rack=r0* or admin")
        return value

    @model_validator(mode="after")
    def _complete_issuer(self) -> Self:
        if self.oidc_issuer and not (self.oidc_client_id and self.oidc_client_secret and self.oidc_roles):
            raise ValueError(
                "CORESTEER_OIDC_ISSUER also needs CORESTEER_OIDC_CLIENT_ID, CORESTEER_OIDC_CLIENT_SECRET and "
                "CORESTEER_OIDC_ROLES"
            )
        return self

    @field_validator("public_url")
    @classmethod
    def _origin(cls, value: str | None) -> str | None:
        """Validate scheme, host and port. http is allowed on loopback only, because passwords and keys cross it."""
        if not value:
            return None
        url = urlsplit(value.strip().lower())
        if url.scheme not in ("http", "https") or not url.hostname or url.path not in ("", "/") or "@" in url.netloc:
            raise ValueError("must be an address without a path, such as https://coresteer.example")
        if url.query or url.fragment or url.port == 0:
            raise ValueError("must be an address without a path, such as https://coresteer.example")
        if url.scheme == "http" and not is_loopback(url.hostname):
            raise ValueError("must begin with https://, because passwords and agents' keys go over it")
        return f"{url.scheme}://{url.netloc}"

    @field_validator("host_names")
    @classmethod
    def _host_names(cls, value: str) -> str:
        names = [name.strip().lower() for name in value.split(",")] if value.strip() else []
        if not all(_HOST_NAME.fullmatch(name) for name in names):
            raise ValueError("must be host names without scheme and port, such as one.example,two.example")
        return ",".join(names)

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        for each in value.split(","):
            try:
                ipaddress.ip_network(each.strip())
            except ValueError as error:
                raise ValueError(f"must be addresses or networks such as 10.0.0.5,10.1.0.0/16: {error}") from None
        return value

    @field_validator("nats_url")
    @classmethod
    def _nats_urls(cls, value: str | None) -> str | None:
        """Validate scheme and host of each address; the message has no credentials in it."""
        if not value:
            return None
        for each in value.split(","):
            url = urlsplit(each)
            if url.scheme not in ("nats", "tls") or not url.hostname or url.path not in ("", "/"):
                raise ValueError("must be addresses such as tls://user:password@host:4222, separated by commas")
        return value

    @field_validator("database_url", "owner_url")
    @classmethod
    def _libpq_url(cls, value: str | None) -> str | None:
        """Convert to libpq's form; SQLAlchemy's driver suffix is accepted."""
        if not value:
            return None
        scheme, separator, rest = value.partition("://")
        if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
            raise ValueError("must be a PostgreSQL address such as postgresql://user:password@host:5432/coresteer")
        url = f"postgresql://{rest}"
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ValueError(f"libpq cannot read it: {str(error).strip()}") from None
        return url

    def as_environment(self) -> dict[str, str]:
        """Return the variables that set the same in a process that may not read CONFIG_FILE; all but owner_url."""
        values = {name: getattr(self, name) for name in self.model_fields_set - {"owner_url"}}
        return {
            f"CORESTEER_{name.upper()}": value.get_secret_value()
            if isinstance(value, SecretStr)
            else json.dumps(value)
            if isinstance(value, dict)
            else str(value)
            for name, value in values.items()
            if value is not None
        }

    @property
    def public_address(self) -> str:
        """Return the backend's address for people and agents: the configured public one, else its own."""
        return self.public_url or self.address

    @property
    def answered_names(self) -> frozenset[str]:
        """Return the host names that requests may name; addresses are allowed besides."""
        own = urlsplit(self.public_url).hostname if self.public_url else self.host.lower()
        return frozenset({"localhost", own or "", *self.host_names.split(",")} - {""})

    @property
    def uses_tls(self) -> bool:
        """Return whether the backend's own socket uses TLS."""
        return self.tls is not None or self.tls_cert is not None

    @property
    def ca_path(self) -> Path:
        """Return the path of the installation's own certificate authority, which `--tls auto` creates."""
        return self.state_dir / "tls" / "ca.pem"

    @property
    def ca_fingerprint(self) -> str | None:
        """Return the SHA-256 of the authority by which the backend serves in hexadecimal, None without `--tls auto`."""
        if self.tls != "auto" or not self.ca_path.exists():
            return None
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.ca_path.read_text())).hexdigest()

    @property
    def is_open_without_proxy(self) -> bool:
        """Return whether other machines could reach the backend over plain HTTP without a configured proxy."""
        return self.public_url is None and not self.uses_tls and not is_loopback(self.host)

    @property
    def address(self) -> str:
        """Return the backend's address for a browser on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        scheme = "https" if self.uses_tls else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
