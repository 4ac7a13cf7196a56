"""Which policies may be held out on which nodes. Pure."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from coresteer.policies.in_force import EnabledPolicy
from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.selector import NodeAttributes, matches
from coresteer.proof.schedule import Candidate, Design, Subject
from coresteer_core.policies.base import Mode


@dataclass(frozen=True)
class Candidates:
    """Subjects that may have episodes, the failure domains of all nodes, and the bodies of the versions.

    own_nodes: those that may have episodes of a policy, by its id and their failure domain.
    """

    subjects: dict[Subject, Candidate]
    nodes_by_domain: dict[str, list[int]]
    own_nodes: dict[tuple[int, str], set[int]]
    bodies: dict[tuple[int, int], PolicyBody]
    labels: dict[int, dict[str, str]]
    """Labels of each node."""
    in_rollout: frozenset[int] = frozenset()
    """Nodes of rollouts in progress, which have no episodes: their figures decide on the rollout's next stage."""


NOBODY = Candidates({}, {}, {}, {}, {})


def design_of(settings: ProofSettings) -> Design:
    """Return how a version is held out."""
    return Design(float(settings.block_s), settings.holdout_percent / 100, settings.domain_percent / 100)


def find_candidates(
    policies: Collection[EnabledPolicy], nodes: Sequence[NodeAttributes], controllable: Collection[int]
) -> Candidates:
    """Return the subjects of policies that enforce. controllable: nodes whose agents may write settings."""
    in_rollout = frozenset(chain(*(policy.partial.compared for policy in policies if policy.partial is not None)))
    subjects: dict[Subject, Candidate] = {}
    bodies: dict[tuple[int, int], PolicyBody] = {}
    own_nodes: dict[tuple[int, str], set[int]] = defaultdict(set)
    domain_labels: set[str] = set()
    for policy in policies:
        for node in nodes:
            version = policy.version_on(node.node_id)
            if version is None or node.node_id not in controllable or node.node_id in in_rollout:
                continue
            body = policy.bodies[version]
            if body.mode is not Mode.ENFORCE or not body.proof.holdout_percent or not matches(body.selector, node):
                continue
            subject = Subject(policy.policy_id, version, node.node_id)
            domain = domain_of(body.proof.domain_label, node)
            subjects[subject] = Candidate(subject, design_of(body.proof), domain)
            own_nodes[policy.policy_id, domain].add(node.node_id)
            bodies[policy.policy_id, version] = body
            domain_labels.add(body.proof.domain_label)
    domains: dict[str, list[int]] = defaultdict(list)
    for label in domain_labels:
        for node in nodes:
            domains[domain_of(label, node)].append(node.node_id)
    labels = {node.node_id: dict(node.labels) for node in nodes}
    return Candidates(subjects, dict(domains), dict(own_nodes), bodies, labels, in_rollout)


def domain_of(label: str, node: NodeAttributes) -> str:
    """Return the name of a node's failure domain: ``rack=r12``; the whole fleet without a label."""
    return f"{label}={node.labels.get(label, '')}" if label else ""
