"""Metrics for Prometheus: of the backend and of all nodes, in its text format and by its naming rules."""

import asyncio
import json
import re
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.backend.conftest import Backend, Pair, running_backend
from tests.backend.fake_agent import enrolled, rates
from tests.backend.test_fleet import fleet
from tests.support.polling import poll_async
from tests.support.prometheus import program

from coresteer.exporter.nodes import NodeCollector, exported, label_name
from coresteer.fleet.query import Fleet
from coresteer_core.metrics import FLEET_METRICS

MAX_SERIES_OF_A_NODE = 50
Series = dict[tuple[str, str], float]


def exposition(of: Fleet) -> str:
    registry = CollectorRegistry()
    registry.register(NodeCollector(of))
    return generate_latest(registry).decode()


def series(text: str) -> Series:
    """The values by metric and node."""
    return {
        (sample.name, sample.labels.get("node", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_figures_have_base_units_and_unknown_ones_no_series() -> None:
    found = series(exposition(fleet()))
    assert found["coresteer_node_softirq_cpu_ratio", "db-1"] == pytest.approx(0.94)
    assert found["coresteer_node_rx_bytes_per_second", "db-2"] == 2.5e8
    assert found["coresteer_node_up", "web-2"] == 0
    assert found["coresteer_node_open_changes", "web-2"] == 1
    assert ("coresteer_node_softirq_cpu_ratio", "web-2") not in found, "an absent figure is not zero"
    assert not [name for name, _ in found if name.startswith("coresteer_node_rtt")]


def test_a_node_has_few_series() -> None:
    of = fleet()
    for column in of.values.metrics.values():
        column[:] = 1.0
    nodes = Counter(node for _, node in series(exposition(of)))
    assert len(nodes) == len(of.nodes)
    assert max(nodes.values()) == len(FLEET_METRICS) + 4 <= MAX_SERIES_OF_A_NODE


def test_labels_of_a_node_become_labels_of_its_info() -> None:
    (info,) = re.findall('^coresteer_node_info{.*"db-1".*$', exposition(fleet()), re.MULTILINE)
    assert 'label_rack="a"' in info
    assert 'label_role="db"' in info
    assert 'kernel="6.12.117"' in info
    assert label_name("topology.kubernetes.io/zone") == "label_topology_kubernetes_io_zone"


@pytest.mark.parametrize("name", FLEET_METRICS)
def test_each_figure_has_the_name_of_a_base_unit(name: str) -> None:
    assert re.fullmatch(r"coresteer_node_\w+_(per_second|ratio|seconds|bytes)", exported(name)[0])


def test_a_name_in_any_script_is_escaped() -> None:
    name = 'a"\n\\ü'
    of = fleet()
    found = series(exposition(Fleet([replace(of.nodes[0], name=name), *of.nodes[1:]], of.values)))
    assert found["coresteer_node_up", name] == 1


async def test_a_backend_counts_what_it_stores_and_shows_its_state(database_url: str) -> None:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        viewer = await backend.client("viewer")

        async def values(path: str = "/metrics") -> Series:
            return series((await viewer.get(path)).text)

        stored = ("coresteer_samples_stored_total", "")
        before = (await values())[stored]
        async with await enrolled(backend.database, backend.url, "metered", interval_s=60.0) as agent:
            await agent.send_rates([rates(seq) for seq in range(1, 5)])
            await agent.until_acked(4)
            assert (await values())[stored] - before == 4
            assert (await values("/metrics/nodes"))["coresteer_node_up", "metered"] == 1
        assert (await values())["coresteer_leader", ""] == 1
        counted = 'coresteer_http_request_duration_seconds_count{method="GET",route="/metrics/nodes",status="200"}'
        assert counted in (await viewer.get("/metrics")).text


async def test_metrics_need_a_user_or_an_api_token(backend: Backend) -> None:
    for path in ("/metrics", "/metrics/nodes"):
        assert (await backend.anonymous().get(path)).status_code == 401


async def test_the_text_follows_the_rules_of_prometheus(backend: Backend) -> None:
    check = [program("promtool"), "check", "metrics"]
    viewer = await backend.client("viewer")
    for text in ((await viewer.get("/metrics")).text, exposition(fleet())):
        done = await asyncio.to_thread(subprocess.run, check, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("path", ["/metrics/nodes", "/api/v1/nodes"])
async def test_the_first_scrape_has_the_figures_of_nodes_of_another_backend(nats_pair: Pair, path: str) -> None:
    first, second = nats_pair.first.app.state, nats_pair.second.app.state
    name = "elsewhere" + path.replace("/", "-")
    first.interest._fleet_until = 0.0  # 15 s after another scrape
    await poll_async(lambda: not any(need.fleet for need, _ in second.forwarding._leases.values()))
    async with await enrolled(second.database, nats_pair.second.url, name, interval_s=60.0) as agent:
        await agent.send_rates([rates(1)])
        await poll_async(lambda: second.registry.get(agent.node_id).latest_figures() is not None)
        await poll_async(lambda: first.registry.is_connected(agent.node_id))
        text = (await (await nats_pair.first.client("viewer")).get(path)).text
    if path == "/metrics/nodes":
        assert ("coresteer_node_interrupts_per_second", name) in series(text)
    else:
        assert [node["figures"] is not None for node in json.loads(text) if node["name"] == name] == [True]
