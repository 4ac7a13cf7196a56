"""Sentences of the steps of a change, as agents and the backend store them in English, and in Korean.

coresteer_core/changes (machine.py, undo.py) and changes/lifecycle.py write them.
"""

STEPS = {
    "step.sent": ("Sent to the agent.", "에이전트에 보냈다."),
    "step.by_policy": ("Started by the policy on the node.", "노드의 정책이 시작했다."),
    "step.applying": ("The agent is applying the plan.", "에이전트가 계획을 적용하고 있다."),
    "step.applied": ("Applied and read back.", "적용하고 다시 읽어 확인했다."),
    "step.reverts": ("Reverts in {seconds} s unless confirmed.", "확정하지 않으면 {seconds}초 후에 되돌린다."),
    "step.extended": (
        "Extended: reverts in {seconds} s unless confirmed.",
        "연장됨: 확정하지 않으면 {seconds}초 후에 되돌린다.",
    ),
    "step.policy_confirms_guarded": (
        "Policy {policy} confirms it in {seconds} s unless a guardrail is violated.",
        "가드레일 위반이 없으면 정책 {policy:이/가} {seconds}초 후에 확정한다.",
    ),
    "step.policy_confirms": (
        "Policy {policy} confirms it in {seconds} s.",
        "정책 {policy:이/가} {seconds}초 후에 확정한다.",
    ),
    "step.policy_confirmed_guarded": (
        "Confirmed by policy {policy} after {seconds} s, without a guardrail violation.",
        "가드레일 위반 없이 정책 {policy:이/가} {seconds}초 후에 확정했다.",
    ),
    "step.policy_confirmed": (
        "Confirmed by policy {policy} after {seconds} s.",
        "정책 {policy:이/가} {seconds}초 후에 확정했다.",
    ),
    "step.confirmed": ("Confirmed.", "확정했다."),
    "step.on_request": ("Rolled back on request.", "요청에 따라 되돌렸다."),
    "step.by_timeout": (
        "Rolled back because it was not confirmed in time.",
        "제한 시간 안에 확정되지 않아 되돌렸다.",
    ),
    "step.by_guardrail": ("Rolled back by its guardrail.", "가드레일에 따라 되돌렸다."),
    "step.lost_backend": (
        "Rolled back because the backend was unreachable for {seconds} s before it was confirmed.",
        "확정되기 전에 {seconds}초 동안 백엔드와 연결되지 않아 되돌렸다.",
    ),
    "step.agent_restart": (
        "Rolled back because the agent stopped before it was confirmed.",
        "확정되기 전에 에이전트가 멈춰 되돌렸다.",
    ),
    "step.by_error": ("Rolled back because an action failed.", "작업 하나가 실패하여 되돌렸다."),
    "step.nothing_restored": ("Nothing had to be restored.", "복원할 것이 없었다."),
    "step.all_restored": ("All {count} settings are restored.", "설정 {count}개를 모두 복원했다."),
    "step.some_restored": ("{count} of {all} settings are restored.", "설정 {all}개 중 {count}개를 복원했다."),
    "step.restored_on_node": (
        "Restored on the node by coresteer-agent restore.",
        "노드에서 coresteer-agent restore로 복원했다.",
    ),
    "step.rebooted": (
        "The node rebooted before the change was confirmed; a reboot restores every setting.",
        "변경이 확정되기 전에 노드가 다시 시작되었으며, 다시 시작하면 모든 설정이 복원된다.",
    ),
    "step.guardrail": (
        "The {metric} was {value}, above its guardrail of {limit} for {count} intervals in a row.",
        "{metric} 값 {value:이/가} {count}회 연속으로 가드레일 {limit:을/를} 넘었다.",
    ),
}
