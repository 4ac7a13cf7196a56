"""The coscheduling simulation: the compiled engine against the readable model, and properties of every scheme."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from tests.support.coscheduling_reference import Reference

from coresteer.simulation.engine import simulate
from coresteer.simulation.estimate import estimate, remaining_s
from coresteer.simulation.jobs import Jobs, TraceJob, generated, prepare
from coresteer.simulation.parameters import JobType, Parameters, Pattern
from coresteer.simulation.results import Result
from coresteer.simulation.run import costs_of, empty_machine, run
from coresteer.simulation.schemes import SCHEMES
from coresteer.simulation.statements import STATEMENTS, judge
from coresteer.simulation.study import Cell, Run, StudySpec, cells_of, expected_messages, run_study, tasks_of
from coresteer.simulation.summary import summarize
from coresteer.simulation.swf import TraceError, TraceFacts, parse_trace, read_trace, scaled

SMALL = Parameters(nodes=4, mean_run_s=0.2, jobs=12, offered=2.0)
ROUNDED = 9
"""Digits of times: the two models add the same numbers in another order."""


def jobs_of(parameters: Parameters, pattern: Pattern, job_type: JobType, seed: int, imbalance: float = 0.5) -> Jobs:
    trace = generated(parameters, seed)
    return prepare(trace, parameters, pattern=pattern, job_type=job_type, imbalance=imbalance, seed=seed)


Slices = list[tuple[float, int, int, int]]


def compared(parameters: Parameters, name: str, jobs: Jobs) -> Slices:
    """The time slices of a scheme, after comparing all that the two models do."""
    machine = empty_machine(parameters, jobs, traced=1_000_000)
    simulate(costs_of(parameters, SCHEMES[name], jobs), machine)
    reference = Reference(parameters, SCHEMES[name], jobs)
    reference.run()
    slices = machine.trace[: machine.totals["traced"][0]]
    found = sorted((round(at, ROUNDED), *rest) for at, *rest in slices.tolist())
    assert found == sorted((round(at, ROUNDED), *rest) for at, *rest in reference.trace), name
    assert machine.totals["messages"][0] == reference.messages
    for spent in ("compute", "spin", "switch", "overhead"):
        expected = sum(node.spent[spent] for node in reference.nodes)
        assert machine.node[f"{spent}_s"].sum() == pytest.approx(expected, abs=1e-9), (name, spent)
    return found


@pytest.mark.slow("the first test compiles the engine")
@pytest.mark.parametrize("pattern", list(Pattern))
def test_the_engine_does_what_the_readable_model_does_time_slice_by_time_slice(pattern: Pattern) -> None:
    for name in SCHEMES:
        compared(SMALL, name, jobs_of(SMALL, pattern, JobType.SWL3, seed=1))


@pytest.mark.parametrize(
    "form",
    [{"enp": "sum"}, {"ert_sign": "printed"}, {"imbalance": "per_process"}, {"imbalance": "gamma"}],
    ids=lambda form: " ".join(*form.items()),
)
def test_both_models_have_every_form_of_the_assumptions(form: dict[str, str]) -> None:
    defaults, changed = (
        [
            compared(parameters, name, jobs_of(parameters, Pattern.NEAREST_NEIGHBOR, JobType.SWL3, seed=1))
            for name in ("SB+RO", "PB+RO", "DCS+RO")
        ]
        for parameters in (SMALL, replace(SMALL, **form))
    )
    assert changed != defaults


def test_the_factors_of_imbalance_have_mean_1_and_their_variance() -> None:
    for form, variance in (("per_phase", 0.5**2 / 12), ("gamma", 0.5)):
        jobs = jobs_of(replace(SMALL, imbalance=form), Pattern.NEAREST_NEIGHBOR, JobType.SWL1, seed=1)
        assert jobs.factors.mean() == pytest.approx(1.0, rel=0.01)
        assert jobs.factors.var() == pytest.approx(variance, rel=0.02)
    balanced = jobs_of(replace(SMALL, imbalance="gamma"), Pattern.NEAREST_NEIGHBOR, JobType.SWL1, 1, imbalance=0.0)
    assert set(balanced.factors) == {1.0}


@pytest.mark.parametrize("job_type", list(JobType))
def test_the_time_of_all_nodes_is_conserved_under_every_scheme(job_type: JobType) -> None:
    parameters = replace(SMALL, nodes=8, jobs=30)
    for seed, (name, scheme) in enumerate(SCHEMES.items()):
        found = run(parameters, scheme, jobs_of(parameters, Pattern.ALL_TO_ALL, job_type, seed, imbalance=1.5))
        spent = found.compute_s + found.spin_s + found.switch_s + found.overhead_s + found.idle_s
        assert spent == pytest.approx(found.elapsed_s * parameters.nodes, rel=1e-9), name
        assert min(found.idle_s, found.spin_s, found.overhead_s, found.switch_s) >= 0


@pytest.mark.parametrize("pattern", list(Pattern))
def test_a_job_alone_takes_its_ideal_time_and_its_overhead_under_every_scheme(pattern: Pattern) -> None:
    parameters = replace(SMALL, jobs=1)
    for name, scheme in SCHEMES.items():
        jobs = prepare(
            [TraceJob(0.0, 1.0, 4)], parameters, pattern=pattern, job_type=JobType.SWL2, imbalance=0.0, seed=1
        )
        found = run(parameters, scheme, jobs)
        extra = found.switch_s + found.overhead_s + jobs.loops[0] * jobs.peers[0] * parameters.host_s
        assert jobs.ideal_s[0] - 1e-9 <= found.response_s + jobs.loops[0] * 1e-3, name
        assert found.response_s <= jobs.ideal_s[0] + extra, name


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = (
        msgspec.json.encode(run(SMALL, SCHEMES["SY-PB+RO"], jobs_of(SMALL, Pattern.ALL_TO_ALL, JobType.SWL1, 3)))
        for _ in range(2)
    )
    assert first == second


@pytest.mark.slow("worker processes load the compiled engine")
def test_a_study_has_the_same_jobs_for_all_schemes_and_judges_every_statement() -> None:
    spec = StudySpec(
        schemes=("SB", "SB+RO", "PB", "PB+RO"), patterns=(Pattern.NEAREST_NEIGHBOR,), job_types=(JobType.SWL1,),
        seeds=3, parameters=replace(SMALL, jobs=6),
    )  # fmt: skip
    runs = list(run_study(spec, workers=2))
    assert len(runs) == len(cells_of(spec)) * 3
    messages = {(each.cell.imbalance, each.seed): each.result.messages for each in runs}
    assert all(messages[each.cell.imbalance, each.seed] == each.result.messages for each in runs)
    verdicts = judge(spec, runs)
    assert [verdict.of for verdict in verdicts] == [2, 1, 1, 2, 4]
    assert {verdict.sentence for verdict in verdicts} == {"Not judged: 3 of the 10 seeds that a verdict needs."}
    assert all(len(verdict.effects) == verdict.of for verdict in verdicts)


NOT_EXAMINED = "Not examined: the study has no cell that it is about."
ONE_CELL = StudySpec(patterns=(Pattern.ALL_TO_ALL,), job_types=(JobType.SWL3,), imbalances=(0.5,))


def runs_of(responses_s: dict[tuple[str, float], list[float]]) -> list[Run]:
    """Runs with these response times, by scheme and v, one of each seed."""
    return [
        Run(Cell(scheme, Pattern.ALL_TO_ALL, JobType.SWL3, v), seed, Result(response_s, 1, 1, 1, 1, 1, 1, 1, 1, 1))
        for (scheme, v), values in responses_s.items()
        for seed, response_s in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("with_reordering", "sentence"),
    [
        ([0.7, 0.8] * 5, "Reproduced in its only cell."),
        ([1.2, 1.3] * 5, "Not reproduced."),
        ([0.5, 1.6] * 5, "Not reproduced."),
        ([0.7] * 9, "Not judged: 9 of the 10 seeds that a verdict needs."),
        ([], "Not judged: 0 of the 10 seeds that a verdict needs."),
    ],
    ids=["shorter with every seed", "longer", "uncertain", "too few seeds", "cancelled before"],
)
def test_a_statement_is_reproduced_where_the_interval_has_its_sign(with_reordering: list[float], sentence: str) -> None:
    spec = replace(ONE_CELL, schemes=("SB", "SB+RO"))
    verdicts = judge(spec, runs_of({("SB", 0.5): [1.0] * 10, ("SB+RO", 0.5): with_reordering}))
    assert verdicts[0].sentence == sentence
    assert verdicts[0].is_reproduced is (None if len(with_reordering) < 10 else "Not" not in sentence)
    assert verdicts[2].sentence == NOT_EXAMINED
    assert [each.statement for each in verdicts] == list(STATEMENTS)


def test_the_interval_of_a_response_time_is_above_0_and_contains_the_mean() -> None:
    (cell,) = summarize(replace(ONE_CELL, schemes=("SB",)), runs_of({("SB", 0.5): [1.0, 3.0]}))
    assert cell.low_s is not None and cell.high_s is not None
    assert 0 < cell.low_s < cell.response_s == 2 < cell.high_s


def test_a_statement_about_two_imbalances_compares_only_these() -> None:
    spec = replace(ONE_CELL, schemes=("SB",), imbalances=(0.0, 0.5, 1.5))
    runs = runs_of({("SB", 0.0): [9.0] * 10, ("SB", 0.5): [1.0] * 10, ("SB", 1.5): [2.0] * 10})
    verdict = judge(spec, runs)[4]
    assert (verdict.sentence, verdict.best) == ("Reproduced in its only cell.", 1.0)


@pytest.mark.parametrize(
    ("imbalances", "sentence", "best", "of"),
    [((0.0, 0.5, 1.5), "Reproduced in its only cell.", -0.5, 1), ((1.5,), NOT_EXAMINED, None, 0)],
)
def test_the_statements_about_figure_4_are_about_its_imbalance_only(
    imbalances: tuple[float, ...], sentence: str, best: float | None, of: int
) -> None:
    spec = replace(ONE_CELL, schemes=("SB", "SB+RO"), imbalances=imbalances)
    reordered_s = {0.0: 2.0, 0.5: 0.5, 1.5: 0.25}
    plain = runs_of({("SB", v): [1.0] * 10 for v in imbalances})
    reordered = runs_of({("SB+RO", v): [reordered_s[v]] * 10 for v in imbalances})
    response, *others, _ = judge(spec, plain + reordered)
    assert (response.sentence, response.best) == (sentence, best)
    assert [verdict.of for verdict in others] == [of, 0, of]


def test_one_cell_with_too_few_seeds_leaves_a_statement_unjudged_with_its_changes() -> None:
    spec = replace(ONE_CELL, schemes=("SB", "SB+RO", "PB", "PB+RO"))
    pairs = {("SB", 0.5): [1.0] * 10, ("SB+RO", 0.5): [0.8] * 10, ("PB", 0.5): [1.0] * 10, ("PB+RO", 0.5): [0.7] * 4}
    verdict = judge(spec, runs_of(pairs))[0]
    assert (verdict.is_reproduced, verdict.seeds, verdict.of) == (None, 4, 2)
    assert [each.change for each in verdict.effects] == pytest.approx([-0.2, -0.3])


TRACE = """; a comment
1 100 -1 60 128 -1 -1 128 -1 -1 1 1 1 1 1 -1 -1 -1
2 50 -1 30 -1 -1 -1 32 -1 -1 1 1 1 1 1 -1 -1 -1
3 200 -1 10 1 -1 -1 1 -1 -1 1 1 1 1 1 -1 -1 -1
4 300 -1 -1 8 -1 -1 8 -1 -1 0 1 1 1 1 -1 -1 -1
"""


def test_a_trace_is_scaled_to_the_machine_and_jobs_of_one_process_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(TRACE)
    facts, jobs = read_trace(path)
    assert facts == TraceFacts("log.swf", jobs=3, largest=128, is_submit_start=False)
    assert jobs == [TraceJob(50, 30, 32), TraceJob(100, 60, 128), TraceJob(200, 10, 1)]
    assert [job.size for job in scaled(jobs, replace(SMALL, nodes=16, jobs=2))] == [4, 16]
    with pytest.raises(TraceError, match="2 jobs of several processes, fewer than the 3 needed"):
        scaled(jobs, replace(SMALL, nodes=16, jobs=3))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("; only comments", "log has no job"), ("1 2 3", "Line 1 of log is not a job"), ("a b c d e", "Line 1 of log")],
)
def test_a_malformed_trace_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence):
        parse_trace(text.encode(), "log")


@pytest.mark.parametrize("pattern", list(Pattern))
def test_the_messages_of_a_study_are_estimated_from_its_jobs(pattern: Pattern) -> None:
    spec = StudySpec(schemes=("SB",), patterns=(pattern,), imbalances=(0.5,), parameters=Parameters(jobs=2000))
    for cell in cells_of(spec):
        jobs = jobs_of(spec.parameters, pattern, cell.job_type, seed=1)
        sent = (jobs.loops * jobs.size * jobs.peers).sum()
        assert expected_messages(spec)[cell, None] == pytest.approx(sent, rel=0.1)
        trace = generated(spec.parameters, 1)
        large = [job._replace(size=16 * job.size) for job in trace]  # the trace's machine is larger
        assert expected_messages(spec, large)[cell, None] == pytest.approx(sent, rel=0.02)


def test_a_duration_is_estimated_for_the_cpus_that_a_study_can_use() -> None:
    spec = StudySpec()
    one, two = (estimate(spec, cpus) for cpus in (1, 2))
    assert one.runs == len(tasks_of(spec)) == 480
    assert one.messages == pytest.approx(1.0e9, rel=0.05)
    assert one.duration_s / two.duration_s == pytest.approx(2, rel=0.01)
    assert two.sentence == "480 runs, estimated to take about 11 min on 2 CPUs."
    assert estimate(replace(ONE_CELL, schemes=("SB",), seeds=1), 4).cpus == 1
    varied = replace(spec, sensitivity=True)
    assert estimate(varied, 1).runs == len(tasks_of(varied)) == 9 * 480


@pytest.mark.parametrize(
    ("elapsed_s", "done", "left_s"),
    [(0.0, 0.0, 100.0), (30.0, 1.0, 70.0), (100.0, 1.0, None), (30.0, 2.0, 1470.0), (30.0, 100.0, 0.0)],
    ids=["not begun", "by the estimate", "slower than estimated", "by what is done", "all done"],
)
def test_the_remaining_time_is_the_estimates_until_enough_is_done(
    elapsed_s: float, done: float, left_s: float | None
) -> None:
    assert remaining_s(elapsed_s, done, total=100.0, estimated_s=100.0) == left_s


def test_run_times_are_scaled_and_the_offered_load_is_met() -> None:
    parameters = Parameters()
    jobs = jobs_of(parameters, Pattern.ALL_TO_ALL, JobType.SWL1, seed=2)
    assert jobs.ideal_s.mean() == pytest.approx(parameters.mean_run_s, rel=0.01)
    offered = (jobs.ideal_s * jobs.size).sum() / (jobs.arrival_s.max() * parameters.nodes)
    assert offered == pytest.approx(parameters.offered)
    assert set(np.log2(jobs.size)) <= {1.0, 2.0, 3.0, 4.0}
