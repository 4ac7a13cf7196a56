/** How long a metric must exceed a guardrail's bound to violate it. */
export const VIOLATION_PERIOD = "for 2 intervals in a row and at least 2 s";

/**
 * Every metric by name. Generated from coresteer_core.metrics by `make types`.
 *
 * better: the direction of an improvement; short: for legends and headings; chart: the one of the node's page;
 * history: a series, and in live frames; fleet: a figure of the fleet's page; experiment: measured in runs;
 * guardrail: a guardrail can watch it.
 */
export const METRICS = {
  rx_bytes_per_s: {"label": "Received", "unit": "B/s", "better": "", "short": "received", "chart": "throughput", "history": true, "fleet": true, "experiment": false, "guardrail": false},
  tx_bytes_per_s: {"label": "Sent", "unit": "B/s", "better": "", "short": "sent", "chart": "throughput", "history": true, "fleet": true, "experiment": false, "guardrail": false},
  rx_packets_per_s: {"label": "Packets received", "unit": "1/s", "better": "", "short": "received", "chart": "packets", "history": true, "fleet": true, "experiment": false, "guardrail": false},
  rx_bit_per_s: {"label": "Received", "unit": "bit/s", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": false, "guardrail": false},
  tx_bit_per_s: {"label": "Sent", "unit": "bit/s", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": false, "guardrail": false},
  throughput_bit_per_s: {"label": "Throughput", "unit": "bit/s", "better": "more", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  requests_per_s: {"label": "Requests", "unit": "1/s", "better": "more", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  packets_per_s: {"label": "Packets received", "unit": "1/s", "better": "more", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  tx_packets_per_s: {"label": "Packets sent", "unit": "1/s", "better": "", "short": "sent", "chart": "packets", "history": true, "fleet": false, "experiment": false, "guardrail": false},
  interrupts_per_s: {"label": "Device interrupts", "unit": "1/s", "better": "less", "short": "interrupts", "chart": "interrupts", "history": true, "fleet": true, "experiment": true, "guardrail": false},
  packets_per_interrupt: {"label": "Packets per interrupt", "unit": "", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_busy_percent: {"label": "CPU, all CPUs together", "unit": "% of one CPU", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_softirq_percent: {"label": "CPU in softirq", "unit": "% of one CPU", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_irq_percent: {"label": "CPU in interrupts", "unit": "% of one CPU", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_user_percent: {"label": "CPU in user space", "unit": "% of one CPU", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_system_percent: {"label": "CPU in the kernel", "unit": "% of one CPU", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  cpu_s_per_gbit: {"label": "CPU per gigabit", "unit": "s/Gbit", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  busiest_cpu_percent: {"label": "Busiest CPU", "unit": "%", "better": "less", "short": "busiest CPU", "chart": "", "history": false, "fleet": true, "experiment": false, "guardrail": true},
  softirq_cpu_percent: {"label": "Softirq on its busiest CPU", "unit": "%", "better": "less", "short": "softirq, hottest", "chart": "", "history": false, "fleet": true, "experiment": false, "guardrail": false},
  rtt_p50_us: {"label": "Response time, median", "unit": "µs", "better": "less", "short": "RTT p50", "chart": "round-trip", "history": true, "fleet": false, "experiment": true, "guardrail": false},
  rtt_p95_us: {"label": "Response time, 95th percentile", "unit": "µs", "better": "less", "short": "RTT p95", "chart": "round-trip", "history": true, "fleet": false, "experiment": true, "guardrail": false},
  rtt_p99_us: {"label": "Response time, 99th percentile", "unit": "µs", "better": "less", "short": "RTT p99", "chart": "round-trip", "history": true, "fleet": true, "experiment": true, "guardrail": true},
  dropped_per_s: {"label": "Packets dropped by netdevs", "unit": "1/s", "better": "less", "short": "dropped packets", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": true},
  softnet_dropped_per_s: {"label": "Packets dropped by softnet", "unit": "1/s", "better": "less", "short": "softnet drops", "chart": "losses", "history": true, "fleet": true, "experiment": false, "guardrail": false},
  squeezed_per_s: {"label": "Softirq budget used up", "unit": "1/s", "better": "less", "short": "squeezed", "chart": "losses", "history": true, "fleet": true, "experiment": true, "guardrail": false},
  retransmits_per_s: {"label": "TCP retransmissions", "unit": "1/s", "better": "less", "short": "retransmitted", "chart": "losses", "history": true, "fleet": false, "experiment": false, "guardrail": false},
  tcp_listen_overflows_per_s: {"label": "TCP listen queue overflows", "unit": "1/s", "better": "less", "short": "listen overflows", "chart": "losses", "history": true, "fleet": false, "experiment": false, "guardrail": false},
  tcp_segments_sent_per_s: {"label": "TCP segments sent", "unit": "1/s", "better": "", "short": "segments sent", "chart": "", "history": true, "fleet": false, "experiment": false, "guardrail": false},
  context_switches_per_s: {"label": "Context switches", "unit": "1/s", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  migrations_per_s: {"label": "Tasks moved between CPUs", "unit": "1/s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  remote_numa_share: {"label": "Memory from another NUMA node", "unit": "", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  pages_moved: {"label": "Pages moved", "unit": "", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  contention_factor: {"label": "Contention factor", "unit": "", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  makespan_s: {"label": "Total run time", "unit": "s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  memory_run_s: {"label": "Run time of memory processes", "unit": "s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  compute_run_s: {"label": "Run time of computing processes", "unit": "s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  job_response_s: {"label": "Response time of a job", "unit": "s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  loops_per_s: {"label": "Loops of jobs", "unit": "1/s", "better": "more", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  spin_s: {"label": "CPU time spent spinning", "unit": "s", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  idle_percent: {"label": "Idle, CPUs of the load", "unit": "%", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  voluntary_switches_per_loop: {"label": "Voluntary context switches per loop", "unit": "", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  involuntary_switches_per_loop: {"label": "Involuntary context switches per loop", "unit": "", "better": "", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c1_mean_us: {"label": "Response time, class 1", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c2_mean_us: {"label": "Response time, class 2", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c3_mean_us: {"label": "Response time, class 3", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c4_mean_us: {"label": "Response time, class 4", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c5_mean_us: {"label": "Response time, class 5", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  all_mean_us: {"label": "Response time, all classes", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  c5_by_c1: {"label": "Class 5 / class 1", "unit": "", "better": "more", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  longest_wait_us: {"label": "Longest wait for a CPU", "unit": "µs", "better": "less", "short": "", "chart": "", "history": false, "fleet": false, "experiment": true, "guardrail": false},
  agent_cpu_percent: {"label": "CPU of the agent", "unit": "% of one CPU", "better": "less", "short": "of one CPU", "chart": "agent", "history": true, "fleet": false, "experiment": false, "guardrail": false},
  agent_rss_bytes: {"label": "Memory of the agent", "unit": "B", "better": "less", "short": "memory", "chart": "", "history": true, "fleet": false, "experiment": false, "guardrail": false},
} as const;
