"""Backtest: evaluate a policy over recorded views of a node, as if it had been enforced."""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.settings import parse_setting
from coresteer_core.settings.overlay import overlay


class Backtest(Struct, frozen=True):
    """Result of a backtest. evaluations: one per view; moves: number of settings that would have been written."""

    evaluations: list[Evaluation]
    moves: int


def backtest(views: Iterable[View], policy: PolicyInForce) -> Backtest:
    """Return the evaluations of one policy at each recorded view, as if it had been enforced."""
    evaluations = [evaluation for (evaluation,) in simulate_enforcement(views, [policy])]
    return Backtest(evaluations, sum(len(evaluation.actions) for evaluation in evaluations))


def simulate_enforcement(views: Iterable[View], policies: list[PolicyInForce]) -> Iterator[list[Evaluation]]:
    """Yield the evaluations of policies at each recorded view, with the effect of all earlier actions.

    The values that the policies set overlay the later views, and the load that belongs to them moves along; recorded
    changes of these settings are hidden. Every write succeeds.
    """
    policies = [replace(policy, mode=Mode.ENFORCE) for policy in policies]
    memory = EngineMemory()
    settings: dict[str, str] = {}
    for recorded in views:
        view = overlay(recorded, settings)
        evaluations, memory = evaluate_round(view, policies, memory)
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
