"""Randomness that is the same for the same words."""

import random


def seeded(*words: object) -> random.Random:
    """A generator that depends on nothing but the words."""
    return random.Random("/".join(str(word) for word in words))  # noqa: S311 - made-up data, no secret
