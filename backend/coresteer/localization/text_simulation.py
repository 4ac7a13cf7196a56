"""Sentences of coscheduling studies, in English and Korean."""

STUDY = {
    "study.kind": (
        "Simulation of coscheduling with process reordering (PROC)",
        "프로세스 재정렬을 사용하는 협력 스케줄링(PROC)의 시뮬레이션",
    ),
    "study.title": ("Coscheduling study {id}", "협력 스케줄링 연구 {id}"),
    "study.finding": ("The paper: “{statement}” {verdict}", "논문: “{statement}” {verdict}"),
    # metrics of the statements
    "study.metric.response time": ("response time", "응답 시간"),
    "study.metric.idle time": ("idle time", "유휴 시간"),
    "study.metric.spin time": ("spin time", "스핀 시간"),
    "study.metric.overhead and context switches": ("overhead and context switches", "오버헤드와 문맥 교환"),
    # verdicts
    "study.verdict.not_examined": (
        "Not examined: the study has no cell that it is about.",
        "검토하지 않음: 연구에 이 진술에 해당하는 셀이 없다.",
    ),
    "study.verdict.not_judged": (
        "Not judged: {seeds} of the {least} seeds that a verdict needs.",
        "판정하지 않음: 판정에는 시드 {least}개가 필요하지만 {seeds}개뿐이다.",
    ),
    "study.verdict.in_only": ("Reproduced in its only cell.", "유일한 셀에서 재현되었다."),
    "study.verdict.in_all": ("Reproduced in all {of} cells.", "셀 {of}개 모두에서 재현되었다."),
    "study.verdict.in_some": (
        "Not reproduced: in {holds} of {of} cells only.",
        "재현되지 않았다: 셀 {of}개 가운데 {holds}개에서만 성립한다.",
    ),
    "study.verdict.in_none": ("Not reproduced.", "재현되지 않았다."),
    "study.verdict.largest": ("Largest change here: {change}.", "이 연구의 가장 큰 변화: {change}."),
    "study.verdict.published": ("The paper's: {change}.", "논문의 변화: {change}."),
    # sensitivity
    "study.sensitivity": (
        "{scheme}, “{parameter}” {varied}: the sign of reordering's effect on response time {verdict} (mean {change}; "
        "with the study's own value {base}).",
        "{scheme}, “{parameter}” {varied}: 응답 시간에 대한 재정렬 효과의 부호가 {verdict}(평균 {change}, 연구 자체의 "
        "값에서는 {base}).",
    ),
    "study.halved": ("halved to {value}", "절반({value})"),
    "study.doubled": ("doubled to {value}", "두 배({value})"),
    "study.holds": ("holds", "유지된다"),
    "study.holds_in_some": (
        "holds in {holds} of {of} cells only",
        "셀 {of}개 가운데 {holds}개에서만 유지된다",
    ),
    "study.holds_in_none": ("does not hold", "유지되지 않는다"),
    # jobs
    "study.jobs.generated": (
        "Jobs: {jobs} generated for each seed, with hyper-exponential run times, sizes of powers of two and "
        "exponential times between arrivals. No trace was used.",
        "작업: 시드마다 {jobs}개를 생성했다. 실행 시간은 초지수 분포, 크기는 2의 거듭제곱, 도착 간격은 지수 분포를 "
        "따른다. 트레이스는 사용하지 않았다.",
    ),
    "study.jobs.trace": (
        "Jobs: the trace {name}, {jobs} jobs of at most {largest} processes.",
        "작업: 트레이스 {name}, 작업 {jobs}개, 작업당 프로세스 최대 {largest}개.",
    ),
    "study.jobs.sizes": (
        "Sizes were multiplied by {nodes}/{largest} and rounded to powers of two; jobs of a single process were "
        "dropped, which leaves {usable}. Each seed has {jobs} consecutive ones, from a random one on.",
        "크기에 {nodes}/{largest:을/를} 곱해 2의 거듭제곱으로 반올림하고 프로세스가 하나인 작업을 뺐으며, {usable}개가 "
        "남는다. 시드마다 무작위로 정한 작업부터 이어지는 {jobs}개를 사용한다.",
    ),
    "study.jobs.times": (
        "Run times were cut off at their 95th percentile and scaled to their mean, arrivals to the offered load.",
        "실행 시간은 95백분위수에서 자른 뒤 정해진 평균에 맞추었고, 도착 시각은 부하율에 맞추었다.",
    ),
    "study.jobs.starts": (
        "The trace's header says that its submit times are start times.",
        "트레이스의 머리말에 따르면 제출 시각은 시작 시각이다.",
    ),
    # sections of the report
    "study.section.statements": ("The paper's statements and this study", "논문의 진술과 이 연구"),
    "study.section.response": ("Response time (figures 4a, 4c, 5a, 5c)", "응답 시간(그림 4a, 4c, 5a, 5c)"),
    "study.section.system": ("System time (figures 4b, 4d, 5b, 5d)", "시스템 시간(그림 4b, 4d, 5b, 5d)"),
    "study.section.cells": ("Every cell", "모든 셀"),
    "study.section.effects": ("Every effect that a statement is about", "진술에 해당하는 모든 효과"),
    "study.section.sensitivity": ("Sensitivity to the assumed constants", "가정한 상수에 대한 민감도"),
    "study.section.jobs": ("Jobs", "작업"),
    "study.section.parameters": ("Parameters", "매개변수"),
    "study.section.limits": ("What the results mean", "결과의 의미"),
    # facts
    "study.fact.runs": ("{done} of {runs}", "{runs}회 중 {done}회"),
    "study.fact.seeds": ("Seeds", "시드"),
    "study.fact.schemes": ("Schemes", "방식"),
    "study.fact.trace": ("Trace", "트레이스"),
    "study.generated": ("none: generated jobs", "없음(생성한 작업)"),
    # figures and tables
    "study.figure.response": ("{cell}: mean response time of the jobs", "{cell}: 작업의 평균 응답 시간"),
    "study.figure.response_note": (
        "Mean over the seeds with its 95 % interval. Shorter is better. An arrow: the interval goes on.",
        "시드에 대한 평균과 95% 신뢰 구간이다. 짧을수록 좋다. 화살표는 구간이 더 이어짐을 뜻한다.",
    ),
    "study.figure.system": ("{cell}: system time", "{cell}: 시스템 시간"),
    "study.figure.system_note": (
        "Elapsed time × nodes. Overhead: interrupts, load updates and reordering.",
        "경과 시간 × 노드 수. 오버헤드는 인터럽트, 부하 갱신, 재정렬이다.",
    ),
    "study.figure.parts": ("idle {idle}, spin {spin}", "유휴 {idle}, 스핀 {spin}"),
    "study.axis.system": ("node-seconds", "노드·초"),
    "study.effects": (
        "Relative change of {metric}: {statement}",
        "{metric}의 상대 변화: {statement}",
    ),
    "study.part.compute": ("compute", "계산"),
    "study.part.idle": ("idle", "유휴"),
    "study.part.spin": ("spin", "스핀"),
    "study.part.switch": ("switch", "문맥 교환"),
    "study.part.overhead": ("overhead", "오버헤드"),
    "study.column.statement": ("statement", "진술"),
    "study.column.paper": ("paper", "논문"),
    "study.column.largest": ("largest here", "이 연구의 최대"),
    "study.column.cells": ("cells", "성립한 셀"),
    "study.column.verdict": ("verdict", "판정"),
    "study.column.cell": ("cell", "셀"),
    "study.column.of": ("of", "대상"),
    "study.column.against": ("against", "비교 기준"),
    "study.column.change": ("change", "변화"),
    "study.column.interval": ("95 % interval", "95% 신뢰 구간"),
    "study.column.scheme": ("scheme", "방식"),
    "study.column.seeds": ("seeds", "시드"),
    "study.column.response": ("response s", "응답 s"),
    "study.column.switches": ("switches", "문맥 교환 횟수"),
    "study.no_number": ("no number", "수치 없음"),
    "study.in_cells": ("{holds} of {of}", "{of}개 중 {holds}개"),
    # limits
    "study.limit.assumptions": (
        "The paper states none of the simulated machine's constants. All of them are assumptions, fixed before the "
        "first study was run and listed above; they were not fitted to the paper's figures.",
        "논문은 시뮬레이션한 장비의 상수를 하나도 밝히지 않았다. 위에 적은 상수는 모두 첫 연구를 실행하기 전에 정한 "
        "가정이며, 논문의 그림에 맞춘 값이 아니다.",
    ),
    "study.limit.intervals": (
        "An interval is a 95 % interval over the seeds: of a mean by Student's t on a logarithmic scale, of an effect "
        "by the bootstrap in pairs, because all schemes of a cell have the same jobs and random numbers for a seed. It "
        "says nothing about other constants; the sensitivity analysis does.",
        "구간은 시드에 대한 95% 신뢰 구간이다. 평균은 로그 척도에서 스튜던트 t 분포로 구한다. 한 시드에서는 셀의 모든 "
        "방식이 같은 작업과 난수를 쓰므로 효과는 짝지은 부트스트랩으로 구한다. 구간은 다른 상수에 대해서는 아무것도 "
        "말하지 않으며, 이는 민감도 분석으로 알 수 있다.",
    ),
    "study.limit.verdicts": (
        "A statement is reproduced where the interval of the effect has its sign in every cell that it is about. It is "
        "judged only if each of these cells has at least {least} seeds.",
        "해당하는 모든 셀에서 효과의 구간이 진술과 같은 부호를 가지면 재현된 것이다. 각 셀에 시드가 {least}개 이상 "
        "있을 때만 판정한다.",
    ),
}

PARAMETERS = {
    "parameter.nodes": ("Nodes", "노드 수"),
    "parameter.nodes.help": ("One CPU each.", "노드마다 CPU가 하나 있다."),
    "parameter.mpl": ("Multiprogramming level", "다중 프로그래밍 정도"),
    "parameter.mpl.help": ("Processes on a node at most.", "한 노드의 최대 프로세스 수."),
    "parameter.switch_s": ("Context switch", "문맥 교환"),
    "parameter.interrupt_s": ("Interrupt", "인터럽트"),
    "parameter.load_update_s": ("Load update, per message", "부하 갱신, 메시지당"),
    "parameter.reorder_s": ("Reordering", "재정렬"),
    "parameter.reorder_message_s": ("Reordering, per pending message", "재정렬, 대기 중인 메시지당"),
    "parameter.host_s": ("Send or receive a message", "메시지 송신 또는 수신"),
    "parameter.latency_s": ("Network latency", "네트워크 지연"),
    "parameter.exchange_s": ("Communication phase", "통신 단계"),
    "parameter.exchange_s.help": ("If all processes run at once.", "모든 프로세스가 동시에 실행될 때."),
    "parameter.boost_period_s": ("Boost period", "우선순위 상승 주기"),
    "parameter.boost_period_s.help": ("Of periodic boost.", "주기적 우선순위 상승의 주기."),
    "parameter.spin_factor": ("Spin time", "스핀 시간"),
    "parameter.spin_factor.help": (
        "A multiple of 2 × (switch + interrupt) + latency.",
        "2 × (문맥 교환 + 인터럽트) + 지연의 배수.",
    ),
    "parameter.first_slice_s": ("Initial mean time slice", "타임 슬라이스 평균의 초깃값"),
    "parameter.wake_window_s": ("Period of the mean number woken", "깨어난 프로세스 수 평균의 주기"),
    "parameter.enp": ("Expected number of processes", "예상 프로세스 수"),
    "parameter.enp.help": (
        "Whether a process with pending messages that is also among the next to run counts once or twice in ENP.",
        "대기 중인 메시지가 있으면서 다음에 실행될 준비 상태이기도 한 프로세스를 ENP에서 한 번 셀지 두 번 셀지 정한다.",
    ),
    "parameter.enp.union": ("union: once", "합집합: 한 번"),
    "parameter.enp.sum": ("sum: twice", "합: 두 번"),
    "parameter.ert_sign": ("Sign of the elapsed time", "경과 시간의 부호"),
    "parameter.ert_sign.help": (
        "The paper prints a plus, which contradicts its own algorithm.",
        "논문에는 더하기로 적혀 있으나 논문 자체의 알고리즘과 모순된다.",
    ),
    "parameter.ert_sign.minus": ("minus", "빼기"),
    "parameter.ert_sign.printed": ("plus, as printed", "논문에 적힌 대로 더하기"),
    "parameter.imbalance": ("Distribution of the imbalance", "불균형의 분포"),
    "parameter.imbalance.help": (
        "Of the factors of computation and I/O, whose mean is 1. Uniform: from 1 − v/2 to 1 + v/2. Gamma: their "
        "squared coefficient of variation is v.",
        "계산과 입출력에 곱하는 평균 1인 수의 분포. 균등 분포: 1 − v/2부터 1 + v/2까지. 감마 분포: 변동 계수의 제곱이 "
        "v이다.",
    ),
    "parameter.imbalance.per_phase": ("uniform, in each phase", "단계마다 균등 분포"),
    "parameter.imbalance.per_process": ("uniform, once per process", "프로세스마다 한 번 균등 분포"),
    "parameter.imbalance.gamma": ("gamma, in each phase", "단계마다 감마 분포"),
    "parameter.offered": ("Offered load", "부하율"),
    "parameter.offered.help": ("Node-seconds of jobs ÷ capacity.", "작업의 노드·초 ÷ 용량."),
    "parameter.mean_run_s": ("Mean ideal run time", "이상적 실행 시간의 평균"),
    "parameter.jobs": ("Jobs", "작업 수"),
}
"""Labels, help texts and options of the parameters, whose English is declared in simulation.parameters."""
