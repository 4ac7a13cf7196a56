"""What a policy would have done over recorded time, as if it had been enforced."""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine import step
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.settings import parse_setting
from coresteer_core.settings.overlay import overlay


class Backtest(Struct, frozen=True):
    """evaluations: one for each view; moves: how many settings were written in all."""

    evaluations: list[Evaluation]
    moves: int


def replay(views: Iterable[View], policy: PolicyInForce) -> Backtest:
    """What a policy would have evaluated at each of the views, in their order."""
    evaluations = [evaluation for (evaluation,) in enforced(views, [policy])]
    return Backtest(evaluations, sum(len(evaluation.actions) for evaluation in evaluations))


def enforced(views: Iterable[View], policies: list[PolicyInForce]) -> Iterator[list[Evaluation]]:
    """The evaluations of policies at each of some views, with every action carried out and seen from then on.

    What the policies set overlays the later views, and the load that belongs to it moves along; what happened to these
    settings in the recording does not show. Every write succeeds.
    """
    policies = [replace(policy, mode=Mode.ENFORCE) for policy in policies]
    memory = EngineMemory()
    settings: dict[str, str] = {}
    for recorded in views:
        view = overlay(recorded, settings)
        evaluations, memory = step(view, policies, memory)
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, view.time_s)
                settings[action.key] = action.becomes
        settings = {
            key: value
            for key, value in settings.items()
            if (pid := parse_setting(key).process) is None or recorded.task(pid) or key in memory.holdings
        }
        yield evaluations
