"""Sentences about the method and the limits of an experiment, in English and Korean."""

METHOD = {
    # method
    "method.primary": (
        "The primary metric ({metric}) was chosen before the first run.",
        "판정 지표({metric})는 측정을 시작하기 전에 정했다.",
    ),
    "method.run": (
        "Each run applies its setting, starts the load, warms up for {warmup}, measures for {measure} with the "
        "kernel's counters, and restores the setting.",
        "실행마다 조건을 적용하고 부하를 시작한 뒤 {warmup} 동안 예열하고, 커널 카운터로 {measure} 동안 측정한 다음 "
        "설정을 되돌린다.",
    ),
    "method.run_whole": (
        "Each run applies its setting, measures the load from start to end with the kernel's counters, at most "
        "{measure}, and restores the setting.",
        "실행마다 조건을 적용하고 부하의 시작부터 끝까지(최대 {measure}) 커널 카운터로 측정한 다음 설정을 되돌린다.",
    ),
    "method.abba": (
        "Runs are grouped in {blocks} blocks of four, in the order ABBA or BAAB, randomized for each block, so that "
        "slow drift affects both levels equally.",
        "실행은 네 번을 한 블록으로 하며, 완만한 변동이 양쪽에 똑같이 영향을 주도록 블록마다 시드에 따라 ABBA 또는 "
        "BAAB 순서를 무작위로 정한다. 블록 수: {blocks}.",
    ),
    "method.blocks": (
        "Runs are grouped in {blocks} blocks; each has every setting once, in an order randomized for each block.",
        "한 블록에서 모든 조건을 한 번씩 실행하며, 순서는 블록마다 시드에 따라 무작위로 정한다. 블록 수: {blocks}.",
    ),
    "method.aa": (
        "Before the comparison the node was compared with itself in {blocks} blocks.",
        "비교에 앞서 {blocks}개 블록에서 노드를 자기 자신과 비교했다.",
    ),
    "method.test": (
        "The unit of analysis is the block, not the sample. Differences are tested by a randomization test at a "
        "significance level of 5 %; the 95 % confidence interval results from the same computation, by resampling "
        "subsets of blocks, and therefore agrees with the test.",
        "분석 단위는 표본이 아니라 블록이다. 차이는 시드로 정한 배정을 다시 섞는 무작위화 검정(유의 수준 5%)으로 "
        "판정한다. 95% 신뢰 구간은 블록의 부분집합을 다시 뽑는 같은 계산에서 구하므로 검정 결과와 일치한다.",
    ),
    "method.many": (
        "All arms are compared with the baseline simultaneously: p and intervals are adjusted for their number, so "
        "the probability of any false positive is about 5 % (Westfall and Young; Dunnett).",
        "모든 조건을 동시에 기준과 비교한다. p값과 신뢰 구간은 조건 수를 반영하므로 전체 조건에서 잘못된 발견이 "
        "하나라도 나올 확률이 약 5%이다(Westfall-Young, Dunnett 방법).",
    ),
    "method.discard": (
        "Runs are discarded by rules that do not use the measured values: the hypervisor stole more than 5 % of the "
        "CPU time, {time}, the node changed during the run (e.g. a CPU went offline), or the run did not complete in "
        "time.",
        "실행을 제외하는 규칙은 측정값을 보지 않는다: 호스트가 CPU 시간의 5% 넘게 가져간 경우, {time}, 측정 중 노드가 "
        "달라진 경우(예: CPU 오프라인), 실행이 제한 시간 안에 끝나지 않은 경우.",
    ),
    "method.attempts": (
        "A discarded run is repeated at once, at most {times} times in all; then it is left out. The experiment fails "
        "if this happens to two runs of an arm in a row, or to its first one.",
        "제외된 실행은 바로 다시 하며 모두 {times}회까지 시도한 뒤 건너뛴다. 같은 조건의 실행을 연달아 두 번 "
        "건너뛰거나 첫 실행을 건너뛰면 실험은 실패한다.",
    ),
    "method.discard_off": ("the measuring time deviates by more than 2 s", "측정 시간이 2초 넘게 벗어난 경우"),
    "method.discard_short": ("the run took less than {shortest}", "{shortest} 안에 끝난 경우"),
    "method.seed": (
        "Seed {seed} determines the order of all runs and all random numbers of the analysis.",
        "시드 {seed:이/가} 전체 실행 순서와 분석에 쓰인 모든 난수를 결정한다.",
    ),
    "method.guardrails": (
        "Guardrails that stop the experiment: {guardrails}.",
        "실험을 중단시키는 가드레일: {guardrails}.",
    ),
    # limits
    "limit.one_node": (
        "One node was measured at one time. Results may differ on other machines, kernels and NICs.",
        "한 노드를 한 시점에 측정했다. 다른 장비, 커널, NIC에서는 결과가 다를 수 있다.",
    ),
    "limit.alone": (
        "Server and client ran on the same node, so its CPUs also did the client's work, and the packets crossed a "
        "virtual link instead of a NIC.",
        "트래픽의 양 끝이 모두 이 노드에 있어 CPU가 클라이언트 작업도 처리했고, 패킷은 NIC이 아니라 가상 링크를 "
        "거쳤다.",
    ),
    "limit.observe": (
        "The load was the node's own traffic, which differs between runs; the randomized order spreads these "
        "differences over all arms, but they widen the intervals.",
        "부하는 노드의 실제 트래픽이므로 실행마다 같지 않다. 실행 순서의 무작위화로 그 영향이 모든 조건에 분산되지만 "
        "신뢰 구간은 넓어진다.",
    ),
    "limit.simulated": (
        "The node is simulated: its measurements are made up and say nothing about real machines.",
        "시뮬레이션 노드이다. 수치는 만들어 낸 값이며 실제 장비에 대해 아무것도 말해 주지 않는다.",
    ),
    "limit.many": (
        "{count} metrics were compared. Only the primary metric is protected against false positives.",
        "지표 {count}개를 비교했다. 우연한 발견에 대한 보호는 판정 지표에만 적용된다.",
    ),
    "limit.early": (
        "The experiment has fewer blocks than planned.",
        "실험이 끝까지 진행되지 않아 블록 수가 계획보다 적다.",
    ),
    "limit.left_out": (
        "Runs that exceed the time limit are left out: an arm that is slow more often than others appears faster than "
        "it is.",
        "제한 시간을 넘긴 실행은 빠진다. 따라서 다른 조건보다 자주 느려지는 조건은 실제보다 빠르게 보인다.",
    ),
    "limit.untranslated": (
        "Texts of agents, the kernel and users are not translated.",
        "에이전트, 커널, 사용자가 직접 쓴 문장은 원문 그대로 실었다.",
    ),
    # repeat
    "repeat.command": (
        "Export this report as JSON; its experiment.spec and experiment.seed are sufficient to repeat the experiment.",
        "이 보고서를 JSON으로 내보내면 experiment.spec과 experiment.seed만으로 실험을 다시 실행할 수 있다.",
    ),
    "repeat.same": (
        "The same data always give the same bytes of this report.",
        "같은 데이터로 만든 보고서는 바이트까지 같다.",
    ),
    "machine.none": ("The machine has not been described.", "장비 정보가 없다."),
}
