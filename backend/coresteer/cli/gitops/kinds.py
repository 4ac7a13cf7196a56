"""The kinds of resources, in the order in which they are created and changed."""

from coresteer.cli.gitops.documents import AlertRuleDocument, PolicyDocument
from coresteer.cli.gitops.policies import PolicyKind
from coresteer.cli.gitops.resources import Kind

KINDS: tuple[Kind, ...] = (
    PolicyKind(PolicyDocument, "/policies", "policies"),
    Kind(AlertRuleDocument, "/alert-rules", "alert-rules"),
)
