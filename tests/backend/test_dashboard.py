"""The dashboard for Grafana: a real Prometheus that scrapes a backend answers every query of it."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.backend.conftest import running_backend
from tests.backend.fake_agent import enrolled, rates
from tests.support.dashboard import DASHBOARD, GENERATOR, NEEDS_MORE, QUERIES, is_answered
from tests.support.polling import poll_async
from tests.support.prometheus import program, running_prometheus

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: coresteer, authorization: {{credentials: "{token}"}}, static_configs: [{{targets: ["{host}"]}}]}}
  - job_name: coresteer-nodes
    metrics_path: /metrics/nodes
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{host}"]}}]
"""


def test_the_dashboard_is_what_its_generator_makes() -> None:
    made = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['dashboard']())"
    done = subprocess.run([sys.executable, "-c", made, GENERATOR], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == DASHBOARD, "run python packaging/grafana/generate.py"


async def test_prometheus_answers_every_query(database_url: str, tmp_path: Path) -> None:
    program("prometheus")  # before a backend is started for nothing
    async with running_backend(database_url, chunk_seconds=1) as backend:
        admin = await backend.client("admin")
        token = (await admin.post("/api/v1/tokens", {"name": "prometheus", "role": "viewer"})).json()["token"]
        config = CONFIG.format(token=token, host=urlsplit(backend.url).netloc)
        async with (
            running_prometheus(tmp_path, config) as url,
            await enrolled(backend.database, backend.url, "web-1") as agent,
        ):
            empty, sent = set(QUERIES), 0

            async def are_answered() -> bool:
                nonlocal sent
                sent += 1
                await agent.send_rates([rates(sent)])
                for title in sorted(empty):
                    expr = QUERIES[title].replace("$__rate_interval", "10s")
                    if await is_answered(url, expr):
                        empty.discard(title)
                return empty <= NEEDS_MORE

            await poll_async(are_answered, interval_s=0.5)
