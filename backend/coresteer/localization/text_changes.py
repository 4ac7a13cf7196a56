"""Sentences of reports of changes, in English and Korean."""

CHANGE = {
    "change.kind": ("Effect of a change on the node's own traffic", "변경이 노드 자체의 트래픽에 미친 영향"),
    "change.title": ("Effect of a change on {node}", "{node} 노드의 변경 효과"),
    "change.higher": (
        "{metric}: {change} higher after the change than before (95 % confidence interval {low} to {high}).",
        "변경 후 {metric:은/는} 변경 전보다 {change} 높았다(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "change.lower": (
        "{metric}: {change} lower after the change than before (95 % confidence interval {low} to {high}).",
        "변경 후 {metric:은/는} 변경 전보다 {change} 낮았다(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "change.higher_than_0": (
        "{metric}: 0 before the change, higher after it.",
        "{metric:은/는} 변경 전에 0이었고 변경 후 높아졌다.",
    ),
    "change.lower_to_0": (
        "{metric}: higher before the change, 0 after it.",
        "{metric:은/는} 변경 후 0으로 낮아졌다.",
    ),
    "change.none": (
        "No difference in {metric} larger than {bound} was found (95 % confidence interval {low} to {high}).",
        "{bound:을/를} 넘는 {metric} 차이는 발견되지 않았다(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "change.too_few": (
        "No result: there are {before} minutes of data before the change and {after} after it; at least {least} are "
        "required on each side.",
        "결론을 내릴 수 없다. 데이터가 변경 전 {before}분, 변경 후 {after}분뿐이며 각각 {least}분 이상이 필요하다.",
    ),
    "change.never": (
        "The change was not applied, so it had no effect.",
        "변경이 적용되지 않았으므로 효과가 없다.",
    ),
    "change.observed": (
        "This was observed on the node's own traffic without randomization: the load itself may have changed too. "
        "An experiment can distinguish the two.",
        "무작위로 배정한 실험이 아니라 실제 트래픽을 관찰한 결과이므로 부하 자체가 달라졌을 수도 있다. 둘을 "
        "구분하려면 실험이 필요하다.",
    ),
    "change.load": (
        "The load differed: {metric} {change} ({low} to {high}) compared with before. Consider this in metrics that "
        "are not per packet or per gigabit.",
        "부하가 달랐다: {metric} {change}({low} ~ {high}). 패킷당 또는 기가비트당 지표가 아니면 이를 고려하지 않고 "
        "비교할 수 없다.",
    ),
    "change.did": ("Changed settings: {count}.", "변경한 설정: {count}개."),
    "change.section.did": ("What was changed", "변경 내용"),
    "change.section.effect": ("Before and after", "변경 전후"),
    "change.section.life": ("History of the change", "변경의 경과"),
    "change.fact.by": ("By", "실행자"),
    "change.fact.policy": ("policy {id}", "정책 {id}"),
    "change.fact.reason": ("Reason", "사유"),
    "change.fact.applied": ("Applied", "적용"),
    "change.fact.ended": ("Confirmed or rolled back", "확정 또는 복원"),
    "change.fact.undone": ("Undone", "되돌림"),
    "change.few": ("too few minutes", "데이터 부족"),
    "change.fact.state": ("State", "상태"),
    "change.fact.window": ("Compared", "비교 구간"),
    "change.window": ("{before} minutes before, {after} after", "변경 전 {before}분, 변경 후 {after}분"),
    "change.fact.number": ("Change", "변경 번호"),
    "change.column.before": ("Before", "변경 전"),
    "change.column.after": ("After", "변경 후"),
    "change.column.when": ("When", "시각"),
    "change.column.what": ("What", "내용"),
    "change.state.applying": ("applying", "적용 중"),
    "change.state.unconfirmed": ("unconfirmed", "확인 대기"),
    "change.state.confirmed": ("confirmed", "확정됨"),
    "change.state.undone": ("undone", "되돌려짐"),
    "change.state.rolled_back": ("rolled back", "복원됨"),
    "change.state.failed": ("failed", "실패"),
    "change.table": ("All metrics, before and after", "변경 전후의 전체 지표"),
    "change.figure": ("{metric} by minute", "분 단위 {metric}"),
    "change.effects": ("Differences after the change", "변경 전 대비 변경 후의 차이"),
    "change.cpus_note": (
        "Means over the minutes before and after. Hatched: unknown.",
        "변경 전후 각 구간의 평균이다. 빗금은 값을 알 수 없음을 뜻한다.",
    ),
    "change.method.window": (
        "Whole minutes of stored telemetry are compared: at most {most} on each side of the change, without the "
        "minute in which it was applied, up to the nearest other change of the node or the rollback of this one.",
        "저장된 텔레메트리를 분 단위로 비교한다. 적용된 분은 빼고 변경 전후 각각 최대 {most}분을 쓰되, 변경이 복원된 "
        "시점이나 노드의 다른 변경을 넘어가지 않는다.",
    ),
    "change.method.interval": (
        "Means are compared as a ratio, or as a difference where one is 0. The effective number of minutes is reduced "
        "by their autocorrelation (corrected for bias); 95 % confidence intervals are Student's t with Welch's degrees "
        "of freedom.",
        "평균의 비율로, 한쪽이 0이면 차이로 비교한다. 이어지는 분들은 서로 비슷하므로 "
        "편향을 보정한 자기상관만큼 유효 표본 수를 줄이고, 웰치 자유도의 스튜던트 t 분포로 95% 신뢰 구간을 구한다.",
    ),
    "change.limit.many": (
        "{count} metrics were compared, each by itself, so some of them differ by chance.",
        "지표 {count}개를 각각 따로 비교했으므로 그중 일부는 우연히 차이를 보일 수 있다.",
    ),
    "change.limit.once": (
        "The change was made once, at a time that was not randomized.",
        "변경은 한 번, 무작위로 정하지 않은 시점에 이루어졌다.",
    ),
    "change.limit.others": (
        "Other changes on the node or its network at the same time are part of the difference.",
        "같은 시간에 노드나 네트워크에서 일어난 다른 변화도 차이에 포함되어 있다.",
    ),
}
