"""The page of what is borne out: every verdict follows from figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.paper import tables
from hoarfrost.paper.text import renewed
from tools.results.__main__ import main
from tools.results.findings import FINDINGS, published_scores, scores_of
from tools.results.kept import Result, grouped, read_results
from tools.results.page import HEADLINE, headline
from tools.results.verified import BEGIN, comparisons, make_tables, minutes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproducibility.md"


def run(
    method: str,
    *figures: tuple[float, ...],
    seed: int = 0,
    dataset: str = "cifar10",
    split: str = "5-5",
    novel: float | None = 60.0,
    heads: tuple[tuple[float, ...], ...] | None = None,
) -> Result:
    """A kept run; the figures of a step are Old, New by step, All."""
    steps = [
        {
            "joint": {"old": old, "new": sum(new) / len(new), "all": every, "hm": old / 2},
            "original_rt": {"old": old, "new": 76.7, "all": every},
            "new_by_step_joint": new,
            "new_by_step_novel": [novel] * len(new) if heads is None else heads[step],
        }
        for step, (old, *new, every) in enumerate(figures)
    ]
    terms = {"self-training": {"weight": 0.01}}
    config = {"learner": {"seed": seed, "method": {"name": method, "summary": "", "paper": "", "terms": terms}}}
    where = {"dataset": dataset, "split": split, "method": method, "seed": seed}
    seconds: dict[str, Any] = {"stage_one": 0.0, "discovery": []}
    rest = {"hardware": "a machine", "versions": {"torch": "2.0"}, "commit": None, "seconds": seconds}
    return Result(f"{dataset}-{method}-{seed}", {**where, **rest, "steps": steps, "config": config})


def kept(folder: Path, *runs: Result) -> Path:
    folder.mkdir()
    for each in runs:
        (folder / f"{each.name}.json").write_text(json.dumps(each.content))
    return folder


def verdicts(*runs: Result) -> dict[tuple[str, str, str], str]:
    return {compared.group: compared.near for compared in comparisons(grouped(list(runs)))}


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [  # published: 77.5 / 49.5 / 63.4, and HM 60.4
        ((72.5, 54.5, 63.4), "yes"),
        ((72.4, 54.4, 63.4), "in part"),
        ((72.4, 54.4, 58.3), "no"),
        ((77.5, 49.5, 68.5), "no"),
    ],
)
def test_a_row_is_verified_within_five_points(figures: tuple[float, ...], verdict: str) -> None:
    assert verdicts(run("frost", figures))["cifar10", "5-5", "frost"] == verdict
    assert verdicts(run("frost", figures))["cifar10", "5-5", "ncl"] == "not run"


def test_the_mean_over_the_seeds_decides() -> None:
    far, farther = run("frost", (70.0, 49.5, 63.4)), run("frost", (85.0, 49.5, 63.4), seed=1)
    assert verdicts(far)["cifar10", "5-5", "frost"] == "in part"
    assert verdicts(far, farther)["cifar10", "5-5", "frost"] == "yes"


def test_every_figure_of_several_steps_counts() -> None:
    near = [(56.4, 72.8, 58.2), (25.8, 75.0, 48.4, 33.0)]
    group = ("cifar100", "80-10-10", "frost")
    heads: tuple[tuple[float, ...], ...] = ((77.5,), (77.3, 79.6))
    assert verdicts(run("frost", *near, dataset="cifar100", split="80-10-10", heads=heads))[group] == "yes"
    for step, place, verdict in ((0, 1, "in part"), (1, 2, "in part"), (0, 2, "in part"), (1, 3, "no")):
        changed = [list(figures) for figures in near]
        changed[step][place] += 6
        other = run("frost", *map(tuple, changed), dataset="cifar100", split="80-10-10", heads=heads)
        assert verdicts(other)[group] == verdict
    for step, head in ((0, 0), (1, 0), (1, 1)):
        worse = [list(values) for values in heads]
        worse[step][head] -= 6
        other = run("frost", *near, dataset="cifar100", split="80-10-10", heads=tuple(map(tuple, worse)))
        assert verdicts(other)[group] == "in part", "novel heads count too"


def test_both_protocols_count() -> None:
    near = run("restune", (91.7, 0.0, 45.9))
    assert verdicts(near)["cifar10", "5-5", "restune"] == "yes"
    for key in ("old", "new", "all"):
        content = json.loads(json.dumps(near.content))
        content["steps"][0]["original_rt"][key] += 7
        assert verdicts(Result("other", content))["cifar10", "5-5", "restune"] == "in part", key
    del content["steps"][0]["original_rt"]
    assert verdicts(Result("other", content))["cifar10", "5-5", "restune"] == "in part", (
        "what is not scored is not near"
    )


def test_the_harmonic_mean_counts() -> None:
    """Published 2.6 / 15.2 / 5.1: HM 4.4."""
    group = ("cifar100", "80-20", "autonovel")
    assert verdicts(run("autonovel", (2.6, 15.2, 5.1), dataset="cifar100", split="80-20"))[group] == "yes"
    assert verdicts(run("autonovel", (7.5, 19.0, 9.8), dataset="cifar100", split="80-20"))[group] == "in part"


def test_a_row_is_compared_with_the_published_one_that_agrees_with_itself() -> None:
    found = {compared.group: compared for compared in comparisons({})}
    assert found["cifar100", "80-20", "frost"].published[:3] == (62.5, 45.8, 59.2)
    assert found["cifar10", "5-5", "frost"].published[:3] == (77.5, 49.5, 63.4)
    assert found["cifar10", "5-5", "restune"].names[-3:] == ("RT-Old", "RT-New", "RT-All")
    assert len(found) == 59


def test_what_the_paper_may_have_run_instead_is_compared_with_the_same_figures() -> None:
    labelled = run("ncl-labelled", (91.0, 2.0, 46.5))
    found = list(comparisons(grouped([labelled])))
    order = [compared.group[2] for compared in found if compared.group[0] == "cifar10"]
    assert order[order.index("ncl") + 1] == "ncl-labelled"
    both = {compared.group[2]: compared for compared in found if compared.group[0] == "cifar10"}
    assert both["ncl-labelled"].published == both["ncl"].published
    assert (both["ncl-labelled"].near, both["ncl"].near) == ("yes", "not run")
    assert len(found) == 60


def test_a_verdict_from_one_seed_is_marked_as_one() -> None:
    one, other = run("frost", (77.5, 49.5, 63.4)), run("frost", (77.0, 49.5, 63.4), seed=1)

    def said(*runs: Result) -> str:
        return {each.group: each for each in comparisons(grouped(list(runs)))}["cifar10", "5-5", "frost"].verdict

    assert said(one) == "yes, one seed"
    assert said(one, one) == "yes, one seed", "twice the same seed is one"
    assert said(one, other) == "yes"


def test_what_was_not_run_has_an_estimate_by_what_was() -> None:
    content = json.loads(json.dumps(run("frost", (1.0, 2.0, 3.0), dataset="cifar100", split="80-20").content))
    content["seconds"] = {"stage_one": 60.0, "discovery": [120.0]}
    content["config"]["learner"]["discover"] = {"epochs": 200}
    kept = [Result("a", content)]
    assert minutes(("cifar100", "80-20", "ncl"), kept) == pytest.approx(2.0)
    assert minutes(("cifar100", "80-20", "restune"), kept) == pytest.approx(1.0), "it has half as many epochs"
    assert minutes(("cifar100", "80-10-10", "frost"), kept) == pytest.approx(2.0), "as many images, in two steps"
    assert minutes(("cifar10", "5-5", "frost"), kept) is None


ONE: dict[str, dict[str, float]] = {
    "frost": {"old": 74.0, "new": 50.0, "novel": 75.0, "hm": 60.0, "norms": 0.8},
    "frost-without-fd": {"old": 0.0},
    "frost-without-fr": {"old": 4.9},
    "frost-without-fd-fr": {"old": 0.0, "norms": 1.3},
    "frost-without-st": {"new": 0.0, "novel": 70.0, "norms": 0.3},
    "lwf-softmax": {"old": 13.0, "new": 63.0},
    "lwf-presoftmax": {"old": 19.0, "new": 76.0},
    "restune": {"new": 0.0, "novel": 70.0, "hm": 0.0},
    "dtc": {"new": 1.0, "novel": 50.0, "hm": 2.0},
    "autonovel": {"hm": 6.0, "norms": 0.5},
    "ncl": {"hm": 59.9, "norms": 0.9},
    "joint": {"new": 41.0},
    "joint-without-st": {"new": 0.0},
    "novel-without-st": {"new": 4.0},
}
"""all findings of one discovery hold in these"""

TWO: dict[str, dict[str, float]] = {
    "frost": {"all": 41.6, "old": 42.5, "new": 33.0, "hm": 37.2, "first_before": 32.0, "first_after": 31.2},
    "restune": {"all": 31.4, "new": 0.0, "hm": 0.0, "first_before": 38.0, "first_after": 25.4, "novel": 42.8},
    "ncl": {"all": 1.4, "new": 1.3, "hm": 1.3, "first_after": 21.6, "novel": 41.6},
    "dtc": {"all": 30.1, "new": 0.0, "hm": 0.0, "first_after": 28.0, "novel": 59.4},
}
"""and those of two in these"""


def failing(scores: dict[str, dict[str, float]], steps: int, **changes: dict[str, float]) -> list[int]:
    """Which of the findings, by their place among those of as many steps, do not hold after some changes."""
    changed = {method: {**values, **changes.get(method.replace("-", "_"), {})} for method, values in scores.items()}
    findings = [finding for finding in FINDINGS if finding.steps == steps]
    answers = [finding.answer(changed) for finding in findings]
    assert all(finding.holds(changed) == (answer == "yes") for finding, answer in zip(findings, answers, strict=True))
    return [place for place, answer in enumerate(answers) if answer == "**no**"]


@pytest.mark.parametrize(
    ("place", "method", "change"),
    [
        (0, "frost_without_fr", {"old": 5.0}),
        (1, "frost_without_st", {"new": 8.0}),
        (2, "lwf_softmax", {"new": 49.0}),
        (2, "lwf_presoftmax", {"old": 38.0}),
        (3, "dtc", {"new": 6.0}),
        (3, "restune", {"novel": 15.0}),
        (4, "ncl", {"hm": 61.0}),
        (5, "joint", {"new": 50.5}),
        (6, "joint_without_st", {"new": 29.4}),
        (6, "novel_without_st", {"new": 5.0}),
        (7, "frost_without_fd_fr", {"norms": 0.7}),
        (8, "frost", {"norms": 0.7}),
        (8, "frost_without_st", {"norms": 1.1}),
        (9, "ncl", {"norms": 1.0}),
    ],
)
def test_findings_hold_or_not_by_their_figures(place: int, method: str, change: dict[str, float]) -> None:
    assert failing(ONE, 1) == []
    assert failing(ONE, 1, **{method: change}) == [place]


@pytest.mark.parametrize(
    ("place", "method", "change"),
    [
        (0, "restune", {"new": 5.0}),
        (0, "ncl", {"first_after": 20.0}),
        (0, "dtc", {"novel": 3.0}),
        (1, "ncl", {"hm": 40.0}),
        (2, "ncl", {"all": 57.0}),
        (3, "frost", {"first_after": 19.0}),
    ],
)
def test_findings_of_two_steps(place: int, method: str, change: dict[str, float]) -> None:
    assert failing(TWO, 2) == []
    assert failing(TWO, 2, **{method: change}) == [place]


def test_where_the_papers_own_tables_say_otherwise() -> None:
    """Everything that it says in words is in its numbers, but for these."""
    other = [
        (dataset, finding.claim.partition(":")[0])
        for dataset, split in (*tables.ONE_STEP.items(), *tables.TWO_STEPS.items())
        for finding in FINDINGS
        if finding.steps == split.count("-") and finding.answer(published_scores(dataset, split)) == "**no**"
    ]
    assert other == [
        ("cifar100", "A joint head without a novel head finds fewer new classes than FRoST, which has both"),
        ("cifar100", "Without ST neither a joint head alone nor an old and a novel head find anything new"),
        ("cifar100", "FRoST is the best on all classes after two steps"),
    ]
    two = published_scores("cifar100", "80-10-10")["frost"]
    assert two["new"] == pytest.approx(61.7)
    assert (two["first_before"], two["first_after"], two["novel"]) == (77.5, 77.3, 79.6)


def test_two_steps_are_asked_too(tmp_path: Path) -> None:
    runs = [
        run(method, *steps, dataset="cifar100", split="80-10-10")
        for method, steps in {
            "frost": [(60.0, 50.0, 59.0), (50.0, 40.0, 30.0, 47.0)],
            "restune": [(60.0, 0.0, 53.0), (50.0, 0.0, 0.0, 40.0)],
        }.items()
    ]
    results = kept(tmp_path / "results", *runs)
    made = make_tables(results)
    assert "### cifar100 80-10-10\n\n| finding |" in made
    restune = "`restune` New-1-N after step 1 60.0, New-1-N after step 2 60.0"
    assert f"{restune} | **no** | yes |" in made
    assert "`frost` All 47.0; `restune` All 40.0 | not run: ncl, dtc | **no** |" in made


def test_norms_are_asked_where_they_are_kept(tmp_path: Path) -> None:
    def with_norms(method: str, new: float) -> Result:
        made = run(method, (70.0, 50.0, 60.0))
        made.content["steps"][0].update(known=2, weight_norms=[1.0, 3.0, new, new])
        return made

    scores = scores_of(grouped([with_norms("frost", 1.8)]), "cifar10", "5-5")
    assert scores["frost"]["norms"] == pytest.approx(0.9)
    results = kept(
        tmp_path / "results",
        with_norms("frost", 1.8),
        with_norms("frost-without-st", 0.5),
        with_norms("frost-without-fd-fr", 3.0),
        run("autonovel", (70.0, 50.0, 60.0)),
        with_norms("ncl", 1.0),
    )
    made = make_tables(results)
    assert "| `frost-without-fd-fr` norm of new / old 1.50 | yes | – |" in made
    assert "`frost-without-st` norm of new / old 0.25 | yes | – |" in made
    assert "| `ncl` norm of new / old 0.50 | not in the kept files: autonovel | – |" in made


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert FINDINGS[3].missing({"dtc": {}}) == ["restune"]
    results = kept(tmp_path / "results", run("frost", (74.0, 50.0, 62.0)), run("frost-without-st", (92.0, 1.0, 46.5)))
    made = make_tables(results)
    assert "| `frost-without-st` New 1.0, novel head 60.0; `frost` New 50.0, novel head 60.0 | yes |" in made
    assert "| `frost` Old 74.0, New 50.0 | not run: lwf-softmax, lwf-presoftmax |" in made
    frost = "| `frost` | 0 | 77.5 / 49.5 / 63.4 / 60.4 | 74.0 / 50.0 / 62.0 / 59.7 | Old -3.5 | yes, one seed |"
    assert frost in made
    assert "| `autonovel` | – | 27.5 / 3.5 / 15.5 / 6.2 | – | – | not run |" in made


def test_scores_are_means_and_those_of_one_discovery() -> None:
    runs = [run("frost", (70.0, 50.0, 60.0)), run("frost", (80.0, 60.0, 70.0), seed=1)]
    two = run("ncl", (1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 4.0))
    found = scores_of(grouped([*runs, two]), "cifar10", "5-5")
    assert found == {"frost": {"old": 75.0, "new": 55.0, "all": 65.0, "hm": 37.5, "novel": 60.0}}
    assert (
        "novel" not in scores_of(grouped([run("kmeans", (70.0, 50.0, 60.0), novel=None)]), "cifar10", "5-5")["kmeans"]
    )


def test_the_page_is_renewed_between_its_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = kept(tmp_path / "results", run("frost", (74.0, 50.0, 62.0)))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n<!-- end -->\nafter\n")
    assert main(["renew", str(page), "--results", str(results)]) == 0
    text = page.read_text()
    assert text.replace("\N{NO-BREAK SPACE}", " ") == f"before\n{BEGIN}\n{make_tables(results)}\n<!-- end -->\nafter\n"
    assert "74.0\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}50.0" in text
    page.write_text("no marks")
    assert main(["renew", str(page), "--results", str(results)]) == 2
    assert main(["renew", str(tmp_path / "nowhere.md"), "--results", str(results)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert BEGIN in said[0]
    assert page.read_text() == "no marks"


def test_the_headline_is_table_4_in_few_columns(tmp_path: Path) -> None:
    frost = run("frost", (74.0, 50.0, 62.0), dataset="cifar100", split="80-20")
    ours = run("hoarfrost", (80.0, 60.0, 70.0), dataset="cifar100", split="80-20")
    results = kept(tmp_path / "results", frost, ours, run("joint", (1.0, 2.0, 3.0)))
    header, _, *rows = headline(results).splitlines()
    assert header == "| method | seeds | Old | New | All | paper: Old / New / All |"
    assert "| FRoST | 0 | 74.0 | 50.0 | 62.0 | 64.6 / 45.8 / 59.2 |" in rows
    assert "| DTC | – | – | – | – | 55.9 / 0.0 / 44.7 |" in rows
    assert [row.split(" | ")[0] for row in rows[5:]] == ["| **hoarfrost**", "| supervised (upper bound, all labels)"]
    assert rows[5] == "| **hoarfrost** | 0 | 80.0 | 60.0 | 70.0 | – |"
    assert len(rows) == 7, "the references stand in RESULTS.md"


@pytest.mark.parametrize(
    ("page", "mark", "made"), [(PAGE, BEGIN, make_tables), (ROOT / "README.md", HEADLINE, headline)]
)
def test_the_pages_in_the_repository_are_those_of_its_results(
    page: Path, mark: str, made: Callable[[Path], str]
) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == renewed(text, made(ROOT / "results"), begin=mark)


def test_every_difference_has_a_word_on_it() -> None:
    _, _, words = PAGE.read_text(encoding="utf-8").partition("## What explains a difference")
    said: list[Any] = re.findall(r"\*\*`([a-z-]+)` on ([a-z0-9-]+)( in two steps)?\*\*", words)
    for compared in comparisons(grouped(read_results(ROOT / "results"))):
        dataset, split, method = compared.group
        if compared.near in ("in part", "no"):
            assert (method, dataset, " in two steps" if split.count("-") > 1 else "") in said, compared.group
