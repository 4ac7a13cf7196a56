"""User ids for the children of `coresteer up` as root, without an account that somebody would have to create."""

import os
import pwd
from itertools import islice

from coresteer.process import SystemAccount

_UNUSED = range(60_842, 61_184)  # no distribution and no part of systemd assigns these: https://systemd.io/UIDS-GIDS


def unprivileged_accounts() -> tuple[SystemAccount | None, SystemAccount | None]:
    """Return the accounts of the database and of the backend; None, the present user, unless that is root.

    They are the first two of a range of user ids that belongs to nobody, with the group ids of the same numbers.
    """
    if os.geteuid() != 0:
        return None, None
    database, backend = islice((uid for uid in _UNUSED if not _has_name(uid)), 2)
    return SystemAccount(database, database), SystemAccount(backend, backend)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
