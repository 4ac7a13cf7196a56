"""The parts of the application that connections to agents use."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coresteer.auth.trust import TrustWatch
from coresteer.bus import Bus
from coresteer.classes.store import ClassReportStore
from coresteer.experiments.runner import ExperimentRunner
from coresteer.gateway.admission import Admission
from coresteer.gateway.batch_loader import BatchLoader
from coresteer.gateway.keys import KeyRotation
from coresteer.gateway.recorder import Recorder
from coresteer.live.hub import LiveHub
from coresteer.nodes import repository
from coresteer.policies.publisher import PolicyPublisher
from coresteer.policies.snapshot_store import SnapshotStore
from coresteer.presence.connections import Connections
from coresteer.presence.forwarding import Forwarding
from coresteer.presence.interest import Interest
from coresteer.presence.locations import Announcement
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.service import Presence
from coresteer.quotas import Quotas
from coresteer.telemetry.service import Ingest
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.protocol import DecisionMessage, Extend, StoppedMessage


@dataclass(frozen=True)
class GatewayContext:
    """The parts of the application that a connection to an agent uses; stored in app.state.agents.

    agents: identities by the hash of their key. epochs: of connections that begin. state_queries: by node, messages
    after Welcome that make its agent report its open changes.
    """

    agents: BatchLoader[bytes, repository.AgentIdentity]
    trust: TrustWatch
    keys: KeyRotation
    epochs: BatchLoader[Announcement, int]
    presence: Presence
    state_queries: BatchLoader[int, list[Extend]]
    admission: Admission
    bus: Bus
    connections: Connections
    registry: NodeRegistry
    interest: Interest
    forwarding: Forwarding
    recorder: Recorder
    quotas: Quotas
    ingest: Ingest
    live: LiveHub
    snapshots: SnapshotStore
    class_reports: ClassReportStore
    publisher: PolicyPublisher
    runner: ExperimentRunner
    record_stopped: Callable[[int, StoppedMessage], Awaitable[None]]
    record_change_report: Callable[[int, ChangeMessage], Awaitable[None]]
    record_decision: Callable[[int, DecisionMessage], Awaitable[None]]
