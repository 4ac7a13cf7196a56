"""/proc/softirqs: runs of each kind of softirq by CPU, with a column for every possible CPU."""

PATH = "proc/softirqs"
