"""RX placement of flows of a multi-queue NIC: queue, interrupt and CPU as computed from its key and table."""

import json

from tests.lab.rig import Guest

FLOWS = 40


def test_the_predicted_interrupt_is_the_one_whose_counter_grows(two_socket: Guest) -> None:
    answer = json.loads(two_socket.python("tests.lab.placement_trial", "serve", "10.1.0.1", str(FLOWS)).stdout)
    flows = answer["flows"]
    right = [flow for flow in flows if flow["how"] == "rss" and flow["predicted"] == flow["grown"]]
    assert len(flows) == FLOWS
    assert len({flow["predicted"][0] for flow in flows}) > 2, "the flows should use several queues"
    assert len(right) >= 0.95 * FLOWS, flows
