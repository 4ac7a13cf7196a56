"""State of the simulated machine, as structured arrays that compiled code reads and writes by name.

A process occupies a slot of its node: slot number = node × MPL + place. Times in seconds.
"""

import numpy as np

FREE, READY, RUNNING, SLEEPS_IO, SLEEPS_MESSAGE = range(5)
COMPUTE, SEND, RECEIVE, SPIN = range(4)
IDLE, OVERHEAD, SWITCHING, BUSY = range(4)

PROCESS = np.dtype(
    [
        ("state", np.int64), ("activity", np.int64),
        ("need_s", np.float64),  # CPU time that its activity still takes
        ("quantum_s", np.float64),  # CPU time until its quantum expires
        ("level", np.int64), ("order", np.int64), ("waited", np.int64),
        ("job", np.int64), ("rank", np.int64), ("peers", np.int64), ("loop", np.int64),
        ("pending", np.int64),  # messages that arrived and that it has not received
        ("oldest_s", np.float64),  # arrival of the oldest of them
        ("arrived_0", np.int64), ("arrived_1", np.int64),  # messages that it has not received, of even and odd loops
        ("received_0", np.int64), ("received_1", np.int64),
        ("taking_0", np.int64), ("taking_1", np.int64),  # those that it is receiving
        ("ert_s", np.float64), ("has_pending", np.int64), ("in_highest", np.int64),  # for reorder.py
    ]
)  # fmt: skip
NODE = np.dtype(
    [
        ("state", np.int64), ("current", np.int64), ("last", np.int64), ("again", np.int64),
        ("next_s", np.float64),  # of the CPU: end of overhead, activity or quantum
        ("free_s", np.float64),  # end of the overhead in progress
        ("since_s", np.float64),  # begin of the activity, or of idling
        ("stolen_s", np.float64),  # overhead within the activity
        ("dispatched_s", np.float64), ("ts_s", np.float64),
        ("woken", np.int64), ("woken_mean", np.float64), ("window", np.int64),
        ("count", np.int64), ("placed", np.int64), ("orders", np.int64), ("fronts", np.int64), ("switches", np.int64),
        ("compute_s", np.float64), ("spin_s", np.float64), ("switch_s", np.float64), ("overhead_s", np.float64),
        ("idle_s", np.float64),
    ]
)  # fmt: skip
SENDER = np.dtype([("pending", np.int64), ("enp", np.float64), ("heard_s", np.float64)])
"""What a process knows of a sender's node: pending messages, ENP and time of the last one."""
PEER = np.dtype([("heard_s", np.float64), ("ts_s", np.float64)])
"""What a node knows of another: time and TS of the last message."""
JOB = np.dtype(
    [
        ("arrival_s", np.float64), ("size", np.int64), ("loops", np.int64),
        ("peers", np.int64),  # messages that each process sends in a loop
        ("delay_s", np.float64),  # of a message
        ("left", np.int64), ("end_s", np.float64),
    ]
)  # fmt: skip
RANK = np.dtype(
    [
        ("slot", np.int64), ("offset", np.int64),
        ("ts_0", np.float64), ("enp_0", np.float64), ("ts_1", np.float64), ("enp_1", np.float64),
    ]
)  # fmt: skip
"""A process of a job: slot, offset of its factors, its node's load when it sent in even and odd loops."""
EVENT = np.dtype([("time_s", np.float64), ("key", np.int64)])
"""key: ((kind × 2 + parity of the loop) × jobs + job) × most processes of a job + rank; it orders equal times."""
IO_DONE, ARRIVED = range(2)
TOTALS = np.dtype(
    [
        ("heap", np.int64),
        ("started", np.int64),
        ("arrived", np.int64),
        ("ended", np.int64),
        ("messages", np.int64),
        ("traced", np.int64),
    ]
)
"""heap: pending events. Jobs that have started, arrived, ended. Messages delivered, slices traced."""
COSTS = np.dtype(
    [
        ("nodes", np.int64), ("mpl", np.int64), ("switch_s", np.float64), ("interrupt_s", np.float64),
        ("load_update_s", np.float64), ("reorder_s", np.float64), ("reorder_message_s", np.float64),
        ("host_s", np.float64), ("spin_s", np.float64), ("boost_period_s", np.float64), ("wake_window_s", np.float64),
        ("sign", np.float64), ("is_sum", np.int64), ("wait", np.int64), ("arrival", np.int64), ("reorder", np.int64),
        ("compute_s", np.float64), ("io_s", np.float64), ("stride", np.int64), ("ring", np.int64),
    ]
)  # fmt: skip
"""Constants of a run: see Parameters, Scheme and Jobs."""
TRACE = np.dtype([("time_s", np.float64), ("node", np.int64), ("job", np.int64), ("rank", np.int64)])
"""Begin of a time slice of a process."""
