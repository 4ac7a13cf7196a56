"""Sentences of reports of experiments, in English and Korean."""

EXPERIMENT = {
    "kind.aa": ("A/A experiment", "A/A 실험"),
    "kind.ab": ("A/B experiment", "A/B 실험"),
    "kind.sweep": ("Sweep", "스윕 실험"),
    "subtitle": ("{kind} on node {node}", "{kind} · 노드 {node}"),
    # how it ended
    "ended.queued": (
        "The experiment has not begun: it waits in the queue of its node.",
        "실험이 아직 시작되지 않았다. 노드의 대기열에서 순서를 기다리고 있다.",
    ),
    "ended.running": (
        "The experiment is still running: this is what the {kept} runs so far say, and it may change.",
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
    "nothing": (
        "Nothing can be concluded: no run was kept of which anything could be compared.",
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
        "An experiment of this size finds a difference of {visible} with a probability of 80 %.",
        "이 규모의 실험은 {visible}의 차이를 80% 확률로 검출할 수 있다.",
    ),
    "found.unsteady": (
        "Nothing can be concluded about {metric} with {arm}: the node differed from itself as much, or it differed "
        "from itself in the A/A runs without any change.",
        "{arm} 조건의 {metric}에 대해서는 결론을 내릴 수 없다. 아무것도 바꾸지 않은 A/A 실행에서도 노드가 그만한 "
        "차이를 보였기 때문이다.",
    ),
    "found.too_few": (
        "Nothing can be concluded about {metric} with {arm}: there are too few runs.",
        "{arm} 조건의 {metric}에 대해서는 실행 횟수가 부족하여 결론을 내릴 수 없다.",
    ),
    # findings about the node against itself
    "aa.steady": (
        "The node was not found to differ from itself: any difference in {metric} is at most {bound} "
        "(95 % confidence interval {low} to {high}).",
        "노드를 자기 자신과 비교했을 때 차이는 발견되지 않았다. {metric} 차이는 최대 {bound}이다"
        "(95% 신뢰 구간 {low} ~ {high}).",
    ),
    "aa.unsteady": (
        "The node differed from itself: {metric} by {change} (95 % confidence interval {low} to {high}) though nothing "
        "was changed. Differences of this size say nothing on this node.",
        "아무것도 바꾸지 않았는데도 노드가 자기 자신과 차이를 보였다: {metric} {change}"
        "(95% 신뢰 구간 {low} ~ {high}). 이 노드에서 이 정도의 차이는 의미가 없다.",
    ),
    "aa.unknown": (
        "How much the node differs from itself in {metric} is not known: there are too few A/A runs.",
        "A/A 실행 횟수가 부족하여 {metric}에서 노드 자체의 변동 폭을 알 수 없다.",
    ),
    # findings about sweeps
    "sweep.counts": (
        "{metric}: {higher} of the {levels} settings compared with {baseline} are higher and {lower} are lower; with "
        "{none} no difference was found.",
        "{baseline} 조건과 비교한 {levels}개 조건 가운데 {metric:은/는} {higher}개에서 높았고 {lower}개에서 낮았으며, "
        "{none}개에서는 차이가 발견되지 않았다.",
    ),
    "sweep.all_higher": (
        "{metric}: higher with each of the {levels} settings than with {baseline}.",
        "{baseline} 조건과 비교한 {levels}개 조건 모두에서 {metric:이/가} 높았다.",
    ),
    "sweep.all_lower": (
        "{metric}: lower with each of the {levels} settings than with {baseline}.",
        "{baseline} 조건과 비교한 {levels}개 조건 모두에서 {metric:이/가} 낮았다.",
    ),
    "sweep.unsaid": (
        "Nothing can be concluded about {count} more.",
        "나머지 {count}개에 대해서는 결론을 내릴 수 없다.",
    ),
    "sweep.none": (
        "No difference in {metric} was found between {baseline} and any other setting; none is larger than {bound}, "
        "at a confidence of 95 % for all together.",
        "{baseline} 조건과 다른 조건들 사이에서 {metric} 차이는 발견되지 않았다. 차이가 {bound:을/를} 넘는 조건은 "
        "없다(전체 조건 동시 95% 신뢰 구간).",
    ),
    "sweep.trend_up": (
        "{metric}: rising with {factor} (Spearman's ρ {rho}, p {p}).",
        "{factor:이/가} 커질수록 {metric:이/가} 증가한다(스피어만 ρ {rho}, p값 {p}).",
    ),
    "sweep.trend_down": (
        "{metric}: falling with {factor} (Spearman's ρ {rho}, p {p}).",
        "{factor:이/가} 커질수록 {metric:이/가} 감소한다(스피어만 ρ {rho}, p값 {p}).",
    ),
    "settings.restored": (
        "All settings are as they were before the experiment.",
        "모든 설정이 실험 전 상태로 복원되었다.",
    ),
    "settings.differ": (
        "Settings that are not as they were before the experiment: {keys}.",
        "실험 전과 달라진 설정: {keys}.",
    ),
    "settings.unread": (
        "The settings after the experiment were not read yet.",
        "실험 후 설정을 아직 읽지 못했다.",
    ),
    "settings.none": (
        "The experiment changed no setting.",
        "이 실험은 어떤 설정도 변경하지 않았다.",
    ),
    "settings.gone": (
        "No setting of the node is known that stood both before and after the experiment: what it changed was there "
        "only while it ran, or it ended before anything was changed.",
        "실험 전후에 모두 확인할 수 있는 노드 설정이 없다. 변경한 설정이 실험 중에만 존재했거나, 변경하기 전에 실험이 "
        "끝났다.",
    ),
    # headings
    "section.compared": ("What was compared", "비교 대상"),
    "section.primary": ("The figure that decides: {metric}", "판정 지표: {metric}"),
    "section.others": ("Other figures", "그 밖의 지표"),
    "section.authors": ("Beside the authors' figures", "논문 결과와의 비교"),
    "section.cpus": ("CPU by CPU", "CPU별 사용률"),
    "section.noise": ("The node against itself", "노드의 자기 비교"),
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
    "fact.primary": ("Figure that decides", "판정 지표"),
    "fact.state": ("State", "상태"),
    "fact.runs": ("Runs", "실행"),
    "fact.runs_text": ("{kept} kept, {discarded} discarded", "유효 {kept}회, 제외 {discarded}회"),
    "fact.started": ("Started", "시작"),
    "fact.ended": ("Ended", "종료"),
    "fact.seed": ("Seed", "시드"),
    "fact.number": ("Experiment", "실험 번호"),
    "fact.by": ("Started by", "실행자"),
    "state.queued": ("waiting", "대기 중"),
    "state.running": ("running", "진행 중"),
    "state.done": ("done", "완료"),
    "state.stopped": ("stopped by a guardrail", "가드레일로 중단됨"),
    "state.cancelled": ("cancelled", "취소됨"),
    "state.failed": ("failed", "실패"),
    # workloads
    "workload.tcp-stream": ("TCP stream", "TCP 스트림"),
    "workload.tcp-request": ("TCP request and response", "TCP 요청/응답"),
    "workload.udp-flood": ("UDP flood", "UDP 플러드"),
    "workload.iperf3": ("iperf3", "iperf3"),
    "workload.classes": ("Service classes", "서비스 클래스"),
    "workload.observe": ("The node's own traffic; nothing was generated", "노드의 실제 트래픽(부하를 생성하지 않음)"),
    "workload.command": ("Command {name}", "명령 {name}"),
    # arms
    "arm.baseline": ("{arm} (baseline)", "{arm} (기준)"),
    "arm.unchanged": ("as it is", "현재 상태"),
    "arm.as_it_is": ("The node as it is, without enforced policies", "적용 중인 정책을 뺀 노드의 현재 상태"),
    "arm.irqbalance": ("irqbalance runs", "irqbalance 실행"),
    "arm.policy": ("policy {id}, version {version}, {mode}", "정책 {id}, 버전 {version}, {mode}"),
    "arm.workload": ("workload: {fields}", "부하: {fields}"),
    # figures and tables
    "figure.effects": ("Differences from {baseline}", "{baseline} 대비 차이"),
    "figure.effects_note": (
        "Dots are estimates, bars 95 % confidence intervals. The grey band is how much the node differed from itself.",
        "점은 추정값, 막대는 95% 신뢰 구간이다. 회색 띠는 노드 자체의 변동 폭이다.",
    ),
    "figure.effects_note_plain": (
        "Dots are estimates, bars 95 % confidence intervals.",
        "점은 추정값, 막대는 95% 신뢰 구간이다.",
    ),
    "figure.runs": ("Every run: {metric}", "전체 실행: {metric}"),
    "figure.runs_note": (
        "Each dot is a run. Crosses are runs that were discarded by rule and do not count.",
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
        "Means over runs, a row for each setting. Hatched: not known.",
        "조건별 실행 평균이다. 빗금은 값을 알 수 없음을 뜻한다.",
    ),
    "figure.cpus_part": (
        "Means over runs, of the baseline and the settings that differ most from it, {count} in all. Hatched: not "
        "known.",
        "기준과, 기준과 가장 많이 다른 조건을 합한 {count}개 조건의 실행 평균이다. 빗금은 값을 알 수 없음을 뜻한다.",
    ),
    "cpu.busy": ("Busy", "사용률"),
    "cpu.softirq": ("Softirq", "softirq"),
    "cpu.irq": ("Interrupts", "인터럽트"),
    "figure.authors": ("{metric}, relative to {baseline}", "{baseline} 대비 {metric}"),
    "figure.authors_note": (
        "Both as shares of their own baseline, because the machines differ. The authors gave no intervals.",
        "장비가 서로 다르므로 각자의 기준에 대한 비율로 나타냈다. 논문은 신뢰 구간을 제시하지 않았다.",
    ),
    "table.effects": ("All figures: {arm} against {baseline}", "전체 지표: {baseline} 대비 {arm}"),
    "table.primary": ("{metric} by setting", "조건별 {metric}"),
    "table.means": ("Means of other figures by setting", "조건별 그 밖의 지표 평균"),
    "table.means_note": (
        "▲ higher and ▼ lower than the baseline, tested like the figure that decides but each figure by itself: among "
        "many figures some differ by chance.",
        "▲와 ▼는 기준보다 높거나 낮음을 뜻한다. 판정 지표와 같은 방법으로 지표마다 따로 검정했으므로 지표가 많으면 "
        "그중 일부는 우연히 차이를 보일 수 있다.",
    ),
    "table.others_note": (
        "Only the figure that decides was named before the experiment. The others explain it; each is tested by "
        "itself, so among many some differ by chance.",
        "판정 지표만 실험 전에 정했다. 그 밖의 지표는 이를 설명하기 위한 것이며 지표마다 따로 검정했으므로 그중 일부는 "
        "우연히 차이를 보일 수 있다.",
    ),
    "table.noise": ("The node against itself, in A/A runs", "A/A 실행에서의 자기 비교"),
    "table.noise_note": (
        "The same setting was given two names and measured in the same order as the comparison. What differs here "
        "differs without a cause; the figures of the comparison are to be read against it.",
        "같은 조건에 두 이름을 붙여 비교 실행과 같은 방식의 순서로 측정했다. 여기서 나타난 차이에는 원인이 없으므로 "
        "비교 결과를 해석하는 기준으로 삼는다.",
    ),
    "table.authors": ("The authors' figures and this node's", "논문의 수치와 이 노드의 수치"),
    "authors.source": ("{title}: {paper}.", "{title}: {paper}."),
    "authors.m": (
        "The authors had 8 cores of which each two share a cache, Linux 2.6.18 and 2.6.28, and 8 clients of 1 Gbit/s.",
        "논문의 환경: 둘씩 캐시를 공유하는 8코어, Linux 2.6.18과 2.6.28, 1 Gbit/s 클라이언트 8대.",
    ),
    "authors.rx": (
        "The authors had one link of 1 Gbit/s with frames of 9000 B.",
        "논문의 환경: 9000바이트 프레임을 쓰는 1 Gbit/s 링크 하나.",
    ),
    "authors.service": (
        "The authors had one echo server that forks a task for each request, and five clients with ten threads each.",
        "논문의 환경: 요청마다 태스크를 만드는 에코 서버 하나와, 스레드가 각각 10개인 클라이언트 5대.",
    ),
    "authors.here": (
        "Here: {cpus} CPUs, Linux {kernel}, {workload}.",
        "이 노드의 환경: CPU {cpus}개, Linux {kernel}, {workload}.",
    ),
    "authors.note": (
        "The authors measured on other machines with another kernel. What can be compared is the direction and, with "
        "care, the ratio; not the amounts.",
        "논문은 다른 장비와 다른 커널에서 측정했다. 비교할 수 있는 것은 방향과, 신중하게 본다면 비율이다. 절대값은 "
        "비교할 수 없다.",
    ),
    "table.trends": ("Trends over numeric factors", "수치 요인에 따른 추세"),
    "table.discarded": ("Discarded runs", "제외된 실행"),
    "runs.none_discarded": ("No run was discarded.", "제외된 실행이 없다."),
    "runs.counts": (
        "{kept} runs count, {discarded} were discarded; {done} of {planned} places of the schedule were done. "
        "Discarded runs were tried again at their place.",
        "{kept}회의 실행이 유효하고 {discarded}회는 제외되었다. 일정의 {planned}회 가운데 {done}회를 마쳤다. "
        "제외된 실행은 같은 순서에서 다시 수행했다.",
    ),
    "runs.discarded_listed": (
        "{shown} of {count} discarded runs are listed; the CSV file has all.",
        "제외된 실행 {count}회 중 {shown}회만 표시한다. 전체는 CSV 파일에 있다.",
    ),
    # method
    "method.primary": (
        "The figure that decides ({metric}) was named before anything was measured.",
        "판정 지표({metric})는 측정을 시작하기 전에 정했다.",
    ),
    "method.run": (
        "A run puts its setting in place, starts the load, waits {warmup} and measures {measure} by the kernel's own "
        "counters; then the setting is put back.",
        "실행마다 조건을 적용하고 부하를 시작한 뒤 {warmup} 동안 예열하고, 커널 카운터로 {measure} 동안 측정한 다음 "
        "설정을 되돌린다.",
    ),
    "method.run_whole": (
        "A run puts its setting in place and measures the load from its beginning to its end by the kernel's own "
        "counters, {measure} at the most; then the setting is put back.",
        "실행마다 조건을 적용하고 부하의 시작부터 끝까지(최대 {measure}) 커널 카운터로 측정한 다음 설정을 되돌린다.",
    ),
    "method.abba": (
        "Runs come in blocks of four, in the order ABBA or BAAB as the seed draws for each block, so that slow drift "
        "touches both alike: {blocks} blocks.",
        "실행은 네 번을 한 블록으로 하며, 완만한 변동이 양쪽에 똑같이 영향을 주도록 블록마다 시드에 따라 ABBA 또는 "
        "BAAB 순서를 무작위로 정한다. 블록 수: {blocks}.",
    ),
    "method.blocks": (
        "Runs come in blocks that hold every setting once, in an order that the seed draws for each block: "
        "{blocks} blocks.",
        "한 블록에서 모든 조건을 한 번씩 실행하며, 순서는 블록마다 시드에 따라 무작위로 정한다. 블록 수: {blocks}.",
    ),
    "method.aa": (
        "Before the comparison the node was compared with itself in {blocks} blocks.",
        "비교에 앞서 {blocks}개 블록에서 노드를 자기 자신과 비교했다.",
    ),
    "method.test": (
        "The unit of analysis is the block, never the sample. Differences are tested by randomisation of what the seed "
        "drew, at a level of 5 %; the 95 % confidence interval comes from the same computation, by drawing subsets of "
        "blocks anew, and so agrees with the test.",
        "분석 단위는 표본이 아니라 블록이다. 차이는 시드로 정한 배정을 다시 섞는 무작위화 검정(유의 수준 5%)으로 "
        "판정한다. 95% 신뢰 구간은 블록의 부분집합을 다시 뽑는 같은 계산에서 구하므로 검정 결과와 일치한다.",
    ),
    "method.many": (
        "All settings are compared with the baseline at once: p and intervals take account of their number, so a false "
        "finding among all of them has a probability of about 5 % (Westfall and Young; Dunnett).",
        "모든 조건을 동시에 기준과 비교한다. p값과 신뢰 구간은 조건 수를 반영하므로 전체 조건에서 잘못된 발견이 "
        "하나라도 나올 확률이 약 5%이다(Westfall-Young, Dunnett 방법).",
    ),
    "method.discard": (
        "Runs are discarded by rules that do not look at the figures: the host took more than 5 % of the CPU time "
        "away, {time}, the node changed meanwhile (such as a CPU that went offline), or the run did not come to its "
        "end.",
        "실행을 제외하는 규칙은 측정값을 보지 않는다: 호스트가 CPU 시간의 5% 넘게 가져간 경우, {time}, 측정 중 노드가 "
        "달라진 경우(예: CPU 오프라인), 실행이 끝까지 진행되지 않은 경우.",
    ),
    "method.discard_off": ("the measured time is off by more than 2 s", "측정 시간이 2초 넘게 벗어난 경우"),
    "method.discard_short": ("it took less than {shortest}", "{shortest} 안에 끝난 경우"),
    "method.seed": (
        "Seed {seed} determines the order of all runs and all that is left to chance in the analysis.",
        "시드 {seed:이/가} 전체 실행 순서와 분석에 쓰인 모든 난수를 결정한다.",
    ),
    "method.guardrails": (
        "Guardrails that would have stopped it: {guardrails}.",
        "실험을 중단시키는 가드레일: {guardrails}.",
    ),
    # limits
    "limit.one_node": (
        "One node was measured, at one time. On other machines, kernels and NICs it may be otherwise.",
        "한 노드를 한 시점에 측정했다. 다른 장비, 커널, NIC에서는 결과가 다를 수 있다.",
    ),
    "limit.alone": (
        "Both ends of the traffic were on the node, so its CPUs also did the client's work, and the packets crossed a "
        "virtual link and no NIC.",
        "트래픽의 양 끝이 모두 이 노드에 있어 CPU가 클라이언트 작업도 처리했고, 패킷은 NIC이 아니라 가상 링크를 "
        "거쳤다.",
    ),
    "limit.observe": (
        "The traffic was the node's own and not the same in every run; the order of the runs spreads that over all "
        "settings, but it widens the intervals.",
        "부하는 노드의 실제 트래픽이므로 실행마다 같지 않다. 실행 순서의 무작위화로 그 영향이 모든 조건에 분산되지만 "
        "신뢰 구간은 넓어진다.",
    ),
    "limit.simulated": (
        "The node is simulated: its figures are made up and say nothing about any machine.",
        "시뮬레이션 노드이다. 수치는 만들어 낸 값이며 실제 장비에 대해 아무것도 말해 주지 않는다.",
    ),
    "limit.many": (
        "{count} figures were compared. Only the figure that decides is protected against finding something by chance.",
        "지표 {count}개를 비교했다. 우연한 발견에 대한 보호는 판정 지표에만 적용된다.",
    ),
    "limit.early": (
        "The experiment did not run to its end, so its blocks are fewer than planned.",
        "실험이 끝까지 진행되지 않아 블록 수가 계획보다 적다.",
    ),
    "limit.unsaid_language": (
        "What agents, the kernel and people said in words of their own is as they told it.",
        "에이전트, 커널, 사용자가 직접 쓴 문장은 원문 그대로 실었다.",
    ),
    # repeat
    "repeat.command": (
        "Export this report as JSON; its experiment.spec and experiment.seed are all that is needed to run it again.",
        "이 보고서를 JSON으로 내보내면 experiment.spec과 experiment.seed만으로 실험을 다시 실행할 수 있다.",
    ),
    "repeat.same": (
        "The same data give the same bytes of this report.",
        "같은 데이터로 만든 보고서는 바이트까지 같다.",
    ),
    "machine.none": ("Nothing is known of the machine.", "장비 정보가 없다."),
}
