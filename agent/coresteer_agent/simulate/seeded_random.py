"""Reproducible random numbers for simulated data."""

import random


def seeded_random(*key: object) -> random.Random:
    """Return a random generator whose sequence depends only on the key."""
    return random.Random("/".join(str(part) for part in key))  # noqa: S311 - simulated data, no secret
