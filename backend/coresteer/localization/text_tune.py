"""Sentences about a tune, in English and Korean."""

TUNE = {
    "kind.tune": ("Tune", "튜닝"),
    "tune.best": (
        "The best combination found is {arm}: {metric} {value}, {change} ({low} to {high}) against the baseline "
        "({baseline}); {latency} {other}.",
        "찾은 조합 중 가장 좋은 것은 {arm}이다: {metric} {value}, {baseline} 조건 대비 {change}({low} ~ {high}), "
        "{latency} {other}.",
    ),
    "tune.best_is_baseline": (
        "No combination was found that is better than the baseline ({baseline}): {metric} {value}; {latency} {other}.",
        "기준 조건({baseline})보다 나은 조합은 발견되지 않았다: {metric} {value}, {latency} {other}.",
    ),
    "tune.none": (
        "No measured combination is sure to keep the limit: {latency} {limit}.",
        "한계를 확실히 지키는 조합은 발견되지 않았다: {latency} {limit}.",
    ),
    "tune.confirm": (
        "This is an estimate of the search, which chose the best of many: a new A/B experiment shows whether it holds.",
        "이는 여러 조합 가운데 가장 좋은 것을 고른 탐색의 추정치이다. 실제로 그러한지는 새로운 A/B 실험으로 확인해야 "
        "한다.",
    ),
    "tune.counts": (
        "{measured} of {combinations} combinations were measured in {runs} runs; {eliminated} are eliminated by "
        "measurements or by the estimate.",
        "조합 {combinations}개 가운데 {measured}개를 {runs}회의 실행으로 측정했다. {eliminated}개는 측정 또는 추정으로 "
        "제외되었다.",
    ),
    "tune.stopped.converged": (
        "The search is complete: nothing better by more than 0.2 % is expected.",
        "탐색이 완료되었다. 0.2% 넘게 더 나은 조합은 예상되지 않는다.",
    ),
    "tune.stopped.infeasible": (
        "The search ended because no combination is likely to keep the limit.",
        "한계를 지킬 가능성이 있는 조합이 없어 탐색을 끝냈다.",
    ),
    "tune.stopped.runs": (
        "The search ended at its limit of {runs} runs; something better may exist.",
        "최대 실행 수 {runs}회에 도달하여 탐색을 끝냈다. 더 나은 조합이 있을 수 있다.",
    ),
    "tune.stopped.early": (
        "The search ended before it was complete; something better may exist.",
        "탐색이 완료되기 전에 끝났다. 더 나은 조합이 있을 수 있다.",
    ),
    "tune.candidates": ("Measured combinations", "측정한 조합"),
    "tune.front_note": (
        "Estimates with 95 % intervals of a model of all runs. ◆: no other measured combination is better in both "
        "metrics.",
        "전체 실행에 대한 모델의 추정치와 95% 구간이다. ◆: 측정한 조합 중 두 지표 모두 더 나은 것이 없다.",
    ),
    "tune.figure": ("{latency} over {metric}", "{metric}에 따른 {latency}"),
    "tune.state.baseline": ("baseline", "기준"),
    "tune.state.best": ("best", "최선"),
    "tune.state.open": ("not eliminated", "제외되지 않음"),
    "tune.state.worse": ("worse than the best", "최선보다 나쁨"),
    "tune.state.limit": ("exceeds the limit", "한계 초과"),
    "tune.state.failed": ("not measurable", "측정 불가"),
    "method.tune": (
        "Each block has the baseline and up to five combinations that the search chose, in random order. A Gaussian "
        "process with an effect of each block estimates both metrics of every combination; a combination is eliminated "
        "when its chance to keep the limit, or to be better than the best by 1 %, is below 2.5 %.",
        "블록마다 기준 조건과 탐색이 고른 최대 다섯 조합을 무작위 순서로 실행한다. 블록 효과를 포함한 가우스 과정이 "
        "모든 조합의 두 지표를 추정하며, 한계를 지키거나 최선보다 1% 이상 나을 확률이 2.5% 미만인 조합은 제외한다.",
    ),
}
