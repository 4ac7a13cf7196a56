"""What is in the database that commit 602788d left behind, in the words of that commit."""

CHANGES = {
    ("rolled_back", "user"): 68, ("rolled_back", "timeout"): 1, ("rolled_back", "guardrail"): 1,
    ("rolled_back", "lost_backend"): 1, ("rolled_back", "agent_restart"): 1, ("failed", "error"): 4,
    ("confirmed", None): 5, ("unconfirmed", None): 1, ("applying", None): 1,
}  # fmt: skip
EXPERIMENTS = {
    "node against itself": ("aa", "done", 12), "two places": ("ab", "done", 24), "sweep": ("sweep", "done", 21),
    "policy": ("ab", "done", 24), "irqbalance": ("ab", "done", 24), "tcp-stream": ("aa", "done", 12),
    "udp-flood": ("aa", "done", 12), "iperf3": ("aa", "done", 12), "classes": ("aa", "done", 12),
    "observe": ("aa", "done", 12), "command": ("aa", "done", 12), "methods": ("sweep", "done", 27),
    "template m-n": ("sweep", "done", 24),
    "template few-interrupt-cores": ("ab", "done", 24), "template rx-usecs": ("sweep", "failed", 0),
    "template service-classes": ("ab", "done", 24), "failed": ("aa", "failed", 0), "stopped": ("aa", "stopped", 0),
    "cancelled": ("aa", "cancelled", 0), "running": ("aa", "running", 0), "queued": ("aa", "queued", 0),
}  # fmt: skip
"""By name: kind, state and runs that count."""
KINDS = ("irq-spread", "network-process", "coalescing", "service-class")
MODES = ("observe", "recommend", "enforce")
VALUES = {
    "irq-spread": {("numa", "local"), ("numa", "any"), ("smt", "last"), ("smt", "any")},
    "network-process": {("rings", reach) for reach in ("cpu", "smt", "l2", "l3", "numa")}
    | {("smt", "first"), ("smt", "last")},
    "coalescing": {("adaptive", "leave"), ("adaptive", "compare"), ("adaptive", "take_over")},
    "service-class": {("weights", which) for which in ("nice", "cpu", "io")},
}
"""By type of policy: what its fields are named in its versions."""
ROLLOUTS = {"canary": 1, "batches": 1, "done": 1, "stopped": 1, "undone": 2}
AUDIT_ENTRIES = 503
AUDITED = {
    "change.apply", "change.applying", "change.confirm", "change.confirmed", "change.extend", "change.failed",
    "change.roll_back", "change.rolled_back", "change.unconfirmed", "enrolment-token.create", "experiment.cancel",
    "experiment.end", "experiment.start", "login", "logout", "node.delete", "node.enrol", "node.labels",
    "node.re-enrol", "node.revoke_key", "policy.create", "policy.delete", "policy.disable", "policy.enable",
    "policy.version",
    "report.share", "report.unshare", "rollout.advance", "rollout.done", "rollout.start", "rollout.stop",
    "rollout.undo", "setup", "token.create", "token.delete", "user.create", "user.update",
}  # fmt: skip
