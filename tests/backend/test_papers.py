"""docs/papers.toml: every published figure has a consumer, and nothing else declares one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coresteer.config import REPOSITORY
from coresteer.experiments.templates import TEMPLATES, find_template
from coresteer.papers import Figure, figure, figures, papers, published_change
from coresteer.simulation.statements import STATEMENTS
from coresteer_core.metrics import EXPERIMENT_METRICS

SOURCES = ("agent", "backend", "frontend/src")


def ids(found: Figure) -> str:
    return found.id


def test_the_file_has_the_five_systems_and_each_id_once() -> None:
    assert list(papers()) == ["network-process", "coscheduling", "numa", "coalescing", "service-class"]
    every = [each.id for each in figures()]
    assert len(set(every)) == len(every)
    assert (figure("fig4-idle").system, figure("fig4-idle").change) == ("coscheduling", -0.556)
    with pytest.raises(KeyError):
        figure("fig9")


@pytest.mark.parametrize("one", figures(), ids=ids)
def test_every_figure_has_a_consumer_and_fields_that_agree(one: Figure) -> None:
    assert one.templates or one.model
    for slug in one.templates:
        template = find_template(slug)
        assert template is not None and template.paper is not None
        assert one.id in {row.id for row in template.paper.rows}
        assert one.metric in EXPERIMENT_METRICS
    if one.model == "study":
        assert one.text in {statement.text for statement in STATEMENTS}
    if one.change is not None and one.direction:
        assert (one.change > 0) == (one.direction == "higher")
    assert not one.against or one.role
    change = published_change(one)
    if change is not None and one.direction in ("higher", "lower"):
        assert (change > 0) == (one.direction == "higher")


def test_every_template_of_a_paper_has_figures_and_one_without_figures_has_no_paper() -> None:
    used = {slug for one in figures() for slug in one.templates}
    assert used == {kind.slug for kind in TEMPLATES if kind.paper is not None}


def test_a_change_follows_from_two_published_values() -> None:
    assert published_change(figure("percentile-all")) == pytest.approx(6081 / 5672 - 1)
    assert published_change(figure("usecs-90")) == pytest.approx(-0.8)
    assert published_change(figure("nice-c1")) is None
    assert published_change(figure("fig4-spin")) == -0.318


def sources() -> Iterator[Path]:
    for folder in SOURCES:
        for path in (REPOSITORY / folder).rglob("*"):
            is_source = path.suffix in (".py", ".ts", ".tsx") and ".test." not in path.name
            if is_source and not {"node_modules", "api"} & set(path.parts):
                yield path


def test_nothing_else_declares_a_published_figure() -> None:
    """Rows are made in one place; no source has a number that is specific to a paper, or two of a table."""
    percents = {f"{abs(one.change) * 100:.1f}" for one in figures() if one.change is not None}
    percents = {number for number in percents if not number.endswith(".0")}
    specific = re.compile(rf"\b({'|'.join(map(re.escape, sorted(percents)))}|0\.214|0\.556|0\.318)\b")
    table = {f"{one.value:g}" for one in figures() if one.system == "service-class" and (one.value or 0) > 100}
    for path in sources():
        text = path.read_text()
        assert "PublishedRow(" not in text or path.name in ("declaration.py", "schemas.py"), path
        assert not (found := specific.search(text)), f"{path}: {found}"
        assert len(table & set(re.findall(r"\b\d+\b", text.replace("_", "")))) < 2, path


def test_korean_texts_are_korean() -> None:
    for one in figures():
        for english, korean in ((one.figure, one.figure_ko), (one.text, one.text_ko)):
            if re.search(r"[a-z]{4}", english) and english not in ("nice", "percentile"):
                assert re.search("[가-힣]", korean), one.id
