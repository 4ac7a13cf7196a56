"""Sentences of comparisons of two experiments, in English and Korean."""

COMPARE = {
    "compare.kind": ("Comparison of two experiments", "두 실험의 비교"),
    "compare.title": ("{a} and {b}", "{a} / {b}"),
    "compare.agree": (
        "The two experiments agree on {arm}: no difference between their effects on {metric} larger than {bound} was "
        "found (difference {change}, 95 % confidence interval {low} to {high}).",
        "{arm} 조건에 대해 두 실험의 결과가 일치한다. {bound:을/를} 넘는 {metric} 효과의 차이는 발견되지 않았다"
        "(차이 {change}, 95% 신뢰 구간 {low} ~ {high}).",
    ),
    "compare.same": (
        "Between the effects of {arm} on {metric} in the two experiments no difference was found, but one of up to "
        "{bound} cannot be ruled out (difference {change}, 95 % confidence interval {low} to {high}).",
        "{arm} 조건의 {metric} 효과에서 두 실험의 차이는 발견되지 않았으나, 최대 {bound}의 차이는 배제할 수 없다"
        "(차이 {change}, 95% 신뢰 구간 {low} ~ {high}).",
    ),
    "compare.differ": (
        "The two experiments disagree on {arm}: the effect on {metric} is {a} in A and {b} in B "
        "(difference {change}, 95 % confidence interval {low} to {high}).",
        "{arm} 조건에 대해 두 실험의 결과가 다르다. {metric} 효과가 A에서는 {a}, B에서는 {b}이다"
        "(차이 {change}, 95% 신뢰 구간 {low} ~ {high}).",
    ),
    "compare.unsteady": (
        "The result of {which} by itself is inconclusive: its A/A runs show a difference as large.",
        "{which}의 결과만으로는 결론을 내릴 수 없다. A/A 실행에서도 그만한 차이가 나타났다.",
    ),
    "compare.unsteady_both": (
        "The results of A and B by themselves are inconclusive: their A/A runs show differences as large.",
        "A와 B 모두 그 결과만으로는 결론을 내릴 수 없다. 각각의 A/A 실행에서도 그만한 차이가 나타났다.",
    ),
    "compare.baselines": (
        "Their baselines have different names: {a} in A, {b} in B.",
        "두 실험의 기준은 이름이 다르다: A는 {a}, B는 {b}.",
    ),
    "compare.differ_count": (
        "In {metric}, the effects of {differ} of {count} arms differ between the two experiments.",
        "{metric}에서 {count}개 조건 가운데 {differ}개의 효과가 두 실험 사이에 다르다.",
    ),
    "compare.noise": (
        "In the A/A runs of both experiments, the node's own variation in {metric} is {a} in A and {b} in B.",
        "두 실험 모두 노드를 자기 자신과 비교했다. {metric}의 자기 차이는 A에서 {a}, B에서 {b}이다.",
    ),
    "compare.nothing": (
        "The effects cannot be compared: the two experiments have no arm of the same name with known effects on "
        "the same metric.",
        "이름이 같고 같은 지표에 대한 효과가 양쪽에서 확인된 조건이 없어 두 실험의 효과를 비교할 수 없다.",
    ),
    "compare.section.differ": ("What differs between the two", "두 실험의 차이점"),
    "compare.section.effects": ("Effects side by side", "효과 비교"),
    "compare.section.a": ("Experiment A", "실험 A"),
    "compare.section.b": ("Experiment B", "실험 B"),
    "compare.all_equal": ("Specification and machine are the same.", "실험 명세와 장비가 같다."),
    "compare.column.difference": ("B against A (95 % interval)", "A 대비 B(95% 신뢰 구간)"),
    "compare.table": ("Effects relative to each experiment's own baseline", "각 실험의 기준 대비 효과"),
    "compare.figure": ("{metric}: effects in A and B", "{metric}: A와 B의 효과"),
    "compare.axis": ("difference from the experiment's own baseline", "각 실험의 기준 대비 차이"),
    "compare.method": (
        "Each effect is relative to the baseline of its own experiment. The interval of their ratio follows from the "
        "two intervals (MOVER; Zou and Donner 2008), as the experiments are independent. It is not adjusted for the "
        "number of arms.",
        "각 효과는 해당 실험의 기준에 대한 것이다. 두 실험은 서로 독립이므로 효과 비율의 신뢰 구간은 두 구간에서 "
        "구한다(MOVER, Zou와 Donner 2008). 조건 수에 대한 보정은 하지 않았다.",
    ),
    "compare.limit": (
        "The two experiments ran at different times or on different nodes, without randomization: a difference between "
        "the effects may be due to any difference between the two.",
        "두 실험은 서로 다른 시간이나 노드에서 수행되었고 이는 무작위로 정한 것이 아니다. 효과의 차이는 두 실험 "
        "사이의 어떤 차이에서도 비롯될 수 있다.",
    ),
}
