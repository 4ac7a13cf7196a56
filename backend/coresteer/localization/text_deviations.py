"""How experiments of templates deviate from those of their papers, in English and Korean."""

DEVIATIONS = {
    "deviation.classes.requests": (
        "A run is {requests} requests, as in the paper; all servers share one CPU.",
        "한 실행은 논문과 같이 요청 {requests}건이며, 모든 서버가 CPU 하나를 함께 쓴다.",
    ),
    "deviation.classes.fewer_requests": (
        "A run is {requests} requests, not 50,000, because it is repeated; all servers share one CPU.",
        "실행을 반복하므로 한 실행은 요청 50,000건이 아니라 {requests}건이며, 모든 서버가 CPU 하나를 함께 쓴다.",
    ),
    "deviation.classes.gate": (
        "The authors' scheduler was in the kernel; here the servers request admission from the gate, which never "
        "interrupts a request.",
        "논문의 스케줄러는 커널 안에 있었다. 여기서는 서버가 게이트에 진입을 요청하며, 게이트는 진행 중인 요청을 "
        "중단시키지 않는다.",
    ),
    "deviation.classes.window": (
        "N and S count the requests of the last {window} s and the pending ones; in the paper they count all requests "
        "since the start.",
        "N과 S는 최근 {window}초의 요청과 대기 중인 요청을 센다. 논문에서는 시작 이후의 모든 요청을 센다.",
    ),
    "deviation.classes.admissions": (
        "A waiting class is served next after {most} admissions of others, whatever its F; the paper has no such "
        "bound.",
        "대기 중인 클래스는 다른 클래스가 {most}회 진입하면 F와 관계없이 다음 차례가 된다. 논문에는 이러한 한계가 "
        "없다.",
    ),
    "deviation.placement.veth": (
        "A veth pair has no interrupt: the CPU that RPS selects takes the place of the interrupt's CPU.",
        "veth 쌍에는 인터럽트가 없으므로 RPS가 선택한 CPU가 인터럽트 CPU를 대신한다.",
    ),
    "deviation.placement.limited": (
        "The load is limited to {limit} Mbit/s, so that CPU time can be compared.",
        "CPU 시간을 비교할 수 있도록 부하를 {limit} Mbit/s로 제한한다.",
    ),
    "deviation.placement.policy": (
        "A policy places the processes; the authors changed the kernel.",
        "정책이 프로세스를 배치한다. 논문에서는 커널을 수정했다.",
    ),
    "deviation.coalescing.software": (
        "No network card supports rx-usecs here, so software coalescing is used: napi_defer_hard_irqs {polls} and "
        "gro_flush_timeout at the paper's times. The kernel polls again after that time instead of waiting for an "
        "interrupt. There is no counterpart of rx-frames.",
        "rx-usecs를 지원하는 NIC이 없어 소프트웨어 병합을 쓴다: napi_defer_hard_irqs {polls}, 논문과 같은 시간의 "
        "gro_flush_timeout. 커널은 인터럽트를 기다리지 않고 그 시간이 지나면 다시 폴링한다. rx-frames에 해당하는 것은 "
        "없다.",
    ),
    "deviation.coalescing.veth": (
        "A veth pair has no interrupt, so CPU time is the primary metric.",
        "veth 쌍에는 인터럽트가 없으므로 CPU 시간이 판정 지표이다.",
    ),
    "deviation.coalescing.no_frames": (
        "rx-frames is not set, so the time alone decides; the authors used 6.",
        "rx-frames를 설정하지 않으므로 시간만이 결정한다. 논문에서는 6을 썼다.",
    ),
    "deviation.coalescing.adaptive": (
        "adaptive-rx, with which the driver adapts the time, is off in every run.",
        "드라이버가 시간을 조절하는 adaptive-rx를 모든 실행에서 끈다.",
    ),
    "deviation.unas.load": (
        "{compute} processes compute and {memory} use {mib} MiB each, instead of PARSEC. All memory is first touched "
        "on the lowest NUMA node, an adverse start; with static pins it is touched by the pinned process.",
        "PARSEC 대신 프로세스 {compute}개가 연산하고 {memory}개가 각각 {mib} MiB의 메모리를 쓴다. 모든 메모리는 가장 "
        "낮은 NUMA 노드에서 처음 접근되는 불리한 조건에서 시작하며, 고정 배치에서는 배치된 프로세스가 접근한다.",
    ),
    "deviation.unas.pins": (
        "Static pins: memory processes on CPUs {memory}, the others on CPUs {compute}.",
        "고정 배치: 메모리 프로세스는 CPU {memory}, 나머지는 CPU {compute}.",
    ),
    "deviation.unas.policy": (
        "The policy moves two processes each 5 s, so with many a run should have more work than about a minute.",
        "정책은 5초마다 프로세스를 둘씩 옮기므로 프로세스가 많으면 작업량이 약 1분보다 많아야 한다.",
    ),
    "deviation.contention.load": (
        "One process to {most} use {mib} MiB each in the memory of one NUMA node, each on a core of its own there. The "
        "difference from the first arm is the slow-down by contention, minus 1.",
        "프로세스 1~{most}개가 한 NUMA 노드의 메모리를 각각 {mib} MiB씩, 그 노드의 서로 다른 코어에서 쓴다. 첫 "
        "조건과의 차이는 경합으로 느려진 배율에서 1을 뺀 값이다.",
    ),
    "deviation.jobs.load": (
        "{jobs} jobs of {processes} processes share the same CPUs, instead of 200 jobs on a cluster; I/O is a sleep, "
        "as in the authors' simulator.",
        "클러스터의 작업 200개 대신 프로세스가 {processes}개인 작업 {jobs}개가 같은 CPU를 함께 쓴다. I/O는 논문의 "
        "시뮬레이터와 같이 대기로 처리한다.",
    ),
    "deviation.jobs.boost": (
        "A boost is a nice value for a period, not a priority of Solaris.",
        "우선순위 상승은 한 주기 동안의 nice 값이며 Solaris의 우선순위가 아니다.",
    ),
}
