"""Passwords and tokens: generation, and the hashes that are stored."""

import asyncio
import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zxcvbn import zxcvbn

from coresteer.errors import Invalid

SESSION_COOKIE = "coresteer_session"
API_TOKEN_PREFIX = "cst_"  # noqa: S105 - a prefix that lets people and scanners recognise a token
ENROLMENT_TOKEN_PREFIX = "cse_"  # noqa: S105 - as above

# OWASP's password storage advice for scrypt with 32 MiB: N=2^15, r=8, p=3.
_N, _R, _P = 2**15, 8, 3

_LEAST_SCORE = 2
"""zxcvbn's score of a password that needs more than a million guesses (Wheeler, USENIX Security 2016)."""
_MAX_JUDGED = 24
"""Characters that zxcvbn judges: for these it takes at most as long as scrypt, for 200 of them a hundred times that."""

# Each computation takes 32 MiB and some 0.2 s of a core: a storm of logins must not take the machine.
_workers = ThreadPoolExecutor(2, "scrypt")


@dataclass(frozen=True)
class PasswordHash:
    """scrypt's result, salt and parameters (RFC 7914)."""

    hash: bytes
    salt: bytes
    n: int
    r: int
    p: int


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # maxmem: OpenSSL's own limit is just below what N=2^15, r=8 takes
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=32, maxmem=256 * n * r)


def _new_hash(password: str) -> PasswordHash:
    if zxcvbn(password[:_MAX_JUDGED], user_inputs=["coresteer"])["score"] < _LEAST_SCORE:
        sentence = "This password is among the first that are guessed. Use several unrelated words."
        raise Invalid(sentence, field="password")
    salt = secrets.token_bytes(16)
    return PasswordHash(_scrypt(password, salt, _N, _R, _P), salt, _N, _R, _P)


async def _in_worker(*arguments: *tuple[str, bytes, int, int, int]) -> bytes:
    return await asyncio.get_running_loop().run_in_executor(_workers, _scrypt, *arguments)


async def hash_password(password: str) -> PasswordHash:
    """Return the scrypt hash of a new password with a new salt. Raises Invalid for one that is easy to guess."""
    return await asyncio.get_running_loop().run_in_executor(_workers, _new_hash, password)


async def password_matches(password: str, stored: PasswordHash | None) -> bool:
    """Return whether a password matches the stored hash; with None, for an unknown user, it takes the same time."""
    against = stored or PasswordHash(b"", bytes(16), _N, _R, _P)
    computed = await _in_worker(password, against.salt, against.n, against.r, against.p)
    return secrets.compare_digest(computed, against.hash)


def new_token(prefix: str = "") -> str:
    """Return a new secret token: the prefix and 256 random bits, safe in URLs."""
    return prefix + secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """Return the hash under which a token is stored. Tokens are random, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode()).digest()
