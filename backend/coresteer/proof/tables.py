"""Tables of the proof of policies: versions under proof, episodes, their blocks, and sums over episodes."""

from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, BigInteger, DateTime, Float, ForeignKey, ForeignKeyConstraint, Identity, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class ProofFleetRow(Base):
    """The one row about the fleet: the seed of the schedule, and who paused all proofs when."""

    __tablename__ = "proof_fleet"

    id: Mapped[int] = mapped_column(primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    paused_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    paused_by: Mapped[str | None] = mapped_column(Text)


class ProofVersionRow(Base):
    """A policy's version under proof. rho, washout_s: as in confidence_sequence and washout, fixed in advance.

    washout_at: when the wash-out was chosen last. findings: by metric, a finding and since when.
    """

    __tablename__ = "proof_version"

    policy_id: Mapped[int] = mapped_column(ForeignKey("policy.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    rho: Mapped[float]
    washout_s: Mapped[float]
    washout_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    findings: Mapped[dict[str, dict[str, str]]] = mapped_column(JSONB, default=dict)
    rolled_back_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class ProofEpisodeRow(Base):
    """An episode of one node: two blocks. differences: log(enforced / holdout) by metric, once it is included.

    A guardrail that one block lacks has 0 under missing_in() in its place. node_id: NULL once the node is deleted.
    labels: of the node, at the beginning. reason: an Exclusion; block: the Block for which it is excluded, NULL for
    both or neither. counted: in ProofNodeRow or ProofExcludedRow.
    """

    __tablename__ = "proof_episode"
    __table_args__ = (
        ForeignKeyConstraint(["policy_id", "version"], ["proof_version.policy_id", "proof_version.version"]),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    policy_id: Mapped[int]
    version: Mapped[int]
    node_id: Mapped[int | None] = mapped_column(ForeignKey("node.id"))
    period: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    block_s: Mapped[float]
    washout_s: Mapped[float]
    holdout_first: Mapped[bool]
    labels: Mapped[dict[str, str]] = mapped_column(JSONB)
    state: Mapped[str] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text)
    block: Mapped[str | None] = mapped_column(Text)
    counted: Mapped[bool] = mapped_column(default=False)
    differences: Mapped[dict[str, float]] = mapped_column(JSONB, default=dict)
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class ProofNodeRow(Base):
    """Number of included episodes of a node, which outlive the episodes and the node."""

    __tablename__ = "proof_node"

    policy_id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[int] = mapped_column(primary_key=True)
    episodes: Mapped[int] = mapped_column(BigInteger)


class ProofExcludedRow(Base):
    """Number of excluded episodes by reason and block, which outlive the episodes. block: empty for both or neither."""

    __tablename__ = "proof_excluded"

    policy_id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(Text, primary_key=True)
    block: Mapped[str] = mapped_column(Text, primary_key=True)
    episodes: Mapped[int] = mapped_column(BigInteger)


class ProofBlockRow(Base):
    """One block of an included episode. figures: by metric, after the wash-out.

    parts: logarithms of the primary metric over the block. factors: what
    else could explain a difference, such as governor, kernel and the other policies in force.
    """

    __tablename__ = "proof_block"

    episode_id: Mapped[int] = mapped_column(ForeignKey("proof_episode.id"), primary_key=True)
    holdout: Mapped[bool] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    figures: Mapped[dict[str, float]] = mapped_column(JSONB)
    parts: Mapped[list[float]] = mapped_column(ARRAY(Float))
    factors: Mapped[dict[str, Any]] = mapped_column(JSONB)  # Any: JSON of facts of any type


class ProofSumRow(Base):
    """Number, sum and sum of squares of the differences of episodes, by metric (or missing_in()) and group of nodes.

    label and value are empty for all nodes, whose episodes are summed by the time until which they ended; a version has
    a few hundred such times, however old it is. Groups, of the primary metric only, have the one time at which the
    version's proof began.
    """

    __tablename__ = "proof_sum"

    policy_id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(Text, primary_key=True)
    label: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str] = mapped_column(Text, primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    episodes: Mapped[int] = mapped_column(BigInteger)
    total: Mapped[float]
    squares: Mapped[float]
