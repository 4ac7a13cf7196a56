"""/proc/softirqs: how often each kind of softirq ran on each CPU, a column for every possible CPU."""

PATH = "proc/softirqs"
