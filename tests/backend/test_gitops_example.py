"""The example repository: the commands of its CI jobs against a real backend."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.backend.conftest import Backend
from tests.backend.gitops_terminal import policy
from tests.backend.policy_node import asked

from coresteer.cli.gitops.documents import parse
from coresteer.cli.gitops.yaml_files import files_in, read, write
from coresteer.config import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "gitops"
Json = dict[str, Any]  # Any: YAML


def github_jobs() -> dict[str, Json]:
    text = (EXAMPLE / ".github/workflows/coresteer.yml").read_text()
    workflow: Json = yaml.load(text, yaml.BaseLoader)  # noqa: S506 - all are texts, "on" too
    assert set(workflow["on"]) == {"pull_request", "push", "schedule"}
    return dict(workflow["jobs"])


def gitlab_jobs() -> dict[str, Json]:
    jobs: Json = yaml.safe_load((EXAMPLE / ".gitlab-ci.yml").read_text())
    return {name: job for name, job in jobs.items() if name != "default"}


def github_script(name: str) -> str:
    scripts = (step.get("run", "") for step in github_jobs()[name]["steps"])
    (script,) = (each for each in scripts if re.search("^coresteer ", each, re.MULTILINE))
    return str(script)


def gitlab_script(name: str) -> str:
    return "\n".join(gitlab_jobs()[name]["script"])


SCRIPTS = {"github": github_script, "gitlab": gitlab_script}


@dataclass
class Runner:
    """Runs scripts of jobs as the hosts do: with bash, which ends at an error, in a copy of the repository."""

    folder: Path
    environment: dict[str, str]

    async def run(self, script: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script),
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()


async def runner(backend: Backend, folder: Path, role: str) -> Runner:
    """A runner whose secret is a token with the role."""
    made = await asked(await backend.client("admin"), "/api/v1/tokens", {"name": f"CI {uuid4()}", "role": role}, 201)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return Runner(folder, {"PATH": path, "CORESTEER_URL": backend.url, "CORESTEER_TOKEN": made["token"]})


@pytest.mark.parametrize("host", SCRIPTS)
async def test_the_jobs_plan_apply_and_find_drift(backend: Backend, tmp_path: Path, host: str) -> None:
    script = SCRIPTS[host]
    folder = tmp_path / "repository"
    shutil.copytree(EXAMPLE, folder)
    new = policy()
    (folder / "coresteer/new.yaml").write_text(write([new]))
    plans, applies = await runner(backend, folder, "viewer"), await runner(backend, folder, "admin")
    code, said = await plans.run(script("plan"))
    assert (code, f"+ Policy {new['name']}" in said) == ({"github": 0, "gitlab": 2}[host], True), said
    assert (folder / "plan.txt").read_text() in said
    code, said = await applies.run(script("apply"))
    assert code == 0, said
    code, said = await applies.run(script("apply"))
    assert (code, "0 to create, 0 to change, 0 to delete" in said) == (0, True), said
    code, said = await plans.run(script("drift"))
    assert code == 0, said
    operator = await backend.client("operator")
    changed = next(
        one for one in (await operator.get("/api/v1/policies")).json() if one["name"] == "Database before batch"
    )
    await asked(operator, f"/api/v1/policies/{changed['id']}/disable")
    code, said = await plans.run(script("drift"))
    assert (code, "~ Policy Database before batch" in said) == (2, True), said
    (folder / "coresteer/new.yaml").write_text("kind: Polcy")
    code, said = await plans.run(script("plan"))
    assert code == 1, said


def documents() -> Iterator[str]:
    for path in files_in([EXAMPLE / "coresteer"]):
        assert path.read_text().startswith("# yaml-language-server: $schema=coresteer.schema.json\n")
        yield from (parse(raw).document.kind for raw in read(str(path), path.read_text()))


def test_the_example_has_every_kind_and_jobs_with_secrets_of_their_own() -> None:
    assert set(documents()) == {"Policy", "AlertRule"}
    github, gitlab = github_jobs(), gitlab_jobs()
    for jobs in (github, gitlab):
        assert list(jobs) == ["plan", "apply", "drift"]
    wanted = {"plan": "coresteer-plan", "apply": "coresteer", "drift": "coresteer-plan"}
    assert {name: job["environment"] for name, job in github.items()} == wanted
    assert {name: job["environment"]["name"] for name, job in gitlab.items()} == wanted
    assert gitlab["plan"]["allow_failure"] == {"exit_codes": [2]}
    assert github["plan"]["permissions"]["pull-requests"] == "write"
    assert {name for name, job in github.items() if "CORESTEER_TOKEN" in job["env"]} == set(wanted)
