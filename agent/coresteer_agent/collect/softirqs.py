"""/proc/softirqs: runs of each kind of softirq on each CPU, with a column for every possible CPU."""

PATH = "proc/softirqs"
