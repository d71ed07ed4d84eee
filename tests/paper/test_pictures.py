"""The paper's figures: drawn from kept files alone, the same bytes each time, and only where all runs are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from hoarfrost import metrics
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.experiment import RunConfig, run
from hoarfrost.methods import FROST
from hoarfrost.paper import pictures
from hoarfrost.paper.tables import TABLES
from hoarfrost.recipes import RECIPES
from hoarfrost.settings import override
from tools.results import figures
from tools.results.__main__ import main
from tools.results.kept import grouped, read_results
from tools.results.page import make_page
from tools.results.verified import make_tables

from ..conftest import TINY

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(digits: tuple[ImageSet, ImageSet], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is kept of a real run of one discovery, and of one of two."""
    folder = tmp_path_factory.mktemp("runs")
    learner = override(RECIPES["digits"].config(FROST, seed=0), TINY)
    for split in ("5-5", "4-3-3"):
        config = RunConfig(dataset="digits", split=split, class_order="natural", learner=learner)
        run(config, *digits, out=folder / split, device="cpu")
        assert main(["keep", str(folder / split), "--to", str(folder / "kept"), "--folder-names"]) == 0
    return {split: json.loads((folder / "kept" / f"{split}.json").read_text()) for split in ("5-5", "4-3-3")}


def keep(folder: Path, content: dict[str, Any], *methods: str, seed: int = 0) -> None:
    """Keeps a run as that of other methods."""
    folder.mkdir(exist_ok=True)
    for method in methods:
        name = f"{content['split']}-{method}-{seed}.json"
        (folder / name).write_text(json.dumps({**content, "method": method, "seed": seed}))


def drawn(folder: Path) -> list[str]:
    return [figure.file for figure in figures.kept_figures(grouped(read_results(folder)))]


def test_panels_show_what_the_run_reached(runs: dict[str, dict[str, Any]]) -> None:
    (step,) = runs["5-5"]["steps"]
    (shown,) = pictures.panels(TABLES["figure5"], "FRoST", runs["5-5"])
    assert (shown.title, shown.known, shown.novel_per_step) == ("FRoST", 5, (5,))
    assert shown.weight_norms.tolist() == step["weight_norms"]
    assert 100 * np.trace(shown.confusion) / shown.confusion.sum() == pytest.approx(step["joint"]["all"], abs=1e-5)

    first, second = pictures.panels(TABLES["figureA3"], "FRoST", runs["4-3-3"])
    assert (first.novel_per_step, second.novel_per_step) == ((3,), (3, 3))
    assert (len(first.confusion), len(second.confusion)) == (7, 10)
    assert first.confusion.sum() < second.confusion.sum()


def test_both_protocols_are_of_the_same_predictions(runs: dict[str, dict[str, Any]]) -> None:
    (step,) = runs["5-5"]["steps"]
    own, other = pictures.panels(TABLES["figureA1"], "ResTune", runs["5-5"])
    assert own.title == f"its own protocol: All {step['original_rt']['all']:.1f}"
    assert other.title == f"class-iNCD: All {step['joint']['all']:.1f}"
    assert sorted(own.confusion.T.tolist()) == sorted(other.confusion.T.tolist()), "the columns in another order"


def test_free_matching_is_that_of_the_original_protocol() -> None:
    generator = np.random.default_rng(0)
    true, predicted = generator.integers(0, 8, 200), generator.integers(0, 8, 200)
    matrix = pictures.freely_matched(metrics.confusion_matrix(predicted, true, 8))
    scores = metrics.original_rt_scores(predicted % 5, predicted % 3, predicted, true, known=5)
    assert np.trace(matrix) / 2 == pytest.approx(scores.all)
    assert np.trace(matrix) > np.trace(metrics.confusion_matrix(predicted, true, 8))


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.picture])
def test_a_run_of_an_earlier_version_is_refused(name: str, runs: dict[str, dict[str, Any]]) -> None:
    content = runs["4-3-3" if TABLES[name].shape == "two" else "5-5"]
    older = [{key: value for key, value in step.items() if key != "confusion"} for step in content["steps"]]
    with pytest.raises(InputError, match="an earlier version wrote it"):
        pictures.panels(TABLES[name], "FRoST", {**content, "steps": older})


def test_a_figure_is_drawn_where_all_of_its_runs_are_kept(runs: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    results = tmp_path / "results"
    keep(results, runs["5-5"], "frost")
    assert drawn(results) == []
    assert "figures" not in make_page(results)
    keep(results, runs["5-5"], "restune", seed=1)
    assert drawn(results) == ["figureA1-digits.png"], "figure A2 shows runs of one seed"
    keep(results, runs["5-5"], "frost", seed=1)
    keep(results, runs["4-3-3"], "frost")
    assert drawn(results) == ["figureA1-digits.png", "figureA2-digits.png", "figureA3-digits.png"]
    older = [{key: value for key, value in step.items() if key != "weight_norms"} for step in runs["5-5"]["steps"]]
    keep(results, {**runs["5-5"], "steps": older}, "restune", seed=1)
    assert drawn(results) == ["figureA3-digits.png"]
    keep(results, runs["5-5"], "restune", "frost-without-fd-fr", "frost-without-st", "autonovel", "ncl")
    assert drawn(results) == [f"figure{name}-digits.png" for name in ("4", "5", "A1", "A2", "A3")]


def test_figures_are_the_same_bytes_each_time_and_on_the_pages(runs: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    results, folder = tmp_path / "results", tmp_path / "figures"
    keep(results, runs["5-5"], "frost", "restune", "frost-without-fd-fr", "frost-without-st", "autonovel", "ncl")
    keep(results, runs["4-3-3"], "frost")
    command = ["figures", "--results", str(results), "--to", str(folder)]
    assert main(command) == 0
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(made) == drawn(results)
    assert b"Software" not in b"".join(made.values())
    (folder / "figure9-digits.png").write_bytes(b"of runs that are no longer kept")
    again = [sys.executable, "-m", "tools.results", *command]
    subprocess.run(again, env={**os.environ, "PYTHONHASHSEED": "7"}, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made

    title = "Figure A3 on digits. Which classes test images are taken for: FRoST after each of two steps"
    assert f"### {title}\n\n![{title}](docs/figures/figureA3-digits.png)\n" in make_page(results)
    assert f"### {title}\n\n![{title}](figures/figureA3-digits.png)\n" in make_tables(results)


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.picture])
def test_no_words_leave_the_picture_or_lie_on_others(name: str, runs: dict[str, dict[str, Any]]) -> None:
    table = TABLES[name]
    content = runs["4-3-3" if table.shape == "two" else "5-5"]
    shown = [panel for label, _ in table.rows for panel in pictures.panels(table, label, content)]
    figure = pictures.draw(table, shown, "tiny-imagenet 180-10-10, seed 0")
    figure.draw_without_rendering()
    words = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in words]
    assert len(boxes) > 3 * len(shown)
    width, height = figure.bbox.size
    for said, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= width, said
        assert 0 <= box.y0 <= box.y1 <= height, said
    for (said, box), (also, other) in combinations(boxes, 2):
        assert not box.shrunk(0.9, 0.9).overlaps(other.shrunk(0.9, 0.9)), (said, also)
    titles = [axes.get_title() for axes in figure.axes[: len(shown)]]
    assert [title[:3] for title in titles] == [f"({letter})" for letter in "abcdef"[: len(shown)]]


def test_nothing_is_drawn_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").mkdir()
    assert main(["figures", "--results", str(tmp_path / "results"), "--to", str(tmp_path / "figures")]) == 0
    assert not (tmp_path / "figures").exists()
    assert main(["figures", "--results", str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "there is no folder" in said.err


def test_the_figures_in_the_repository_are_those_of_its_results(tmp_path: Path) -> None:
    made = figures.write_all(grouped(read_results(ROOT / "results")), tmp_path)
    there = ROOT / "docs" / "figures"
    assert sorted(path.name for path in made) == sorted(path.name for path in there.glob("*"))
    for path in made:
        now, kept = (np.asarray(Image.open(file)).astype(np.int64) for file in (path, there / path.name))
        assert now.shape == kept.shape, path.name
        apart = np.abs(now - kept).max(axis=2)
        # Edges are smoothed in floating point, which another kind of processor rounds otherwise.
        assert apart.max() <= 8, path.name
        assert (apart > 0).mean() < 0.005, path.name
