"""Schedule of episodes: which node holds a policy out when, derived from a seed alone. Pure.

Time is divided, for each policy, version and node, into periods of block ÷ holdout share. Each has one episode of two
blocks at a random moment, and a fair coin decides which of its blocks is the holdout. Both follow from (seed, policy,
version, node, period), so a restarted backend continues, and nobody has to store what comes next. Episodes that
coincide on a node, or would cover too much of a failure domain, do not take place; that is decided before the coin.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coresteer.proof.washout import shortest_washout

BLOCKS_PER_EPISODE = 2
BUCKETS = 10
"""Parts of a block in which the decay after a switch is measured."""
MAX_SHARE = 0.2
"""Largest share of holdout time: two of the five blocks of a period belong to its episode."""


class Subject(NamedTuple):
    """A policy's version on a node."""

    policy_id: int
    version: int
    node_id: int


@dataclass(frozen=True)
class Design:
    """How a policy is held out. share: of node-time, 0 to MAX_SHARE; 0 never. max_domain_share: of a failure domain's
    nodes, and of those of them that the policy is for, that may have an episode at the same time; at least one node.
    """

    block_s: float
    share: float
    max_domain_share: float

    @property
    def bucket_s(self) -> float:
        """Return the length of the parts of a block; a whole number of minutes for blocks of 10, 20, … minutes."""
        return self.block_s / BUCKETS

    @property
    def late_s(self) -> float:
        """Return by how much a switch may be told late, so that there is time to make it in any wash-out."""
        return shortest_washout(self.bucket_s, BUCKETS) / 2

    @property
    def episode_s(self) -> float:
        """Return the length of an episode."""
        return BLOCKS_PER_EPISODE * self.block_s

    @property
    def period_s(self) -> float:
        """Return the time in which each node has one episode. Raises ZeroDivisionError for a share of 0."""
        return max(self.block_s / self.share, self.block_s / MAX_SHARE)


@dataclass(frozen=True)
class Episode:
    """One planned episode. start_s: Unix time; holdout_first: the coin."""

    subject: Subject
    period: int
    start_s: float
    block_s: float
    holdout_first: bool

    @property
    def end_s(self) -> float:
        """Return the Unix time at which the second block ends."""
        return self.start_s + BLOCKS_PER_EPISODE * self.block_s


def in_holdout(start_s: float, block_s: float, holdout_first: bool, now_s: float) -> bool:
    """Return whether an episode's node holds the policy out at this time."""
    block = (now_s - start_s) // block_s
    return block == (0 if holdout_first else 1)


def planned(seed: int, subject: Subject, design: Design, now_s: float) -> Episode | None:
    """Return the subject's episode of the present period; None for a share of 0. It begins on a whole bucket."""
    if design.share <= 0:
        return None
    period_s = design.period_s
    period = int(now_s // period_s)
    moment, coin = _random(seed, subject, period)
    latest = period_s - design.episode_s - design.bucket_s  # leaves room for rounding up
    start_s = period * period_s + moment * latest
    start_s = -(-start_s // design.bucket_s) * design.bucket_s
    return Episode(subject, period, start_s, design.block_s, coin)


def _random(seed: int, subject: Subject, period: int) -> tuple[float, bool]:
    """Return a number in [0, 1) and a fair coin, which do not depend on each other."""
    digest = hashlib.blake2b(struct.pack("<5q", seed, *subject, period), digest_size=9).digest()
    return int.from_bytes(digest[:8], "little") / 2**64, bool(digest[8] & 1)


class Candidate(NamedTuple):
    """A subject that may have an episode. domain: its failure domain, any hashable name."""

    subject: Subject
    design: Design
    domain: str


def begin_now(
    seed: int,
    candidates: Sequence[Candidate],
    *,
    running: Iterable[int],
    nodes_by_domain: Mapping[str, Sequence[int]],
    own_nodes: Mapping[tuple[int, str], Collection[int]],
    begun: frozenset[tuple[Subject, int]],
    now_s: float,
) -> list[Episode]:
    """Return the episodes that begin now: those planned for now, or a little earlier, that may take place.

    running: nodes that have an episode. nodes_by_domain: every node of each failure domain. own_nodes: those of a
    policy, by its id and their domain. begun: subjects and periods whose episode has begun before. Of several on one
    node or in one domain, chance decides which come first. One that would begin too late does not take place, whatever
    its coin is: only those that begin with the holdout would have to be switched.
    """
    busy = set(running)
    domains: dict[int, list[str]] = {}
    for domain, nodes in nodes_by_domain.items():
        for node_id in nodes:
            domains.setdefault(node_id, []).append(domain)
    in_use = Counter(domain for node_id in busy for domain in domains.get(node_id, ()))
    due = []
    for candidate in candidates:
        episode = planned(seed, candidate.subject, candidate.design, now_s)
        if episode is not None and episode.start_s <= now_s <= episode.start_s + candidate.design.late_s:
            due.append((candidate, episode))
    found = []
    for candidate, episode in sorted(due, key=lambda pair: _order(seed, pair[0], now_s)):
        node_id, share = candidate.subject.node_id, candidate.design.max_domain_share
        own = own_nodes.get((candidate.subject.policy_id, candidate.domain), ())
        if (
            (candidate.subject, episode.period) in begun
            or node_id in busy
            or in_use[candidate.domain] >= _allowed(share, len(nodes_by_domain.get(candidate.domain, ())))
            or len(busy.intersection(own)) >= _allowed(share, len(own))
        ):
            continue
        busy.add(node_id)
        in_use.update(domains.get(node_id, ()))
        found.append(episode)
    return found


def _allowed(share: float, nodes: int) -> int:
    """Return how many of these nodes may have an episode at the same time."""
    return max(1, int(share * nodes))


def _order(seed: int, candidate: Candidate, now_s: float) -> float:
    """Return a random rank, new in each bucket, so that no node or policy always comes first."""
    return _random(~seed, candidate.subject, int(now_s // candidate.design.bucket_s))[0]
