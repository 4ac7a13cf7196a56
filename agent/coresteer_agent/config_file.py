"""Reads the agent's configuration file, /etc/coresteer/agent.toml. Arguments and the environment go before it."""

from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.config import ConfigError

CONFIG_FILE = Path("/etc/coresteer/agent.toml")


class ConfigFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file may have; each name is that of an option of ``coresteer-agent run`` (docs/CONFIGURATION.md).

    backend: one address or several. interval: seconds between samples.
    """

    backend: str | list[str] | None = None
    insecure: bool = False
    interval: float = 1.0
    labels: dict[str, str] = {}
    load_option_ports: str = ""
    name: str | None = None
    token_file: str | None = None

    @property
    def backends(self) -> list[str]:
        """Return the addresses of the backends, none if the file names none."""
        return [self.backend] if isinstance(self.backend, str) else self.backend or []


def read_config_file(path: Path) -> ConfigFile:
    """Return the content of the file, nothing if there is none. Raises ConfigError."""
    try:
        return msgspec.toml.decode(path.read_text(), type=ConfigFile)
    except FileNotFoundError:
        return ConfigFile()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}.") from error
