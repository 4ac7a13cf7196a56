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
}
