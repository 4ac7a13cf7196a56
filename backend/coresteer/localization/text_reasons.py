"""Reasons for discarded runs and for experiments that ended early, in English and Korean.

schedule.py, next_step.py, run_loop.py, session_state.py and the agents write them; they are stored as English
sentences, which reports in Korean translate. Of several patterns that match, the first is used. ``{sentence}`` is one
of these reasons, or any other sentence of an agent.
"""

REASONS = {
    "reason.steal": (
        "The hypervisor stole {percent} % of the CPU time, more than {limit} %.",
        "호스트가 CPU 시간의 {percent}%를 가져갔다(한계 {limit}%).",
    ),
    "reason.short": (
        "The run ended after {duration} s; CPU metrics require at least {least} s.",
        "{duration}초 만에 끝났다(CPU 지표에는 {least}초 이상이 필요하다).",
    ),
    "reason.off": (
        "{duration} s were measured instead of {wanted} s; the tolerance is {limit} s.",
        "{wanted}초가 아니라 {duration}초를 측정했다(허용 오차 {limit}초).",
    ),
    "reason.offline": (
        "CPU {cpus} went offline.",
        "CPU {cpus:이/가} 오프라인 상태가 되었다.",
    ),
    "reason.online": (
        "CPU {cpus} came online.",
        "CPU {cpus:이/가} 온라인 상태가 되었다.",
    ),
    "reason.netdev": (
        "The netdev {netdev} is gone.",
        "네트워크 장치 {netdev:이/가} 사라졌다.",
    ),
    "reason.times": (
        "The time of the CPUs could not be read.",
        "CPU 시간을 읽지 못했다.",
    ),
    "reason.changed": (
        "{keys} changed during the measurement.",
        "측정하는 동안 {keys:이/가} 변경되었다.",
    ),
    "reason.lost": (
        "The connection to {node} was lost during the run.",
        "실행 중 {node} 노드와의 연결이 끊어졌다.",
    ),
    "reason.lost_before": (
        "The connection to {node} was lost before the run.",
        "실행 전에 {node} 노드와의 연결이 끊어졌다.",
    ),
    "reason.anew": (
        "{node} prepared the experiment again during the run.",
        "실행 중 {node} 노드가 실험을 처음부터 다시 준비했다.",
    ),
    "reason.not_ready": (
        "{node} was not ready after {seconds} s.",
        "{node} 노드가 {seconds}초 안에 준비되지 않았다.",
    ),
    "reason.not_applied": (
        "The agent did not report whether it applied the settings of the run.",
        "에이전트가 실행의 설정을 적용했는지 알리지 않았다.",
    ),
    "reason.no_result": (
        "{node} did not report the result of the run.",
        "{node} 노드가 실행 결과를 알리지 않았다.",
    ),
    "reason.tried": (
        "Run {number} was discarded in {times} attempts. Last reason: {sentence}",
        "실행 {number:을/를} {times}회 시도했으나 모두 제외되었다. 마지막 사유: {sentence}",
    ),
    "reason.away": (
        "{node} was disconnected for {seconds} s.",
        "{node} 노드와 {seconds}초 동안 연결되지 않았다.",
    ),
    "reason.cancelled": (
        "Cancelled by {actor}.",
        "{actor} 사용자가 취소했다.",
    ),
    "reason.study_cancelled": ("Cancelled.", "취소되었다."),
    "reason.study_interrupted": (
        "The backend stopped while the study ran. Its finished runs are below; start it again for the others.",
        "연구 도중에 백엔드가 멈추었다. 끝난 실행은 아래에 있으며, 나머지는 연구를 다시 시작해야 한다.",
    ),
    "reason.study_worker": (
        "A worker process ended unexpectedly; the machine may have too little memory.",
        "작업 프로세스가 갑자기 종료되었다. 장비의 메모리가 부족할 수 있다.",
    ),
    "reason.study_failed": ("A run failed: {sentence}", "실행이 실패했다: {sentence}"),
    "reason.deleted": (
        "The node that generated the load was deleted.",
        "부하를 만들던 노드가 삭제되었다.",
    ),
    "reason.by_hand": (
        "The change of run {number} was ended manually.",
        "실행 {number}의 변경이 수동으로 종료되었다.",
    ),
    "reason.not_back": (
        "{node} did not report that the settings of the run were rolled back.",
        "{node} 노드가 실행의 설정을 되돌렸는지 알리지 않았다.",
    ),
    "reason.no_interrupt": (
        "The load passes a veth pair, which raises no interrupt.",
        "부하가 인터럽트를 발생시키지 않는 veth 쌍을 지난다.",
    ),
    "reason.change": (
        "Experiment {name}.",
        "실험 {name}.",
    ),
    "reason.no_resctrl": (
        "resctrl is not mounted, or this machine does not have it.",
        "resctrl이 마운트되어 있지 않거나 이 장비에 없다.",
    ),
    "reason.no_bandwidth": (
        "resctrl of this machine does not monitor memory bandwidth.",
        "이 장비의 resctrl은 메모리 대역폭을 측정하지 않는다.",
    ),
    "reason.no_counters": (
        "This machine's performance counters do not count {events}.",
        "이 장비의 성능 카운터는 {events:을/를} 세지 못한다.",
    ),
    "reason.no_hmat": (
        "The firmware does not state what the memory can transfer (HMAT).",
        "펌웨어가 메모리의 전송 능력(HMAT)을 알려 주지 않는다.",
    ),
    "reason.unfinished": (
        "The workload was not finished after {seconds} s, the maximum of a run.",
        "부하가 한 실행의 제한 시간인 {seconds}초 안에 끝나지 않았다.",
    ),
    "reason.no_traffic": (
        "No traffic of the client arrived at the server within {seconds} s.",
        "클라이언트의 트래픽이 {seconds}초 안에 서버에 도착하지 않았다.",
    ),
    "reason.not_started": (
        "The load of the run did not start within {seconds} s.",
        "실행의 부하가 {seconds}초 안에 시작되지 않았다.",
    ),
    "reason.not_prepared": (
        "The experiment was not prepared on this node within {seconds} s.",
        "이 노드에서 실험이 {seconds}초 안에 준비되지 않았다.",
    ),
    "reason.exit_code": (
        "The workload's program ended with exit code {code}; its output is in the agent's log.",
        "부하 프로그램이 종료 코드 {code:으로/로} 끝났다. 출력은 에이전트의 로그에 있다.",
    ),
    "reason.incomplete": (
        "The service classes' workload was not complete after {seconds} s.",
        "서비스 클래스 부하가 {seconds}초 안에 끝나지 않았다.",
    ),
    "reason.one_cpu": (
        "This process has one CPU only; the servers require one that the clients do not use.",
        "이 프로세스가 쓸 수 있는 CPU가 하나뿐이다. 서버에는 클라이언트가 쓰지 않는 CPU가 필요하다.",
    ),
    "reason.no_iperf3": (
        "iperf3 is not installed on this node; install the package iperf3 or use another workload.",
        "이 노드에 iperf3가 설치되어 있지 않다. iperf3 패키지를 설치하거나 다른 부하를 써야 한다.",
    ),
    "reason.no_command": (
        "The configuration of this node allows no command {name}.",
        "이 노드의 설정이 명령 {name:을/를} 허용하지 않는다.",
    ),
    "reason.of_node": (
        "{node}: {sentence}",
        "{node}: {sentence}",
    ),
}

EARLIER_REASONS = {
    "reason.steal": "The host took {percent} % of the CPU time away, more than {limit} %.",
    "reason.short": "It ended after {duration} s, less than the {least} s that CPU figures need.",
    "reason.off": "{duration} s were measured instead of {wanted} s, more than {limit} s off.",
    "reason.changed": "Somebody changed {keys} while it was measured.",
    "reason.lost": "The connection with {node} was lost during the run.",
    "reason.lost_before": "The connection with {node} was lost before the run.",
    "reason.anew": "{node} began anew during the run.",
    "reason.not_applied": "The agent did not say whether it applied the run's settings.",
    "reason.no_result": "{node} did not say what the run came to.",
    "reason.tried": "Run {number} was tried {times} times and never counted, the last time because: {sentence}",
    "reason.away": "{node} was away for {seconds} s.",
    "reason.cancelled": "{actor} cancelled it.",
    "reason.deleted": "The node that made the load was deleted.",
    "reason.by_hand": "Somebody ended the change of run {number} by hand.",
    "reason.not_back": "{node} did not say that the run's settings went back.",
}
"""English patterns of earlier versions, whose sentences are in databases and may come from older agents."""
