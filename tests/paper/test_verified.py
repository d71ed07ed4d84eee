"""The page of what is borne out: every verdict follows from figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.paper import tables
from hoarfrost.paper.__main__ import main
from hoarfrost.paper.findings import FINDINGS, scores_of
from hoarfrost.paper.page import HEADLINE, headline
from hoarfrost.paper.records import Result, grouped, read_results
from hoarfrost.paper.text import renewed
from hoarfrost.paper.verified import BEGIN, comparisons, make_tables, minutes

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
    config = {"learner": {"seed": seed, "method": {"name": method}}}
    where = {"dataset": dataset, "split": split, "method": method, "seed": seed}
    rest: dict[str, Any] = {"hardware": "a machine", "versions": {}, "commit": None, "seconds": {}}
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


def scores(**changes: dict[str, float]) -> dict[str, dict[str, float]]:
    """All findings hold in these."""
    made: dict[str, dict[str, float]] = {
        "frost": {"old": 74.0, "new": 50.0, "novel": 75.0, "hm": 60.0},
        "frost-without-fd": {"old": 0.0},
        "frost-without-fr": {"old": 4.9},
        "frost-without-fd-fr": {"old": 0.0},
        "frost-without-st": {"new": 0.0, "novel": 70.0},
        "lwf-softmax": {"old": 13.0, "new": 63.0},
        "lwf-presoftmax": {"old": 19.0, "new": 76.0},
        "restune": {"new": 0.0, "novel": 70.0, "hm": 0.0},
        "dtc": {"new": 1.0, "novel": 50.0, "hm": 2.0},
        "autonovel": {"hm": 6.0},
        "ncl": {"hm": 59.9},
    }
    return {method: {**values, **changes.get(method.replace("-", "_"), {})} for method, values in made.items()}


def test_findings_hold_or_not_by_their_figures() -> None:
    def held(**changes: dict[str, float]) -> list[bool]:
        return [finding.holds(scores(**changes)) for finding in FINDINGS]

    assert held() == [True] * 5
    assert held(frost_without_fr={"old": 5.0}) == [False, True, True, True, True]
    assert held(frost_without_st={"new": 8.0}) == [True, False, True, True, True]
    assert held(lwf_softmax={"new": 49.0}) == [True, True, False, True, True]
    assert held(lwf_presoftmax={"old": 38.0}) == [True, True, False, True, True]
    assert held(dtc={"new": 6.0}) == [True, True, True, False, True]
    assert held(restune={"novel": 15.0}) == [True, True, True, False, True]
    assert held(ncl={"hm": 61.0}) == [True, True, True, True, False]


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
    assert page.read_text() == f"before\n{BEGIN}\n{make_tables(results)}\n<!-- end -->\nafter\n"
    page.write_text("no marks")
    assert main(["renew", str(page), "--results", str(results)]) == 2
    assert main(["renew", str(tmp_path / "nowhere.md"), "--results", str(results)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert BEGIN in said[0]
    assert page.read_text() == "no marks"


def test_the_headline_is_table_4_in_few_columns(tmp_path: Path) -> None:
    results = kept(tmp_path / "results", run("frost", (74.0, 50.0, 62.0)), run("joint", (1.0, 2.0, 3.0)))
    header, _, *rows = headline(results).splitlines()
    assert header == "| method | seeds | Old | New | All | HM | paper: Old / New / All / HM |"
    assert "| FRoST | 0 | 74.0 | 50.0 | 62.0 | 37.0 | 77.5 / 49.5 / 63.4 / 60.4 |" in rows
    assert "| DTC | – | – | – | – | – | 64.0 / 0.0 / 32.0 / 0.0 |" in rows
    assert len(rows) == len(tables.get_table("table4").rows)


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
