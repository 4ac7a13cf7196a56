"""A sign-in at the issuer that has begun: kept by the browser in a cookie that only the backend can read or make."""

import base64
import hashlib
import secrets
from typing import Self

import msgspec
from cryptography.fernet import Fernet, InvalidToken

COOKIE = "coresteer_sign_in"
LIFE_S = 600


class PendingSignIn(msgspec.Struct, frozen=True):
    """What the issuer's answer must fit to. redirect_uri: to which it sends the browser; return_to: a path here."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    return_to: str

    @classmethod
    def begin(cls, redirect_uri: str, return_to: str) -> Self:
        """Begin a sign-in with new secrets."""
        return cls(
            secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), redirect_uri, return_to
        )


def seal(key: str, text: bytes) -> bytes:
    """Encrypt with a key that is derived from a secret."""
    return _cipher(key).encrypt(text)


def unseal(key: str, sealed: bytes, life_s: int | None = None) -> bytes | None:
    """Decrypt what seal() returned; None if the key is another one, or it is older than life_s."""
    try:
        return _cipher(key).decrypt(sealed, life_s)
    except InvalidToken:
        return None


def _cipher(key: str) -> Fernet:
    # both secrets are random, so one round of SHA-256 is enough
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"coresteer sso\0" + key.encode()).digest()))
