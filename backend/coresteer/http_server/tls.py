"""TLS on the backend's own socket, with certificates from files or of a private authority."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path

from coresteer.config import Config
from coresteer.listen import ListenError

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


def tls_context(config: Config) -> ssl.SSLContext | None:
    """Return the context of TLS connections, None where the configuration has no TLS. Raises ListenError."""
    if not config.uses_tls:
        if config.tls_client_ca or config.tls_key:
            raise ListenError(
                "Client certificates and a key need TLS: add --tls-cert and --tls-key, or --tls auto "
                "(CORESTEER_TLS_CERT and CORESTEER_TLS_KEY, or CORESTEER_TLS=auto)."
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(context, config)
    if config.tls_client_ca is not None:
        try:
            context.load_verify_locations(config.tls_client_ca)
        except OSError as error:
            raise ListenError(
                f"The authority of client certificates in {config.tls_client_ca} cannot be read: {_reason(error)}. "
                "It must be a file with one or more certificates in PEM format."
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def note_authority(config: Config) -> None:
    """Note beside the private authority whether the backend serves with it, for commands (`as_served`)."""
    with suppress(OSError):  # under `coresteer up` as root, which has noted it, the backend's account may not
        if config.tls == "auto":
            _unused(config).unlink(missing_ok=True)
        elif config.ca_path.exists():
            _unused(config).touch()


def as_served(config: Config) -> Config:
    """Return a command's configuration, with `--tls auto` if the last backend may have been started with it."""
    return config if config.uses_tls or _unused(config).exists() else config.model_copy(update={"tls": "auto"})


def _unused(config: Config) -> Path:
    return config.ca_path.with_name("unused")


def _load_certificate(context: ssl.SSLContext, config: Config) -> None:
    if config.tls == "auto":
        return _load_own(context, config)
    if config.tls_key is None:
        raise ListenError("--tls-cert needs --tls-key (CORESTEER_TLS_KEY), the file with the certificate's key.")
    try:
        context.load_cert_chain(config.tls_cert or "", config.tls_key)
    except OSError as error:
        raise ListenError(
            f"The certificate in {config.tls_cert} and its key in {config.tls_key} cannot be used: {_reason(error)}. "
            "Both must be readable PEM files that belong together."
        ) from None


def _load_own(context: ssl.SSLContext, config: Config) -> None:
    if config.tls_cert is not None:
        raise ListenError(
            "--tls auto makes its own certificate; leave out --tls-cert (CORESTEER_TLS_CERT), or to serve with that "
            "one, --tls auto (CORESTEER_TLS)."
        )
    from coresteer.http_server.private_ca import ensure_certificate  # noqa: PLC0415 - 10 MiB that others need not spend

    names = {"127.0.0.1", "::1", socket.gethostname(), config.host, *config.answered_names} - {*_WILDCARDS}
    try:
        context.load_cert_chain(*ensure_certificate(config.ca_path.parent, names))
    except (OSError, ValueError) as error:
        raise ListenError(
            f"The installation's certificates in {config.ca_path.parent} cannot be made or read: {_reason(error)}. "
            "If they are damaged, move the folder away; agents must then enrol again, because the authority changes."
        ) from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
