"""Kept results and their page: nothing is on it that no file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.methods import get_method
from hoarfrost.paper.published import published, published_row
from hoarfrost.recipes import get_recipe
from hoarfrost.settings import to_json
from tools.results.__main__ import main
from tools.results.kept import read_results
from tools.results.page import make_page

ROOT = Path(__file__).parents[2]


def kept(seed: int, *, old: float, split: str = "5-5", batch: int = 64) -> dict[str, Any]:
    steps = []
    for index in range(split.count("-")):
        joint = {"old": old, "new": 40.0, "all": 50.0 + index, "hm": 45.0}
        by_step = [30.0 + number for number in range(index + 1)]
        steps.append({"joint": joint, "new_by_step_joint": by_step, "new_by_step_novel": [v + 1 for v in by_step]})
    learner = {
        "seed": seed,
        "views": "together",
        "fit": {"drops": [30, 60]},
        "discover": {"batch_size": batch, "epochs": 200},
        "method": {"name": "frost", "summary": "", "paper": "", "terms": {"self-training": {"weight": 0.01}}},
    }
    return {
        "method": "frost",
        "dataset": "cifar10" if split == "5-5" else "cifar100",
        "split": split,
        "seed": seed,
        "hardware": "a machine",
        "versions": {"torch": "2.0"},
        "commit": "0123456789abcdef",
        "seconds": {"stage_one": 10.4, "discovery": [20.6] * len(steps), "scoring": 1.0, "total": 32.0},
        "stage_one": 92.0,
        "steps": steps,
        "config": {"learner": learner},
    }


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_the_page_sets_means_beside_the_paper(tmp_path: Path) -> None:
    for seed, old in enumerate((70.0, 72.0, 74.0)):
        write(tmp_path, f"one-{seed}", kept(seed, old=old))
    write(tmp_path, "two", kept(0, old=56.0, split="80-10-10"))
    write(tmp_path / "sweeps", "a", kept(0, old=60.0, split="80-20", batch=128))
    write(tmp_path / "sweeps", "b", kept(0, old=61.0, split="80-20", batch=26))
    write(tmp_path / "sweeps", "c", kept(1, old=63.0, split="80-20", batch=26))
    write(tmp_path / "sweeps", "d", kept(0, old=57.0, split="80-10-10"))
    page = make_page(tmp_path)
    one = (
        "| cifar10 5-5, frost | 0, 1, 2 | 92.0 ± 0.0 | 72.0 ± 2.0 | 40.0 ± 0.0 | 50.0 ± 0.0 | 45.0 ± 0.0 | 31.0 ± 0.0 |"
    )
    assert f"{one} 77.5 / 49.5 / 63.4 |" in page
    assert "| cifar100 80-10-10, frost, step 2 | 0 | 56.0 | 30.0 / 31.0 | 31.0 / 32.0 | 51.0 |" in page
    assert "| *paper* |  | 25.8 | 75.0 / 48.4 | 77.3 / 79.6 | 33.0 |" in page
    rest, unknown = "| 0.01 | – | together | 200 | 200: 30, 60", "not recorded"
    both = f"| frost | 26 {rest} | {unknown} | 0, 1 | 92.0 ± 0.0 | 62.0 ± 1.4 | 30.0 ± 0.0 | 50.0 ± 0.0 |"
    assert page.index(both) < page.index(f"| frost | 128 {rest} | {unknown} | 0 | 92.0 | 60.0 |")
    assert f"| frost | 64 {rest} | {unknown} | 0, 0 | 92.0 ± 0.0 | 56.5 ± 0.7 | 30.0 ± 0.0 / 31.0 ± 0.0 |" in page
    assert "| `one-0` | a machine | torch 2.0 | `0123456789` | 10 | 21 |" in page


RESULT_CHANGES: dict[str, Any] = {
    "versions": {},
    "trained": [[]],
    "seconds": {"stage_one": 1},
    "split": "5-x",
    "steps": [],
    "variant": [],
    "config": {"learner": {}},
}


@pytest.mark.parametrize("key", RESULT_CHANGES)
@pytest.mark.parametrize("verb", ["page", "figures"])
def test_a_kept_result_that_is_damaged_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, key: str
) -> None:
    write(tmp_path, "one", {**kept(0, old=70.0), key: RESULT_CHANGES[key]})
    more = ["--to", str(tmp_path / "figures")] if verb == "figures" else []
    assert main([verb, "--results", str(tmp_path), *more]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "one.json does not hold a run's results" in line


@pytest.mark.parametrize("trained", [[None], [{}], [None, {"networks": "bf16"}]])
def test_a_kept_result_that_does_not_say_how_it_was_computed_is_shown(tmp_path: Path, trained: list[Any]) -> None:
    write(tmp_path / "sweeps", "one", {**kept(0, old=70.0), "trained": trained})
    assert "| 64 | 0.01 |" in make_page(tmp_path)


def test_settings_that_were_tried_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name, beta in {"a": 0.2, "b": 0.00001, "c": 0.05}.items():
        content = kept(0, old=60.0)
        content["config"]["learner"]["method"]["terms"]["self-training"]["weight"] = beta
        write(tmp_path / "sweeps", name, content)
    page = make_page(tmp_path)
    assert page.index("| 64 | 1e-05 |") < page.index("| 64 | 0.05 |") < page.index("| 64 | 0.2 |")


def test_tries_with_another_arithmetic_have_a_row_of_their_own(tmp_path: Path) -> None:
    for seed, changes in enumerate(({}, {"tf32": True, "heads": "tf32"}, {})):
        content = {**kept(seed, old=60.0 + seed), "trained": [dict(stage, batch_size=64) for stage in computed()]}
        content["trained"] = [{**stage, **changes} for stage in content["trained"]]
        write(tmp_path / "sweeps", str(seed), content)
    page = make_page(tmp_path)
    assert "| bf16, heads fp32 | 0, 2 | 92.0 ± 0.0 | 61.0 ± 1.4 |" in page
    assert "| bf16, heads tf32 | 1 | 92.0 | 61.0 |" in page


@pytest.mark.parametrize(("other", "title"), [("paper", "As the paper prints it"), ("released", "As first released")])
def test_runs_of_another_variant_are_kept_and_shown_apart(tmp_path: Path, other: str, title: str) -> None:
    for variant, old in (("code", 70.0), (other, 30.0)):
        content = {**kept(0, old=old), "variant": variant}
        for file, part in (("config", content.pop("config")), ("metrics", content)):
            write(tmp_path / variant, file, part)
        assert main(["keep", str(tmp_path / variant), "--to", str(tmp_path / "results")]) == 0
    assert (tmp_path / "results" / other / "cifar10-5-5-frost-seed0.json").is_file()
    before, after = make_page(tmp_path / "results").split(f"## {title}")
    assert "| cifar10 5-5, frost | 0 | 92.0 | 70.0 |" in before
    assert "| cifar10 5-5, frost | 0 | 92.0 | 30.0 |" in after


def test_what_is_kept_as_the_rules_has_the_rules_settings() -> None:
    results = [result for part in ("", "paper", "released") for result in read_results(ROOT / "results" / part)]
    assert [result.name for result in results if not result.follows_rule] == []
    assert not any(result.follows_rule for result in read_results(ROOT / "results" / "sweeps"))
    for result in results:
        assert all(stage["tf32"] is False for stage in result.content["trained"])


def test_what_was_frozen_is_shown_where_it_differs(tmp_path: Path) -> None:
    for name, parts in {"a": ["stem", "stage1"], "b": ["stem", "stage1", "stage2"]}.items():
        content = kept(0, old=60.0)
        content["config"]["learner"]["method"]["frozen"] = parts
        write(tmp_path / "sweeps", name, content)
    page = make_page(tmp_path)
    assert "| stage one: drops | frozen | arithmetic | seeds |" in page
    assert page.index("| stem, stage1 | not") < page.index("| stem, stage1, stage2 | not")
    (tmp_path / "sweeps" / "b.json").unlink()
    assert "frozen" not in make_page(tmp_path)


def test_what_the_rule_has_stands_in_bold_beside_what_was_tried(tmp_path: Path) -> None:
    for seed, old in ((0, 70.0), (1, 72.0)):
        content = {**kept(seed, old=old), "trained": [dict(stage, batch_size=64) for stage in computed()]}
        content["config"]["learner"] = to_json(get_recipe("cifar10").config(get_method("frost"), seed))
        write(tmp_path, f"{seed}", content)
    write(tmp_path / "sweeps", "c", kept(0, old=60.0, batch=128))
    page = make_page(tmp_path)
    rule = "| **frost** | **64** | **0.01** | **5 over 50** | **together** | **200** | **100: 30, 60, 90** |"
    row = page[page.index(rule) :].splitlines()[0]
    assert row.startswith(f"{rule} **bf16, heads fp32** | **0, 1** | **92.0 ± 0.0** | **71.0 ± 1.4**")
    assert page.index(rule) < page.index("| frost | 128 | 0.01 |")
    assert page.count("| `0` |") == 1


def test_runs_of_different_settings_are_not_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", kept(0, old=70.0))
    write(tmp_path, "b", kept(1, old=70.0, batch=128))
    assert main(["page", "--results", str(tmp_path)]) == 2
    assert "b and a have different settings (discover.batch_size changed from 64 to 128)" in capsys.readouterr().err


def test_a_run_of_before_there_were_variants_is_one_of_the_code(tmp_path: Path) -> None:
    new = kept(1, old=72.0)
    new["config"]["variant"] = "code"
    write(tmp_path, "a", kept(0, old=70.0))
    write(tmp_path, "b", new)
    assert "| 0, 1 | 92.0 ± 0.0 | 71.0 ± 1.4 |" in make_page(tmp_path)


def test_runs_of_other_images_are_not_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", kept(0, old=70.0))
    again = kept(1, old=71.0)
    again["config"]["class_order"] = "seeded"
    write(tmp_path, "b", again)
    assert main(["page", "--results", str(tmp_path)]) == 2
    assert "b and a have different settings" in capsys.readouterr().err


def computed(**changes: object) -> list[dict[str, object]]:
    """How both stages were computed, as ``trained`` in metrics.json has it."""
    stage = {"networks": "bf16", "heads": "fp32", "tf32": False, "compiled": True, "torch": "2.11", "driver": "580.1"}
    return [stage, {**stage, **changes}]


@pytest.mark.parametrize("change", [{"tf32": True}, {"networks": "fp32"}, {"heads": "bf16"}, None])
def test_runs_that_were_not_computed_alike_are_not_averaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object] | None
) -> None:
    write(tmp_path, "a", {**kept(0, old=70.0), "trained": computed()})
    other = {} if change is None else {"trained": computed(**change)}
    write(tmp_path, "b", {**kept(1, old=72.0), **other})
    assert main(["page", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "b and a were computed differently" in said
    assert all(f"{key} {value}" in said for key, value in (change or {"not": "recorded"}).items())
    assert "remove one of them, since a mean would mix both" in said
    write(tmp_path, "b", {**kept(1, old=72.0), "trained": computed()})
    assert main(["page", "--results", str(tmp_path)]) == 0
    assert "| 0, 1 | 92.0 ± 0.0 | 71.0 ± 1.4 |" in capsys.readouterr().out


def test_a_second_run_of_the_same_settings_and_seed_is_kept_beside_the_first(tmp_path: Path) -> None:
    for name, old in (("one", 70.0), ("two", 73.0)):
        content = kept(3, old=old)
        for file, part in (("config", content.pop("config")), ("metrics", content)):
            write(tmp_path / name, file, part)
    to = ["--to", str(tmp_path / "results")]
    for name in ("one", "two", "one", "two"):
        assert main(["keep", str(tmp_path / name), *to]) == 0
    results = read_results(tmp_path / "results")
    assert [result.name for result in results] == ["cifar10-5-5-frost-seed3", "cifar10-5-5-frost-seed3-2"]
    assert [result.content["steps"][0]["joint"]["old"] for result in results] == [70.0, 73.0]
    assert "| cifar10 5-5, frost | 3, 3 | 92.0 ± 0.0 | 71.5 ± 2.1 |" in make_page(tmp_path / "results")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"steps": []},
        {**kept(0, old=1.0), "config": {}},
        {**kept(0, old=1.0), "versions": {}},
        {**kept(0, old=1.0), "seconds": {}},
        {**kept(0, old=1.0), "trained": [[]]},
        {**kept(0, old=1.0), "steps": []},
        {**kept(0, old=1.0), "steps": [{**kept(0, old=1.0)["steps"][0], "new_by_step_novel": []}]},
    ],
)
def test_what_is_no_result_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: dict[str, Any]
) -> None:
    write(tmp_path / "results", "a", content)
    assert main(["page", "--results", str(tmp_path / "results")]) == 2
    assert "does not hold a run's results" in capsys.readouterr().err
    write(tmp_path / "run", "metrics", content)
    write(tmp_path / "run", "config", {})
    assert main(["keep", str(tmp_path / "run"), "--to", str(tmp_path / "results")]) == 2
    assert "does not hold a run's results" in capsys.readouterr().err
    assert main(["page", "--results", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_kept_run_is_not_replaced_by_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, batch in (("one", 64), ("two", 128)):
        content = kept(3, old=70.0, batch=batch)
        config = content.pop("config")
        for file, part in (("metrics", content), ("config", config)):
            write(tmp_path / name, file, part)
    to = ["--to", str(tmp_path / "results")]
    assert main(["keep", str(tmp_path / "one"), *to]) == 0
    assert main(["keep", str(tmp_path / "one"), *to]) == 0
    assert main(["keep", str(tmp_path / "two"), *to]) == 2
    assert "is of another run than" in capsys.readouterr().err
    content = kept(4, old=70.0)
    for file, part in (("config", content.pop("config")), ("metrics", content)):
        write(tmp_path / "other" / "one", file, part)
    assert main(["keep", str(tmp_path / "one"), *to, "--folder-names"]) == 0
    assert main(["keep", str(tmp_path / "other" / "one"), *to, "--folder-names"]) == 2
    assert "is of another run than" in capsys.readouterr().err
    (tmp_path / "results" / "one.json").unlink()
    (result,) = read_results(tmp_path / "results")
    assert result.content["config"]["learner"]["discover"]["batch_size"] == 64
    (tmp_path / "file").touch()
    assert main(["keep", str(tmp_path / "one"), "--to", str(tmp_path / "file")]) == 2
    assert "check the path" in capsys.readouterr().err


def test_keeping_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = kept(3, old=70.0)
    config = content.pop("config")
    for name, part in (("metrics", content), ("config", config)):
        write(tmp_path / "run", name, part)
    assert main(["keep", str(tmp_path / "run"), "--to", str(tmp_path / "results")]) == 0
    assert main(["keep", str(tmp_path / "run"), "--to", str(tmp_path / "results"), "--folder-names"]) == 0
    capsys.readouterr()
    results = read_results(tmp_path / "results")
    assert [result.name for result in results] == ["cifar10-5-5-frost-seed3", "run"]
    assert results[0].content == {**content, "config": config}
    (tmp_path / "run" / "metrics.json").unlink()
    assert main(["keep", str(tmp_path / "run")]) == 2
    assert "it has no metrics.json" in capsys.readouterr().err


def test_the_page_in_the_repository_is_that_of_its_results() -> None:
    page = ROOT / "RESULTS.md"
    assert page.read_text(encoding="utf-8") == make_page(ROOT / "results")


def test_published_rows_add_up() -> None:
    """All is the mean over the classes; where the paper's own numbers disagree, a note says so."""
    for row in published():
        sizes = [int(part) for part in row["split"].split("-")]
        for index, step in enumerate(row["steps"]):
            new = step.get("new_by_step_joint", [step.get("new")])
            classes = sizes[: index + 2]
            expected = sum(size * value for size, value in zip(classes, [step["old"], *new], strict=True)) / sum(
                classes
            )
            assert abs(expected - step["all"]) < 0.35 or "note" in row, (row, expected)
    assert published_row("cifar10", "5-5", "nobody") is None


def test_results_from_before_a_setting_was_there_have_its_default(tmp_path: Path) -> None:
    older, newer = kept(0, old=70.0), kept(1, old=72.0)
    newer["config"]["learner"]["discover"]["warm_up"] = 0
    newer["config"]["learner"]["method"]["design"] = {"readout": "joint"}
    write(tmp_path, "a", older)
    write(tmp_path, "b", newer)
    assert "| cifar10 5-5, frost | 0, 1 | 92.0 ± 0.0 | 71.0 ± 1.4 |" in make_page(tmp_path)


def test_what_is_kept_is_looked_at_before_it_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = kept(0, old=1.0)
    for file, part in (("config", content.pop("config")), ("metrics", content)):
        write(tmp_path / "run", file, part)
    write(tmp_path / "results", "cifar10-5-5-frost-seed0", {"format": 1})
    assert main(["keep", str(tmp_path / "run"), "--to", str(tmp_path / "results")]) == 2
    assert "cifar10-5-5-frost-seed0.json does not hold a run's results" in capsys.readouterr().err


def test_a_page_has_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "results", "a", {**kept(0, old=1.0), "commit": "x\x1b[2J"})
    assert main(["page", "--results", str(tmp_path / "results")]) == 0
    assert "`x\\x1b[2J`" in capsys.readouterr().out
