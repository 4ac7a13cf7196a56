"""Reports: their findings, their reproducibility, and the escaping of names in them."""

import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from string import Formatter
from typing import Any, TypeGuard
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace as with_fields
from tests.backend.made_up_changes import CHANGE, minutes
from tests.backend.simulated_experiments import ab_spec, cases, longer_coalescing, no_effect, simulated

from coresteer.changes.schemas import ChangeStatus, Undone
from coresteer.config import REPOSITORY
from coresteer.experiments.analysis import analyse
from coresteer.experiments.published import ratio_of
from coresteer.experiments.schedule import discard_reason
from coresteer.experiments.schemas import Experiment, ExperimentState
from coresteer.experiments.spec import Factor, Interval, Level, Verdict
from coresteer.localization.language import Language
from coresteer.localization.numbers import format_amount, format_duration, format_effect, format_number, format_percent
from coresteer.localization.text import SENTENCES, text, translate
from coresteer.reports.change import change_report
from coresteer.reports.comparison import comparison_report
from coresteer.reports.experiment import experiment_report
from coresteer.reports.minutes import compare
from coresteer.reports.model import Dots, Heat, Lines, Paragraph, Report, Runs, Table
from coresteer.reports.svg import PDF_PALETTE, draw
from coresteer.reports.to_csv import to_csv
from coresteer.reports.to_html import to_html
from coresteer.reports.to_json import to_json
from coresteer.reports.to_md import to_md
from coresteer.reports.to_pdf import to_pdf
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Classes, RunResult
from coresteer_core.metrics import EXPERIMENT_METRICS

LANGUAGES: tuple[Language, ...] = ("en", "ko")
MEASURED = RunResult(started_ms=0, duration_s=ab_spec().measure_s, figures={}, cpus={}, load_before=0.0)
FILES = (to_html, to_pdf, to_csv, to_json, to_md)


@pytest.fixture(scope="module")
def made() -> dict[str, Experiment]:
    return cases()


def figures_of(report: Report) -> list[Dots | Runs | Lines | Heat]:
    return [
        block
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Dots | Runs | Lines | Heat)
    ]


def text_of(report: Report) -> str:
    return " ".join(report.findings)


def fields(text: str) -> list[str]:
    return sorted({name for _, name, _, _ in Formatter().parse(text) if name})


@pytest.mark.parametrize("key", SENTENCES)
def test_both_languages_of_a_sentence_have_the_same_placeholders(key: str) -> None:
    assert fields(SENTENCES[key].en) == fields(SENTENCES[key].ko)
    assert all(text.strip() for text in SENTENCES[key])


def test_every_metric_has_a_label_in_both_languages_and_the_english_one_is_declared() -> None:
    assert {name: SENTENCES[f"metric.{name}"].en for name in EXPERIMENT_METRICS} == {
        n: m.label for n, m in EXPERIMENT_METRICS.items()
    }


@pytest.mark.parametrize(
    "sentence",
    [
        *(
            discard_reason(with_fields(MEASURED, **changes), spec) or ""
            for changes, spec in (
                ({"steal_percent": 12.0}, ab_spec()),
                ({"duration_s": 20.0}, ab_spec()),
                ({"duration_s": 0.1}, with_fields(ab_spec(), workload=Classes())),
            )
        ),
        "CPU 3 went offline.",
        "CPU 3-4 came online.",
        "The netdev cs0 is gone.",
        "Somebody changed irq/41/affinity while it was measured.",
    ],
)
def test_discard_reasons_are_translated_to_korean(sentence: str) -> None:
    published = translate("ko", sentence)
    assert re.search("[가-힣]", published), published
    assert translate("en", sentence) == sentence


def test_a_nested_reason_is_translated_and_an_agents_own_text_is_not() -> None:
    inner = "The host took 12.0 % of the CPU time away, more than 5 %."
    outer = f"Run 3 was tried 3 times and never counted, the last time because: web-1: {inner}"
    assert translate("ko", outer).endswith(f"web-1: {translate('ko', inner)}")
    assert translate("ko", "No iperf3 here.") == "No iperf3 here."


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("처리량", "처리량이"),
        ("응답 시간 중앙값", "응답 시간 중앙값이"),
        ("속도", "속도가"),
        ("rx-usecs", "rx-usecs가"),
        ("IRQ 3", "IRQ 3이"),
    ],
)
def test_a_korean_particle_follows_how_its_word_ends(metric: str, expected: str) -> None:
    assert expected in text("ko", "sweep.trend_up", metric=metric, factor="x", rho="1", p="0.01")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-5.5, "−5.50"),
    ],
)
def test_a_number_has_about_three_digits(value: float, expected: str) -> None:
    assert format_number(value) == expected


def test_units_and_signs_are_those_of_the_language() -> None:
    assert format_amount(9.41e9, "bit/s", "en") == "9.41 Gbit/s"
    assert format_amount(None, "µs", "en") == "–"
    assert format_percent(-0.0123, "en") == "−1.2 %"
    assert format_percent(0.0123, "ko") == "+1.2%"
    assert format_percent(0.0121, "en", signed=False, up=True) == "1.3 %"
    assert format_percent(0.0, "en") == "0.0 %"
    assert format_duration(3725, "en") == "62 min 5 s"


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (Interval(0.0003, 0.0001, 0.0004), "+0.03 % (+0.01 % to +0.04 %)"),
        (Interval(-0.00096, -0.0019, -0.00004), "−0.1 % (−0.2 % to 0.00 %)"),
    ],
)
def test_a_percentage_below_a_tenth_has_two_decimals_as_on_the_page(effect: Interval, expected: str) -> None:
    assert format_effect(effect, "en") == expected


def test_an_effect_is_reported_with_its_interval_and_whether_it_is_an_improvement(made: dict[str, Experiment]) -> None:
    first = experiment_report(made["ab"], "en").findings[0]
    assert first.startswith("Device interrupts: 37.8 % lower with 90 µs than with 18 µs (95 % confidence interval −")
    assert first.endswith("That is an improvement.")


def test_no_difference_is_reported_with_the_largest_difference_in_the_interval(made: dict[str, Experiment]) -> None:
    effect = made["ab-nothing"].analysis.comparisons[0].effect
    assert effect is not None
    bound = format_percent(max(-effect.low, effect.high), "en", signed=False, up=True)
    first = experiment_report(made["ab-nothing"], "en").findings[0]
    assert first.startswith(f"No difference in throughput larger than {bound} was found between 90 µs and 18 µs")


def test_a_wide_interval_is_not_reported_as_no_difference(made: dict[str, Experiment]) -> None:
    assert "cannot be ruled out" in experiment_report(made["ab-unsteady"], "en").findings[0]


def test_a_sweep_reports_the_number_of_differing_levels_and_the_trend(made: dict[str, Experiment]) -> None:
    text = text_of(experiment_report(made["sweep"], "en"))
    assert "Device interrupts: lower with each of the 4 levels than with 18 µs." in text
    assert "decreases with rx-usecs (Spearman's ρ −1.00" in text


def test_an_early_end_is_the_first_finding_when_there_is_no_result(made: dict[str, Experiment]) -> None:
    report = experiment_report(made["stopped"], "en")
    assert report.findings[0].startswith("A guardrail stopped the experiment before its end: TCP round-trip time")
    assert report.findings[-1] == "Settings that differ from their values before the experiment: irq/41/affinity."


@pytest.mark.parametrize("name", ["aa", "ab", "ab-unsteady", "sweep", "grid", "stopped", "empty"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_of_experiment_is_written_in_every_format(
    made: dict[str, Experiment], name: str, language: Language
) -> None:
    report = experiment_report(made[name], language)
    assert report.findings
    assert all(section.blocks for section in report.sections)
    for figure in figures_of(report):
        ElementTree.fromstring(draw(figure, PDF_PALETTE, language))  # noqa: S314 - our own
    assert to_pdf(report).startswith(b"%PDF-")
    for sentence in report.findings:
        assert sentence.replace("&", "&amp;")[:20] in to_html(report).decode().replace("&#39;", "'")


def test_published_results_are_compared_with_the_measured_ones(made: dict[str, Experiment]) -> None:
    report = experiment_report(made["sweep"], "en")
    (section,) = [section for section in report.sections if section.title == "Comparison with the published results"]
    (lines,) = [block for block in section.blocks if isinstance(block, Lines)]
    assert [(line.name, line.is_published) for line in lines.lines] == [("the paper", True), ("this node", False)]
    assert [(at, round(e.value)) for at, e in lines.lines[0].points] == [(18, 100), (36, 100), (90, 20)]


def test_discarded_runs_are_listed_with_their_reason_and_drawn_as_crosses(made: dict[str, Experiment]) -> None:
    report = experiment_report(made["ab"], "en")
    (runs,) = [figure for figure in figures_of(report) if isinstance(figure, Runs)]
    assert sum(point.is_discarded for point in runs.points) == 5
    assert to_html(report).decode().count("The host took 7.2 % of the CPU time away") == 5


def test_csv_has_every_metric_of_every_run(made: dict[str, Experiment]) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(experiment_report(made["ab"], "en")).decode("utf-8-sig"))))
    assert len(rows) == sum(len(run.figures) for run in made["ab"].runs)
    run = made["ab"].runs[0]
    (row,) = [r for r in rows if (r["run"], r["attempt"], r["figure"]) == ("0", "0", "rtt_p99_us")]
    assert float(row["value"]) == run.figures["rtt_p99_us"]
    assert row["setting"] == "18 µs"


def test_json_contains_the_spec_that_repeats_the_experiment(made: dict[str, Experiment]) -> None:
    document: dict[str, Any] = msgspec.json.decode(to_json(experiment_report(made["ab"], "en")))
    assert document["format"] == "coresteer-report-1"
    assert document["experiment"]["spec"] == msgspec.to_builtins(made["ab"].spec)
    assert document["experiment"]["seed"] == 7
    assert len(document["experiment"]["runs"]) == len(made["ab"].runs)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("machine", "origin"),
    [
        ({"simulated": True}, "simulated-node"),
        ({"emulated": True}, "emulated-machine"),
        ({"peer": {"simulated": True}}, "simulated-node"),
    ],
    ids=["simulated", "emulated", "simulated peer"],
)
def test_a_report_of_what_is_not_measured_says_so_in_every_format(
    made: dict[str, Experiment], machine: dict[str, Any], origin: str, language: Language
) -> None:
    experiment = made["ab"].model_copy(update={"machine": made["ab"].machine | machine})
    report, measured = (experiment_report(one, language) for one in (experiment, made["ab"]))
    assert (report.origin, measured.mark) == (origin, "")
    page = to_html(report).decode()
    assert f'<div class="mark" role="note">{report.mark}</div>' in page, "stays in sight on the screen"
    assert f'@top-center {{ content: "{report.mark}"' in page, "on every printed page"
    assert 'class="mark"' not in to_html(measured).decode()
    assert report.mark in to_md(report).decode().splitlines()[2]
    document, other = (msgspec.json.decode(to_json(one)) for one in (report, measured))
    assert (document["simulated"], document["report"]["origin"], other["simulated"]) == (True, origin, False)
    rows = list(csv.reader(io.StringIO(to_csv(report).decode("utf-8-sig"))))
    assert {row[-1] for row in rows[1:]} == {text(language, f"origin.{origin}")}
    assert comparison_report(made["ab"], experiment, language).origin == origin


def test_a_change_of_a_simulated_node_is_marked() -> None:
    report = change_report(CHANGE, [], [], "en", origin="simulated-node")
    assert report.mark.startswith("SIMULATED")


@pytest.mark.parametrize(
    ("machine", "peer", "expected"),
    [
        ({"netdev": "coresteer0"}, None, "netdev/coresteer0/coalesce/rx-usecs = 90"),
        ({}, 4, "netdev/eth0/coalesce/rx-usecs = 90"),
        ({}, None, "netdev/eth0/coalesce/rx-usecs = 90"),
    ],
    ids=["recorded", "by its settings, peer", "by its settings"],
)
def test_the_netdev_of_the_load_has_its_name(machine: dict[str, str], peer: int | None, expected: str) -> None:
    levels = [Level("18 µs"), Level("90 µs", [DesiredValue("netdev/{netdev}/coalesce/rx-usecs", "90")])]
    found = simulated(ab_spec(factors=[Factor("rx-usecs", levels)], peer_node_id=peer))
    found = found.model_copy(update={"machine": found.machine | machine})
    for write in (to_html, to_csv, to_md):
        assert "{netdev}" not in write(experiment_report(found, "en")).decode()
    assert expected in to_html(experiment_report(found, "en")).decode()


def test_times_have_their_zone(made: dict[str, Experiment]) -> None:
    report = experiment_report(made["ab"], "en")
    assert dict(report.facts)["Started"] == "2026-03-01 09:00:00Z"
    assert report.records[0][report.columns.index("started")] == "2026-03-01T09:00:00.000+00:00"


def test_the_first_finding_is_bold_and_as_large_as_those_that_qualify_it(made: dict[str, Experiment]) -> None:
    page = to_html(experiment_report(made["ab-nothing"], "en")).decode()
    (rule,) = re.findall(r"\.findings p:first-of-type \{(.*?)\}", page)
    assert "font-weight" in rule
    assert "size" not in rule
    lines = to_md(experiment_report(made["ab-nothing"], "en")).decode().splitlines()
    assert any(line.startswith("**No difference in throughput") for line in lines)


def test_markdown_has_findings_tables_and_escaped_names(made: dict[str, Experiment]) -> None:
    page = to_md(experiment_report(made["ab"], "en")).decode()
    assert page.startswith("# rx-usecs 18 against 90\n")
    assert "**Device interrupts: 37.8 % lower with 90 µs than with 18 µs" in page
    table = page[page.index("| Metric | 18 µs | 90 µs |") :].splitlines()
    assert table[1] == "| --- | --: | --: | --: | --: | --: | --- |"
    assert all(line.count("|") == 8 for line in table[: table.index("")])
    hostile = to_md(experiment_report(made["hostile"], "en")).decode()
    assert not re.search(r"(?<!\\)<(?!br>)", hostile)
    assert "\\<script\\>" in hostile
    assert "\\*b\\*" in hostile
    assert not re.search(r"@\w", hostile), "nobody is mentioned"


def test_a_failed_experiment_reports_the_runs_that_were_kept() -> None:
    reason = "lab-3: The workload was not finished after 113.3 s, the maximum of a run."
    spec = ab_spec()
    found = simulated(spec, effect=longer_coalescing, most_runs=28, state=ExperimentState.FAILED)
    slow = found.runs[-1]
    slow_runs = [with_fields(slow, attempt=attempt, figures={}, discarded=reason) for attempt in range(3)]
    runs = [*found.runs[:-1], *slow_runs]
    sentence = f"Run {slow.planned.number + 1} was discarded in 3 attempts. Last reason: {reason}"
    changes = {"runs": runs, "analysis": analyse(spec, found.seed, runs), "sentence": sentence}
    found = found.model_copy(update=changes)
    english, korean = (experiment_report(found, language) for language in LANGUAGES)
    assert any("the mean of the kept runs is" in each for each in english.findings)
    assert any("Runs left out after three discarded attempts: 1 of 48." in each for each in english.findings)
    assert "제한 시간인 113.3초 안에 끝나지 않았다" in " ".join(korean.findings)
    table = next(
        block for section in english.sections for block in section.blocks if isinstance(block, Table) and block.numeric
    )
    assert "–" not in table.rows[0][1:3]


def test_fields_that_change_over_time_are_not_in_a_report(made: dict[str, Experiment]) -> None:
    later = made["ab"].model_copy(update={"remaining_s": 12.0, "queue_position": 3, "activity": "Warming up."})
    assert to_json(experiment_report(later, "en")) == to_json(experiment_report(made["ab"], "en"))


def _all_hashes() -> str:
    spec = ab_spec()
    one, other = (
        simulated(spec, effect=longer_coalescing, discard_every=9),
        simulated(spec, seed=9),
    )
    made: list[Report] = []
    for language in LANGUAGES:
        made += [experiment_report(one, language), comparison_report(one, other, language)]
        made.append(change_report(CHANGE, minutes(30, after=False), minutes(30, after=True), language))
    return " ".join(hashlib.sha256(write(report)).hexdigest()[:16] for report in made for write in FILES)


def test_the_same_data_give_the_same_bytes_also_in_another_process_with_other_hashes_and_time_zone() -> None:
    code = "from tests.backend.test_reports import _all_hashes; print(_all_hashes())"
    others = os.environ | {"PYTHONHASHSEED": "4242", "TZ": "Asia/Seoul", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=others, capture_output=True, text=True, check=True, timeout=60
    )
    assert _all_hashes() == _all_hashes() == made.stdout.strip()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "data", "action")]


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_names_are_escaped(made: dict[str, Experiment], language: Language) -> None:
    hostile = made["hostile"]
    report = experiment_report(hostile, language)
    page = _Page()
    page.feed(to_html(report).decode())
    assert not page.tags & {"script", "b", "i", "u", "iframe", "img", "link", "object"}
    assert page.addresses == []
    for figure in figures_of(report):
        tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(draw(figure, PDF_PALETTE, language)).iter()}  # noqa: S314
        assert tags <= {"svg", "text", "title", "line", "rect", "circle", "path", "polyline", "defs", "pattern"}
    cells = [cell for row in csv.reader(io.StringIO(to_csv(report).decode("utf-8-sig"))) for cell in row]
    assert not [
        cell for cell in cells if cell.startswith(("=", "+", "@")) or (cell[:1] == "-" and not cell[1:2].isdigit())
    ]
    assert any(cell.startswith("'=cmd|") for cell in cells)
    assert to_pdf(report).startswith(b"%PDF-")
    assert msgspec.json.decode(to_json(report))["experiment"]["node_name"] == hostile.node_name


def test_a_korean_page_embeds_its_font_and_an_english_one_does_not(made: dict[str, Experiment]) -> None:
    korean, english = (to_html(experiment_report(made["ab"], language)).decode() for language in ("ko", "en"))
    assert "url(data:font/woff2" in korean
    assert "url(" not in english
    assert "http" not in english.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", ["ab-256", "grid-256"])
def test_a_report_of_256_cpus_is_small_and_made_in_time(made: dict[str, Experiment], name: str) -> None:
    started = time.thread_time()
    report = experiment_report(made[name], "ko")
    sizes = {write.__name__: len(write(report)) for write in FILES}
    print(name, sizes, f"{time.thread_time() - started:.2f} s of CPU in all four formats")  # noqa: T201 - to be seen with -s
    assert sizes["to_html"] < 5_000_000
    assert sizes["to_pdf"] < 5_000_000


def test_an_unknown_cpu_is_hatched_and_not_zero(made: dict[str, Experiment]) -> None:
    heats = [figure for figure in figures_of(experiment_report(made["sweep"], "en")) if isinstance(figure, Heat)]
    assert heats[0].values[0][5] is None
    assert "url(#hatch)" in draw(heats[0], PDF_PALETTE, "en")


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        ((0.10, 0.08, 0.12), (0.11, 0.09, 0.13), False),
        ((0.10, 0.08, 0.12), (0.30, 0.27, 0.33), True),
        ((-0.5, -0.55, -0.45), (-0.2, -0.25, -0.15), True),
    ],
)
def test_two_effects_differ_when_the_interval_of_their_ratio_excludes_one(
    a: tuple[float, float, float], b: tuple[float, float, float], differs: bool
) -> None:
    ratio = ratio_of(Interval(*a), Interval(*b))
    assert ratio is not None
    assert (ratio.low > 0 or ratio.high < 0) is differs
    assert ratio.value == pytest.approx((1 + b[0]) / (1 + a[0]) - 1)


def test_a_comparison_reports_agreement_and_differences_of_two_experiments() -> None:
    one = simulated(ab_spec(), effect=longer_coalescing)
    same = simulated(ab_spec(), effect=longer_coalescing, seed=11)
    other = simulated(ab_spec(blocks=8), effect=no_effect, seed=12)
    assert comparison_report(one, same, "en").findings[0].startswith("The two experiments agree on 90 µs")
    report = comparison_report(one, other, "en")
    assert report.findings[0].startswith("The two experiments disagree on 90 µs: the effect on device interrupts is −3")
    (differences,) = [s.blocks[0] for s in report.sections if s.title == "What differs between the two"]
    assert ["blocks", "6", "8"] in msgspec.to_builtins(differences)["rows"]


def with_effect(*effect: float, verdict: Verdict = "no-difference", baseline: str = "18 µs") -> Experiment:
    one = simulated(ab_spec())
    comparisons = [with_fields(found, effect=Interval(*effect), verdict=verdict) for found in one.analysis.comparisons]
    arms = [baseline, *one.arms[1:]]
    factors = [Factor("rx-usecs", [Level(arm) for arm in arms])]
    analysis = with_fields(one.analysis, comparisons=comparisons)
    return one.model_copy(update={"arms": arms, "analysis": analysis, "spec": ab_spec(factors=factors)})


@pytest.mark.parametrize(
    ("effect", "beginning"),
    [
        (
            (0.30, -0.40, 0.90),
            "Between the effects of 90 µs on device interrupts in the two experiments no difference was found, but one "
            "of up to ",
        ),
        (
            (-0.11, -0.13, -0.09),
            "The two experiments agree on 90 µs: no difference between their effects on device interrupts larger than ",
        ),
        ((0.30, 0.20, 0.40), "The two experiments disagree on 90 µs: "),
    ],
)
def test_two_experiments_agree_only_where_a_large_difference_can_be_ruled_out(
    effect: tuple[float, ...], beginning: str
) -> None:
    report = comparison_report(with_effect(-0.10, -0.12, -0.08), with_effect(*effect), "en")
    assert report.findings[0].startswith(beginning)


def test_a_comparison_marks_what_is_inconclusive_in_its_own_report() -> None:
    steady, unsteady = with_effect(-0.1, -0.12, -0.08), with_effect(0.3, 0.2, 0.4, verdict="unsteady")
    report = comparison_report(steady, unsteady, "en")
    assert report.findings[0].endswith(
        "The result of B by itself is inconclusive: its A/A runs show a difference as large."
    )
    both = comparison_report(unsteady, unsteady, "en").findings[0]
    assert "The results of A and B by themselves are inconclusive" in both
    (table,) = [block for section in report.sections for block in section.blocks if is_of_effects(block)]
    assert table.rows[0][3].endswith("%), inconclusive") and not table.rows[0][2].endswith("inconclusive")


def is_of_effects(block: object) -> TypeGuard[Table]:
    return isinstance(block, Table) and block.columns[-1] == "B against A (95 % interval)"


def test_a_comparison_says_that_the_baselines_have_different_names() -> None:
    a, b = with_effect(-0.1, -0.12, -0.08), with_effect(-0.1, -0.12, -0.08, baseline="50 µs")
    said = "Their baselines have different names: 18 µs in A, 50 µs in B."
    assert comparison_report(a, b, "en").findings[0].endswith(said)
    assert "baselines" not in text_of(comparison_report(a, a, "en"))


def test_experiments_without_anything_in_common_are_not_compared(made: dict[str, Experiment]) -> None:
    assert (
        comparison_report(made["sweep"], made["empty"], "en").findings[0].startswith("The effects cannot be compared")
    )


def test_an_effect_of_a_change_is_reported_as_an_observation() -> None:
    report = change_report(CHANGE, minutes(60, after=False), minutes(60, after=True, factor=0.5), "en")
    assert report.findings[0].startswith("CPU per gigabit: 49.2 % lower after the change than before")
    assert report.findings[-1].startswith("This was observed on the node's own traffic without randomization")
    assert "remaining_s" not in to_json(report).decode()


def test_a_change_without_effect_is_reported() -> None:
    report = change_report(CHANGE, minutes(60, after=False), minutes(60, after=True, seed=3), "en")
    assert report.findings[0].startswith("No difference in CPU per gigabit larger than")


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(0.0, 1000.0, "higher"), (1000.0, 0.0, "lower"), (0.0, 0.0, "no-difference")]
)
def test_drops_that_begin_or_end_with_a_change_are_a_difference_without_a_ratio(
    before: float, after: float, verdict: str
) -> None:
    sides = [
        [one._replace(figures={"dropped_per_s": mean * factor}) for one, factor in zip(made, factors, strict=True)]
        for mean, made, factors in (
            (before, minutes(60, after=False), [0.9, 1.1] * 30),
            (after, minutes(60, after=True), [0.9, 1.0, 1.1] * 20),
        )
    ]
    found = compare("dropped_per_s", *sides)
    assert (found.verdict, found.effect) == (verdict, None)
    assert found.p is not None and (found.p < 0.001) == (verdict != "no-difference")


def test_a_change_with_few_minutes_has_no_result() -> None:
    report = change_report(CHANGE, minutes(5, after=False), minutes(60, after=True), "en")
    assert "there are 5 minutes of data before the change and 60 after it; at least 10 are" in report.findings[0]
    found = compare("rtt_p99_us", minutes(5, after=False), minutes(60, after=True))
    assert (found.effect, found.verdict) == (None, "too-few")


def test_the_report_of_a_change_that_was_undone_says_by_whom() -> None:
    by = Undone(change="b", by="eve", at=datetime(2026, 11, 22, 12, 5, tzinfo=UTC))
    undone = CHANGE.model_copy(update={"undone": by, "status": ChangeStatus.UNDONE})
    report = change_report(undone, minutes(5, after=False), minutes(5, after=True), "en")
    facts = dict(report.facts)
    assert (facts["State"], facts["Undone"]) == ("undone", "2026-11-22 12:05:00Z, eve")
    assert "too few minutes" in to_html(report).decode()
    assert "Undone" not in dict(change_report(CHANGE, [], [], "en").facts)


def test_a_change_that_was_not_applied_had_no_effect() -> None:
    never = CHANGE.model_copy(update={"applied_at": None})
    assert change_report(never, [], [], "en").findings == ["The change was not applied, so it had no effect."]


def test_missing_metrics_are_absent_from_the_report_of_a_change() -> None:
    report = change_report(CHANGE, minutes(20, after=False), minutes(20, after=True), "en")
    assert "Memory from another NUMA node" not in to_html(report).decode()


def test_a_running_experiment_says_that_it_may_change(made: dict[str, Experiment]) -> None:
    running = made["ab"].model_copy(update={"state": ExperimentState.RUNNING})
    findings = text_of(experiment_report(running, "en"))
    assert "The experiment is running: this is the result so far (runs counted: 48)" in findings


ONLY_AT_THE_END = (
    "Intervals and p hold for the planned number of blocks only: ending an experiment because of its result makes "
    "false positives more frequent."
)


@pytest.mark.parametrize("state", [state for state in ExperimentState if state != ExperimentState.QUEUED])
@pytest.mark.parametrize("name", ["aa", "ab", "sweep"])
def test_a_result_before_the_end_says_that_its_error_rates_do_not_hold_yet(
    made: dict[str, Experiment], name: str, state: ExperimentState
) -> None:
    report = experiment_report(made[name].model_copy(update={"state": state}), "en")
    limits = [block.text for block in report.sections[-2].blocks if isinstance(block, Paragraph)]
    is_early = state != ExperimentState.DONE
    assert (ONLY_AT_THE_END in text_of(report)) is is_early
    assert any(ONLY_AT_THE_END in limit for limit in limits) is is_early


def test_an_end_without_a_result_says_nothing_about_error_rates(made: dict[str, Experiment]) -> None:
    assert ONLY_AT_THE_END not in text_of(experiment_report(made["empty"], "en"))
