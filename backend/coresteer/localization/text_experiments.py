"""Sentences of reports of experiments, in English and Korean."""

from typing import get_args

from coresteer_core.experiments.model import Workload
from coresteer_core.experiments.workload_spec import WorkloadSpec

_WORKLOADS: tuple[type[WorkloadSpec], ...] = get_args(Workload)
WORKLOAD_LABELS = {
    f"workload.{workload.__struct_config__.tag}": (workload.label, workload.label_ko) for workload in _WORKLOADS
}

EXPERIMENT = {
    "kind.aa": ("A/A experiment", "A/A 실험"),
    "kind.ab": ("A/B experiment", "A/B 실험"),
    "kind.sweep": ("Sweep", "스윕 실험"),
    "subtitle": ("{kind} on node {node}", "{kind} · 노드 {node}"),
    # how it ended
    "ended.queued": (
        "The experiment has not started: it is in the queue of its node.",
        "실험이 아직 시작되지 않았다. 노드의 대기열에서 순서를 기다리고 있다.",
    ),
    "ended.running": (
        "The experiment is running: this is the result so far (runs counted: {kept}), and it may change.",
        "실험이 진행 중이다. 아래는 지금까지 유효한 실행 {kept}회의 결과이며 바뀔 수 있다.",
    ),
    "ended.stopped": (
        "A guardrail stopped the experiment before its end: {sentence}",
        "가드레일이 작동하여 실험이 도중에 중단되었다: {sentence}",
    ),
    "ended.cancelled": (
        "The experiment was cancelled before its end: {sentence}",
        "실험이 도중에 취소되었다: {sentence}",
    ),
    "ended.failed": (
        "The experiment failed before its end: {sentence}",
        "실험이 도중에 실패했다: {sentence}",
    ),
    "ended.preliminary": (
        "Intervals and p hold for the planned number of blocks only: ending an experiment because of its result makes "
        "false positives more frequent.",
        "신뢰 구간과 p값은 계획한 블록 수를 모두 마쳤을 때만 유효하다. 결과를 보고 실험을 끝내면 잘못된 발견이 더 자주 "
        "나온다.",
    ),
    "nothing": (
        "No result: there is no run that could be compared.",
        "비교할 수 있는 유효한 실행이 없어 결론을 내릴 수 없다.",
    ),
    # findings about two
    "found.higher": (
        "{metric}: {change} higher with {arm} than with {baseline} (95 % confidence interval {low} to {high}).",
        "{arm} 조건의 {metric:은/는} {baseline} 조건보다 {change} 높았다(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "found.lower": (
        "{metric}: {change} lower with {arm} than with {baseline} (95 % confidence interval {low} to {high}).",
        "{arm} 조건의 {metric:은/는} {baseline} 조건보다 {change} 낮았다(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "found.higher_absolute": (
        "{metric}: higher with {arm} ({value}) than with {baseline} ({base}).",
        "{arm} 조건의 {metric}({value})은 {baseline} 조건({base})보다 높았다.",
    ),
    "found.lower_absolute": (
        "{metric}: lower with {arm} ({value}) than with {baseline} ({base}).",
        "{arm} 조건의 {metric}({value})은 {baseline} 조건({base})보다 낮았다.",
    ),
    "found.better": ("That is an improvement.", "이는 개선에 해당한다."),
    "found.worse": ("That is worse.", "이는 악화에 해당한다."),
    "found.none": (
        "No difference in {metric} larger than {bound} was found between {arm} and {baseline} "
        "(95 % confidence interval {low} to {high}).",
        "{arm} 조건과 {baseline} 조건 사이에서 {bound:을/를} 넘는 {metric} 차이는 발견되지 않았다"
        "(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "found.none_absolute": (
        "No difference in {metric} was found between {arm} ({value}) and {baseline} ({base}).",
        "{arm} 조건({value})과 {baseline} 조건({base}) 사이에서 {metric} 차이는 발견되지 않았다.",
    ),
    "found.none_wide": (
        "No difference in {metric} was found between {arm} and {baseline}, but one of up to {bound} cannot be ruled "
        "out (95 % confidence interval {low} to {high}). More blocks would narrow the interval.",
        "{arm} 조건과 {baseline} 조건 사이에서 {metric} 차이는 발견되지 않았으나, 최대 {bound}의 차이는 배제할 수 없다"
        "(95% 신뢰 구간 {low} ~ {high}). 블록 수를 늘리면 구간이 좁아진다.",
    ),
    "found.wide": (
        "The interval is wide: a difference of up to {bound} cannot be ruled out. More blocks would narrow it.",
        "신뢰 구간이 넓어 최대 {bound}의 차이를 배제할 수 없다. 블록 수를 늘리면 구간이 좁아진다.",
    ),
    "found.visible": (
        "The minimum detectable difference of this experiment is {visible} (80 % power).",
        "이 규모의 실험은 {visible}의 차이를 80% 확률로 검출할 수 있다.",
    ),
    "found.unsteady": (
        "The result for {metric} with {arm} is inconclusive: the A/A runs, in which nothing was changed, show a "
        "difference as large.",
        "{arm} 조건의 {metric}에 대해서는 결론을 내릴 수 없다. 아무것도 바꾸지 않은 A/A 실행에서도 노드가 그만한 "
        "차이를 보였기 때문이다.",
    ),
    "found.too_few": (
        "Too few runs for a result for {metric} with {arm}.",
        "{arm} 조건의 {metric}에 대해서는 실행 횟수가 부족하여 결론을 내릴 수 없다.",
    ),
    "found.too_few_means": (
        "Too few complete blocks for a result for {metric}: the mean of the kept runs is {value} with {arm} and {base} "
        "with {baseline}.",
        "{metric}에 대해 결론을 내리기에는 완전한 블록이 부족하다. 유효한 실행의 평균은 {arm} 조건에서 {value}, "
        "{baseline} 조건에서 {base}이다.",
    ),
    "found.too_few_base": (
        "Too few runs for a result for {metric}: none with {arm} was kept; the mean with {baseline} is {base}.",
        "{metric}에 대해 결론을 내리기에는 실행 횟수가 부족하다. {arm} 조건의 유효한 실행은 없으며, {baseline} 조건의 "
        "평균은 {base}이다.",
    ),
    "found.left_out": (
        "Runs left out after three discarded attempts: {count} of {planned}. Incomplete blocks do not count in the "
        "comparison.",
        "세 번 시도해도 제외되어 건너뛴 실행: {planned}회 중 {count}회. 완전하지 않은 블록은 비교에 쓰지 않는다.",
    ),
    # findings about the node against itself
    "aa.steady": (
        "The A/A runs show no difference in {metric}; it is at most {bound} "
        "(95 % confidence interval {low} to {high}).",
        "노드를 자기 자신과 비교했을 때 차이는 발견되지 않았다. {metric} 차이는 최대 {bound}이다"
        "(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "aa.unsteady": (
        "The A/A runs differ in {metric} by {change} (95 % confidence interval {low} to {high}), although nothing was "
        "changed. Differences of this size are inconclusive on this node.",
        "아무것도 바꾸지 않았는데도 노드가 자기 자신과 차이를 보였다: {metric} {change}"
        "(95% 신뢰 구간 {low} ~ {high}). 이 노드에서 이 정도의 차이는 의미가 없다.",
    ),
    "aa.unknown": (
        "The node's own variation in {metric} is not known: there are too few A/A runs.",
        "A/A 실행 횟수가 부족하여 {metric}에서 노드 자체의 변동 폭을 알 수 없다.",
    ),
    # findings about sweeps
    "sweep.counts": (
        "{metric}: {higher} of the {levels} levels compared with {baseline} are higher and {lower} are lower; with "
        "{none} no difference was found.",
        "{baseline} 조건과 비교한 {levels}개 조건 가운데 {metric:은/는} {higher}개에서 높았고 {lower}개에서 낮았으며, "
        "{none}개에서는 차이가 발견되지 않았다.",
    ),
    "sweep.all_higher": (
        "{metric}: higher with each of the {levels} levels than with {baseline}.",
        "{baseline} 조건과 비교한 {levels}개 조건 모두에서 {metric:이/가} 높았다.",
    ),
    "sweep.all_lower": (
        "{metric}: lower with each of the {levels} levels than with {baseline}.",
        "{baseline} 조건과 비교한 {levels}개 조건 모두에서 {metric:이/가} 낮았다.",
    ),
    "sweep.no_result": (
        "For {count} more there is no result.",
        "나머지 {count}개에 대해서는 결론을 내릴 수 없다.",
    ),
    "sweep.none": (
        "No difference in {metric} was found between {baseline} and any other level; none is larger than {bound} "
        "(simultaneous 95 % confidence intervals).",
        "{baseline} 조건과 다른 조건들 사이에서 {metric} 차이는 발견되지 않았다. 차이가 {bound:을/를} 넘는 조건은 "
        "없다(전체 조건 동시 95% 신뢰 구간).",
    ),
    "sweep.trend_up": (
        "{metric}: increases with {factor} (Spearman's ρ {rho}, p {p}).",
        "{factor:이/가} 커질수록 {metric:이/가} 증가한다(스피어만 ρ {rho}, p값 {p}).",
    ),
    "sweep.trend_down": (
        "{metric}: decreases with {factor} (Spearman's ρ {rho}, p {p}).",
        "{factor:이/가} 커질수록 {metric:이/가} 감소한다(스피어만 ρ {rho}, p값 {p}).",
    ),
    "predictor.reached": (
        "{predictor} ranks the {count} arms like the measured {metric}: Spearman's ρ {rho} (goal: at least {goal}).",
        "{predictor:은/는} 조건 {count}개의 순위를 측정한 {metric:과/와} 같게 매긴다: "
        "스피어만 ρ {rho}(목표: {goal} 이상).",
    ),
    "predictor.missed": (
        "{predictor} does not rank the {count} arms like the measured {metric}: Spearman's ρ {rho}, under the goal of "
        "{goal}.",
        "{predictor:은/는} 조건 {count}개의 순위를 측정한 {metric:과/와} 같게 매기지 못한다: "
        "스피어만 ρ {rho}(목표: {goal} 이상).",
    ),
    "predictor.too_few": (
        "{predictor} is known in too few arms to be compared with the measured {metric}.",
        "{predictor:이/가} 알려진 조건이 너무 적어 측정한 {metric:과/와} 비교할 수 없다.",
    ),
    "predictor.unknown": (
        "{predictor} is unknown in these runs, so it is not compared with the measured {metric}. {reason}",
        "이 실행들에서는 {predictor:을/를} 알 수 없어 측정한 {metric:과/와} 비교하지 않는다. {reason}",
    ),
    "predictor.effect": ("{metric}, relative to the baseline", "기준 대비 {metric}"),
    "predictor.figure": ("{metric} by {predictor}", "{predictor}에 따른 {metric}"),
    "predictor.figure_note": (
        "Each dot is an arm, with the 95 % confidence interval of the measured effect.",
        "점 하나가 조건 하나이며, 막대는 측정한 효과의 95% 신뢰 구간이다.",
    ),
    "settings.restored": (
        "All settings were restored to their values before the experiment.",
        "모든 설정이 실험 전 상태로 복원되었다.",
    ),
    "settings.differ": (
        "Settings that differ from their values before the experiment: {keys}.",
        "실험 전과 달라진 설정: {keys}.",
    ),
    "settings.unread": (
        "The settings after the experiment have not been read.",
        "실험 후 설정을 아직 읽지 못했다.",
    ),
    "settings.none": (
        "The experiment changed no setting.",
        "이 실험은 어떤 설정도 변경하지 않았다.",
    ),
    "settings.gone": (
        "No setting existed both before and after the experiment: the settings that it changed existed only while it "
        "ran, or it ended before its first change.",
        "실험 전후에 모두 확인할 수 있는 노드 설정이 없다. 변경한 설정이 실험 중에만 존재했거나, 변경하기 전에 실험이 "
        "끝났다.",
    ),
    # headings
    "section.compared": ("What was compared", "비교 대상"),
    "section.primary": ("Primary metric: {metric}", "판정 지표: {metric}"),
    "section.others": ("Other metrics", "그 밖의 지표"),
    "section.predictor": ("Predicted and measured", "예측과 측정"),
    "section.published": ("Comparison with the published results", "논문 결과와의 비교"),
    "section.cpus": ("Utilization by CPU", "CPU별 사용률"),
    "section.noise": ("Variation of the node itself (A/A)", "노드의 자기 비교"),
    "section.method": ("Method", "방법"),
    "section.machine": ("Machine", "장비"),
    "section.settings": ("Settings before and after", "실험 전후의 설정"),
    "section.runs": ("Runs", "실행"),
    "section.limits": ("Limits", "한계"),
    "section.repeat": ("How to repeat it", "재현 방법"),
    # facts
    "fact.node": ("Node", "노드"),
    "fact.peer": ("Load from", "부하 발생 노드"),
    "fact.workload": ("Workload", "부하"),
    "fact.primary": ("Primary metric", "판정 지표"),
    "fact.state": ("State", "상태"),
    "fact.runs": ("Runs", "실행"),
    "fact.runs_text": ("{kept} counted, {discarded} discarded", "유효 {kept}회, 제외 {discarded}회"),
    "fact.started": ("Started", "시작"),
    "fact.ended": ("Ended", "종료"),
    "fact.seed": ("Seed", "시드"),
    "fact.number": ("Experiment", "실험 번호"),
    "fact.by": ("Started by", "실행자"),
    "state.queued": ("queued", "대기 중"),
    "state.running": ("running", "진행 중"),
    "state.done": ("done", "완료"),
    "state.stopped": ("stopped by a guardrail", "가드레일로 중단됨"),
    "state.cancelled": ("cancelled", "취소됨"),
    "state.failed": ("failed", "실패"),
    # arms
    "arm.baseline": ("{arm} (baseline)", "{arm} (기준)"),
    "arm.unchanged": ("current settings", "현재 상태"),
    "arm.as_it_is": ("The node as it is, without enforced policies", "적용 중인 정책을 뺀 노드의 현재 상태"),
    "arm.irqbalance": ("irqbalance runs", "irqbalance 실행"),
    "arm.irqbalance_cpus": ("irqbalance runs, on CPU {cpus} only", "irqbalance 실행(CPU {cpus}만 사용)"),
    "arm.policy": ("policy {id}, version {version}, {mode}", "정책 {id}, 버전 {version}, {mode}"),
    "arm.workload": ("workload: {fields}", "부하: {fields}"),
    # figures and tables
    "figure.effects": ("Differences from {baseline}", "{baseline} 대비 차이"),
    "figure.effects_note": (
        "Dots are estimates, bars are 95 % confidence intervals. The grey band is the node's own variation.",
        "점은 추정값, 막대는 95% 신뢰 구간이다. 회색 띠는 노드 자체의 변동 폭이다.",
    ),
    "figure.effects_note_plain": (
        "Dots are estimates, bars are 95 % confidence intervals.",
        "점은 추정값, 막대는 95% 신뢰 구간이다.",
    ),
    "figure.runs": ("Every run: {metric}", "전체 실행: {metric}"),
    "figure.runs_note": (
        "Each dot is a run. Crosses are runs that were discarded by rule.",
        "점 하나가 실행 한 번이다. ×는 규칙에 따라 제외되어 집계하지 않은 실행이다.",
    ),
    "figure.lines": ("{metric} over {factor}", "{factor}에 따른 {metric}"),
    "figure.lines_note": ("Means with 95 % confidence intervals.", "평균과 95% 신뢰 구간."),
    "figure.grid": ("{metric}: {rows} against {columns}", "{metric}: {rows} × {columns}"),
    "figure.grid_note": (
        "Rows: {rows}. Columns: {columns}. Cells: means over runs.",
        "행: {rows}. 열: {columns}. 각 칸은 실행 평균이다.",
    ),
    "figure.cpus": ("{kind}, percent of each CPU's time", "{kind}, CPU별 시간 비율(%)"),
    "figure.cpus_note": (
        "Means over runs, one row per arm. Hatched: unknown.",
        "조건별 실행 평균이다. 빗금은 값을 알 수 없음을 뜻한다.",
    ),
    "figure.cpus_part": (
        "Means over runs of {count} arms: the baseline and those that differ most from it. Hatched: unknown.",
        "기준과, 기준과 가장 많이 다른 조건을 합한 {count}개 조건의 실행 평균이다. 빗금은 값을 알 수 없음을 뜻한다.",
    ),
    "cpu.busy": ("Busy", "사용률"),
    "cpu.softirq": ("Softirq", "softirq"),
    "cpu.irq": ("Interrupts", "인터럽트"),
    "figure.published": ("{metric}, relative to {baseline}", "{baseline} 대비 {metric}"),
    "figure.published_note": (
        "Each relative to its own baseline, because the machines differ. The paper has no confidence intervals.",
        "장비가 서로 다르므로 각자의 기준에 대한 비율로 나타냈다. 논문은 신뢰 구간을 제시하지 않았다.",
    ),
    "table.effects": ("All metrics: {arm} compared with {baseline}", "전체 지표: {baseline} 대비 {arm}"),
    "table.primary": ("{metric} by arm", "조건별 {metric}"),
    "table.means": ("Means of other metrics by arm", "조건별 그 밖의 지표 평균"),
    "table.means_note": (
        "▲ higher and ▼ lower than the baseline, with the same test as the primary metric, but each metric by itself: "
        "among many metrics some differ by chance.",
        "▲와 ▼는 기준보다 높거나 낮음을 뜻한다. 판정 지표와 같은 방법으로 지표마다 따로 검정했으므로 지표가 많으면 "
        "그중 일부는 우연히 차이를 보일 수 있다.",
    ),
    "table.others_note": (
        "Only the primary metric was chosen before the experiment. The others explain it; each is tested by itself, "
        "so among many some differ by chance.",
        "판정 지표만 실험 전에 정했다. 그 밖의 지표는 이를 설명하기 위한 것이며 지표마다 따로 검정했으므로 그중 일부는 "
        "우연히 차이를 보일 수 있다.",
    ),
    "table.noise": ("Variation of the node itself, in A/A runs", "A/A 실행에서의 자기 비교"),
    "table.noise_note": (
        "The baseline was compared with itself, in the same kind of order as the comparison. Differences here have no "
        "cause; they show how large a difference must be to mean anything on this node.",
        "같은 조건에 두 이름을 붙여 비교 실행과 같은 방식의 순서로 측정했다. 여기서 나타난 차이에는 원인이 없으므로 "
        "비교 결과를 해석하는 기준으로 삼는다.",
    ),
    "table.published": ("Results of the paper and of this node", "논문의 수치와 이 노드의 수치"),
    "published.source": ("{title}: {paper}.", "{title}: {paper}."),
    "published.here": (
        "Here: {cpus} CPUs, Linux {kernel}, {workload}.",
        "이 노드의 환경: CPU {cpus}개, Linux {kernel}, {workload}.",
    ),
    "published.deviations": ("Deviations from the paper", "논문과 다른 점"),
    "published.note": (
        "The authors used other machines and another kernel. The direction of a difference can be compared, and with "
        "caution its ratio; absolute values cannot.",
        "논문은 다른 장비와 다른 커널에서 측정했다. 비교할 수 있는 것은 방향과, 신중하게 본다면 비율이다. 절대값은 "
        "비교할 수 없다.",
    ),
    "table.trends": ("Trends over numeric factors", "수치 요인에 따른 추세"),
    "table.discarded": ("Discarded runs", "제외된 실행"),
    "runs.none_discarded": ("No run was discarded.", "제외된 실행이 없다."),
    "runs.counts": (
        "Runs counted: {kept}; discarded: {discarded}; complete: {done} of {planned} scheduled. "
        "A discarded run was repeated before the next one.",
        "{kept}회의 실행이 유효하고 {discarded}회는 제외되었다. 일정의 {planned}회 가운데 {done}회를 마쳤다. "
        "제외된 실행은 같은 순서에서 다시 수행했다.",
    ),
    "runs.discarded_listed": (
        "{shown} of {count} discarded runs are listed; the CSV file has all.",
        "제외된 실행 {count}회 중 {shown}회만 표시한다. 전체는 CSV 파일에 있다.",
    ),
}
