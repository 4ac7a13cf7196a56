"""A certificate authority of this installation alone, and the backend's certificate by it (`serve --tls auto`)."""

import fcntl
import ipaddress
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 20 * 365
"""Longer than an installation lives: agents trust this authority and no other, so its end would cut them all off."""
CERTIFICATE_DAYS = 397
"""The longest that browsers accept."""
RENEW_DAYS = 30
_BACKDATED = timedelta(days=1)
"""For nodes whose clock is behind."""


def ensure_certificate(folder: Path, names: Iterable[str]) -> tuple[Path, Path]:
    """Return the backend's certificate for these names and its key, made where they are missing or about to expire.

    folder: holds ca.pem, which is public, and everything else only for its owner. Raises OSError and ValueError.
    """
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    ca_path, ca_key_path = folder / "ca.pem", folder / "ca.key"
    path, key_path = folder / "server.pem", folder / "server.key"
    wanted = _alternative_names(names)
    if not _is_good(path, key_path, wanted, ca_path):
        with os.fdopen(os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other workers may renew it at the same time
            if not ca_path.exists():
                _make_ca(ca_path, ca_key_path)
            if not _is_good(path, key_path, wanted, ca_path):
                _issue(path, key_path, wanted, ca_path, ca_key_path)
    return path, key_path


def _make_ca(path: Path, key_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Coresteer installation")])
    certificate = (
        _builder(name, name, key, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, SHA256())
    )
    _write_key(key_path, key)
    _write(path, certificate.public_bytes(Encoding.PEM), 0o644)


def _issue(path: Path, key_path: Path, names: list[x509.GeneralName], ca_path: Path, ca_key_path: Path) -> None:
    ca = x509.load_pem_x509_certificate(ca_path.read_bytes())
    ca_key = load_pem_private_key(ca_key_path.read_bytes(), None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca_key.public_key() != ca.public_key():
        raise ValueError(f"{ca_key_path} is not the key of {ca_path}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Coresteer backend")])
    certificate = (
        _builder(name, ca.subject, key, CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, SHA256())
    )
    _write_key(key_path, key)
    _write(path, certificate.public_bytes(Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Iterable[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in sorted(set(names)):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _is_good(path: Path, key_path: Path, names: list[x509.GeneralName], ca_path: Path) -> bool:
    """Return whether a certificate by this authority for these names is there with its key, and lasts."""
    if not path.exists() or not key_path.exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=RENEW_DAYS)
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca_path.read_bytes()))
        key = load_pem_private_key(key_path.read_bytes(), None)
    except Exception:  # another authority's, or a damaged key; cryptography has several errors for them
        return False
    return lasts and list(found) == names and key.public_key() == certificate.public_key()


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, readable as mode says from its first byte."""
    new = path.with_suffix(f"{path.suffix}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    new.replace(path)
