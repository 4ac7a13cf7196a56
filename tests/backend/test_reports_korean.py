"""Reports in Korean contain no English words but names, units and identifiers."""

import csv
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import get_args

import pytest
from msgspec.structs import replace
from tests.backend.made_up_changes import AT, CHANGE, minutes
from tests.backend.simulated_experiments import longer_coalescing, simulated
from tests.backend.test_experiment_templates import FAMILIES, NODES

from coresteer.changes.schemas import ChangeStep
from coresteer.experiments.schemas import ExperimentState, Template
from coresteer.experiments.templates import templates
from coresteer.localization.text import translate_name
from coresteer.reports.change import change_report
from coresteer.reports.comparison import comparison_report
from coresteer.reports.experiment import experiment_report
from coresteer.reports.model import Report
from coresteer.reports.to_csv import to_csv
from coresteer.reports.to_html import to_html
from coresteer.reports.to_md import to_md
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeState
from coresteer_core.experiments.model import Workload
from coresteer_core.experiments.workload_spec import WorkloadSpec
from coresteer_core.schema import json_schema

AUTHORS = {"Jang", "Jin", "Kim", "Park", "Woo", "Lee", "Song", "Lim", "Eom", "Azougagh", "Maeng", "Dunnett", "Zou"}
NAMES = AUTHORS | {"Donner", "Westfall", "Young", "NUMA"} | {
    *("Linux", "Solaris", "Intel", "Xeon", "PARSEC", "UNAS", "PROC", "Apache", "MySQL", "Coresteer", "JSON", "CSV"),
    *("CPU", "NIC", "TCP", "UDP", "RPS", "IRQ", "ABBA", "BAAB", "MOVER", "irqbalance", "iperf", "softirq", "nice"),
    *("veth", "network-process", "numa", "cgroup", "adaptive-rx", "lab", "kim", "eth", "ice", "amd", "example", "MPL"),
}  # fmt: skip
UNITS = {"bit", "Gbit", "Mbit", "MiB", "kB", "ms", "µs"}
IDENTIFIER = re.compile(
    r"[\w./{}()-]+ = \S+|coresteer-agent \w+|[\w.{}()-]*[/_][\w./{}()-]*|experiment\.\w+|cpu\.weight|(rx|tx)-[a-z0-9]+"
)
"""Keys of settings with values, metrics, commands, fields of JSON, and parameters of ethtool."""
WORD = re.compile(r"[A-Za-z][A-Za-z-]{2,}")


STEPS_OF_CHANGES = (
    "Sent to the agent.",
    "Applied and read back. Reverts in 120 s unless confirmed.",
    "Applied and read back. Policy 9 confirms it in 30 s unless a guardrail is violated.",
    "Rolled back because it was not confirmed in time. All 3 settings are restored.",
    "Rolled back on request. 2 of 3 settings are restored.",
    "Confirmed by policy 9 after 30 s, without a guardrail violation.",
)


class _Texts(HTMLParser):
    """The visible texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("style", "pre")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "pre")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.found.append(data)


def texts_of(report: Report) -> Iterator[str]:
    page = _Texts()
    page.feed(to_html(report).decode())
    yield from page.found
    yield from re.sub(r"```.*?```", "", to_md(report).decode(), flags=re.DOTALL).replace("\\", "").splitlines()
    for row in csv.reader(io.StringIO(to_csv(report).decode("utf-8-sig"))):
        yield from row


def unexpected(text: str) -> list[str]:
    """Return the English words of a text that are neither names, units nor identifiers."""
    words = WORD.findall(IDENTIFIER.sub(" ", re.sub(r"⟨m-n⟩|\bm-n\b", "", text)))
    return [word for word in words if not {word, *word.split("-")} & (NAMES | UNITS)]


def english_words(report: Report) -> dict[str, str]:
    """Return each unexpected word with a text that contains it."""
    return {word: text for text in set(texts_of(report)) for word in unexpected(text)}


def one_of_each() -> dict[str, Template]:
    """Return the templates with each kind of workload and number of levels on any node."""
    found: dict[str, Template] = {}
    for node in NODES.values():
        for each in templates(node):
            if each.spec is not None:
                levels = "×".join(str(len(factor.levels)) for factor in each.spec.factors)
                found.setdefault(f"{each.slug} {type(each.spec.workload).__name__} {levels}", each)
    return found


EACH = one_of_each()


def test_every_family_of_templates_is_scanned() -> None:
    assert {family for family in FAMILIES if any(name.startswith(family) for name in EACH)} == set(FAMILIES)


@pytest.mark.parametrize("template", EACH.values(), ids=EACH)
def test_a_korean_report_of_a_template_has_no_english(template: Template) -> None:
    assert template.spec is not None
    found = simulated(replace(template.spec, blocks=6, aa_blocks=6), effect=longer_coalescing, discard_every=20)
    assert english_words(experiment_report(found, "ko")) == {}


@pytest.mark.parametrize("state", [ExperimentState.FAILED, ExperimentState.CANCELLED])
def test_a_korean_report_of_an_early_end_has_no_english(state: ExperimentState) -> None:
    spec = EACH["service-classes Classes 2"].spec
    assert spec is not None
    reasons = {
        ExperimentState.FAILED: "Run 28 was discarded in 3 attempts. Last reason: lab-3: The workload was not "
        "finished after 80 s, the maximum of a run.",
        ExperimentState.CANCELLED: "Cancelled by kim.",
    }
    found = simulated(spec, most_runs=20, state=state, sentence=reasons[state])
    found = found.model_copy(update={"machine": found.machine | {"simulated": True}})
    assert english_words(experiment_report(found, "ko")) == {}


def test_korean_comparisons_and_changes_have_no_english() -> None:
    spec = EACH["rps TcpStream 2"].spec
    assert spec is not None
    one, other = (simulated(spec, effect=longer_coalescing, seed=seed) for seed in (7, 8))
    assert english_words(comparison_report(one, other, "ko")) == {}
    running = one.model_copy(update={"state": ExperimentState.RUNNING})
    assert english_words(comparison_report(running, other, "ko")) == {}
    steps = [ChangeStep(at=AT, state=ChangeState.UNCONFIRMED, sentence=sentence) for sentence in STEPS_OF_CHANGES]
    action = CHANGE.plan.actions[0]
    plain = CHANGE.model_copy(update={"reason": "", "plan": Plan([replace(action, reason="")]), "steps": steps})
    report = change_report(plain, minutes(30, after=False), minutes(30, after=True), "ko")
    assert english_words(report) == {}


@pytest.mark.parametrize("workload", get_args(Workload))
def test_fields_and_values_of_workloads_have_korean_labels(workload: type[WorkloadSpec]) -> None:
    for field in json_schema(workload)["properties"].values():
        for label in (field.get("title", ""), *field.get("enum_labels", {}).values()):
            assert unexpected(translate_name("ko", label)) == []
