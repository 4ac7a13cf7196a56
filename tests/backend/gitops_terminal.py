"""A terminal in which a test runs `coresteer export`, `plan` and `apply` against its backend."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.backend.conftest import Backend, Client
from tests.backend.policy_node import asked

from coresteer.cli import api_client, main
from coresteer.cli.gitops.yaml_files import write

Json = dict[str, Any]  # Any: YAML


@dataclass
class Terminal:
    """Runs commands with an API token. operator: a session. folder: of YAML files; managed_by: name of their set."""

    folder: Path
    operator: Client
    capsys: pytest.CaptureFixture[str]
    managed_by: str

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        code = await asyncio.to_thread(main.main, list(arguments))
        printed = self.capsys.readouterr()
        return code, printed.out + printed.err

    async def plan(self, *options: str) -> tuple[int, str]:
        return await self.run("plan", str(self.folder), "--managed-by", self.managed_by, *options)

    async def apply(self, *options: str) -> tuple[int, str]:
        return await self.run("apply", str(self.folder), "--managed-by", self.managed_by, "--yes", *options)

    def write(self, *documents: Json) -> None:
        (self.folder / "all.yaml").write_text(write(list(documents)))

    async def policy(self, name: str) -> Json:
        found = (await self.operator.get("/api/v1/policies")).json()
        return next((policy for policy in found if policy["name"] == name), {})


async def new_terminal(
    backend: Backend,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    role: str = "operator",
) -> Terminal:
    """A terminal whose environment has the address of the backend and a token with the role."""
    made = await asked(
        await backend.client("admin"), "/api/v1/tokens", {"name": f"gitops {uuid4()}", "role": role}, 201
    )
    monkeypatch.setenv("CORESTEER_URL", backend.url)
    monkeypatch.setenv("CORESTEER_TOKEN", made["token"])
    monkeypatch.setattr(api_client, "POLL_S", 0.05)
    return Terminal(folder, await backend.client("operator"), capsys, f"set-{uuid4().hex[:8]}")


def policy(name: str | None = None, **fields: object) -> Json:
    made = {"kind": "Policy", "name": name or f"spread {uuid4().hex[:8]}", "spec": {"type": "irq-spread"}}
    return made | {"selector": {"labels": {"pool": uuid4().hex}}} | fields
