"""The paper's tables: every cell is of a run or of the paper, and none of anything else."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.errors import InputError
from hoarfrost.methods import METHODS
from hoarfrost.paper import tables
from hoarfrost.paper.published import published, published_average
from hoarfrost.paper.tables import TABLES


def metrics(seed: int, old: float, *, steps: int = 1, calibrated: float | None = None) -> dict[str, Any]:
    made = []
    for step in range(steps):
        shared = {"joint": {"old": old, "new": 40.0, "all": 50.0 + step, "hm": 45.0}}
        by_step = {
            "new_by_step_joint": [30.0 + earlier for earlier in range(step + 1)],
            "new_by_step_novel": [60.0 + earlier for earlier in range(step + 1)],
        }
        rest = {"original_rt": {"old": 91.0, "new": 77.0, "all": 47.0}}
        other = None if calibrated is None else {"old": 80.0, "new": calibrated, "all": 55.0}
        made.append({**shared, **by_step, **rest, "calibrated": other})
    return {"seed": seed, "steps": made}


def test_every_row_of_a_table_is_a_method_and_every_published_number_is_in_a_row() -> None:
    for name, table in TABLES.items():
        if name.startswith("figure"):
            continue
        assert {method for _, method in table.rows} <= METHODS.keys()
        printed = {(row["dataset"], row["split"], row["method"]) for row in published() if row["table"] == name}
        rows = {(dataset, split, method) for dataset, split in table.printed.items() for _, method in table.rows}
        assert printed <= rows, name
        assert rows - printed <= {(d, s, m) for d, s, m in rows if m in ("kmeans", "supervised", "ncl-labelled")}, name


def test_a_table_has_ours_and_the_papers_beside_it() -> None:
    results = {
        ("cifar10", "frost"): [metrics(0, 70.0), metrics(1, 74.0)],
        ("cifar10", "restune"): [metrics(0, 91.0, calibrated=22.0)],
    }
    made = tables.lines("table4", ["cifar10"], results)
    page = tables.as_markdown("table4", made)
    assert "## cifar10 5-5" in page
    frost = "| FRoST | 0, 1 | 72.0 ± 2.8 | 40.0 ± 0.0 | 50.0 ± 0.0 | 45.0 ± 0.0 | 60.0 ± 0.0 | – | – | – |"
    assert f"{frost} 77.5 / 49.5 / 63.4 / 60.4 |" in page
    assert "| ResTune | 0 | 91.0 | 40.0 | 50.0 | 45.0 | 60.0 | 80.0 | 22.0 | 55.0 | 91.7 / 0.0 / 45.9 / 0.0 |" in page
    assert "| AutoNovel | – | – | – | – | – | – | – | – | – | 27.5 / 3.5 / 15.5 / 6.2 |" in page
    assert "upper bound, all labels" in page
    note = "Published, FRoST: Tables 1 to 3 have 77.4 / 49.5 / 63.5."
    assert f"\n- {note}\n" in page
    assert note in tables.as_text("table4", made).splitlines()
    assert f"\\end{{tabular}}\n  \\par\\footnotesize {note}\n\\end{{table}}" in tables.as_latex("table4", made)
    assert "39.8" not in page, "averages are not shown, nor is what is odd about them"
    assert [row["note"] for row in map(tables.to_row, made) if row["note"]] == [note.removeprefix("Published, FRoST: ")]


def test_averages_are_over_all_data_sets_of_the_paper_seed_by_seed() -> None:
    results = {
        ("cifar10", "frost"): [metrics(0, 70.0), metrics(1, 80.0)],
        ("cifar100", "frost"): [metrics(1, 60.0), metrics(0, 61.0)],
        ("tiny-imagenet", "frost"): [metrics(0, 52.0)],
        ("tiny-imagenet", "ncl"): [metrics(0, 52.0)],
    }
    every = ["cifar10", "cifar100", "tiny-imagenet"]
    made = tables.lines("table4", every, results)
    page = tables.as_markdown("table4", made)
    assert "## average of all data sets" in page
    assert "| FRoST | 0 | 61.0 | 40.0 | 50.0 | 65.5 / 39.8 / 54.9 |" in page
    assert "| NCL | – | – | – | – | 55.5 / 5.9 / 36.3 |" in page
    assert "- Published, FRoST: New 39.8 and All 54.9 are printed" in page
    assert "average" not in tables.as_markdown("table4", tables.lines("table4", every[:2], results))
    assert "average" not in tables.as_text("tableA6", tables.lines("tableA6", ["cifar100"], {}))
    rows = list(csv.DictReader(io.StringIO(tables.as_csv("table4", made))))
    assert [row["published"] for row in rows if (row["dataset"], row["method"]) == ("average", "dtc")] == [
        "51.8",
        "0.0",
        "36.2",
    ]


def test_printed_averages_are_those_of_their_columns() -> None:
    """Where they are not, a note says so."""
    for name, table in TABLES.items():
        for _, method in table.rows:
            average = published_average(name, method)
            if average is None:
                continue
            rows = [row for row in published() if (row["table"], row["method"]) == (name, method)]
            assert len(rows) == 3
            means = {key: sum(row["steps"][0][key] for row in rows) / 3 for key in ("old", "new", "all")}
            odd = any(abs(mean - average[key]) > 0.08 for key, mean in means.items())
            assert odd == ("note" in average), (name, method)


def test_where_all_is_not_made_of_old_and_new_a_note_says_so() -> None:
    share = {"cifar10": 0.5, "cifar100": 0.2, "tiny-imagenet": 0.1}
    found = []
    for row in published():
        if row["table"] in ("table1", "table2", "table3", "table4"):
            (step,), new = row["steps"], share[row["dataset"]]
            if abs((1 - new) * step["old"] + new * step["new"] - step["all"]) > 0.2:
                found.append((row["table"], row["dataset"], row["method"]))
                assert "agrees with All" in row["note"]
    assert found == [("table4", "cifar100", "frost")]


def computed(networks: str = "bf16", driver: str = "580.1") -> dict[str, Any]:
    stage = {"networks": networks, "heads": "fp32", "tf32": False, "compiled": True, "torch": "2.11", "driver": driver}
    return {"trained": [stage, stage]}


def test_seeds_that_were_not_computed_alike_have_no_mean() -> None:
    mixed = {("cifar10", "frost"): [{**metrics(0, 70.0), **computed()}, {**metrics(1, 74.0), **computed("fp32")}]}
    with pytest.raises(
        InputError, match="cifar10 5-5, frost, seed 1 and cifar10 5-5, frost, seed 0 were computed differently"
    ):
        tables.lines("table4", ["cifar10"], mixed)


def test_rows_that_were_not_computed_alike_are_named() -> None:
    alike = {("cifar10", name): [{**metrics(0, 70.0), **computed()}] for name in ("frost", "ncl")}
    assert not any("computed" in note for note in tables.notes(tables.lines("table4", ["cifar10"], alike)))
    other = alike | {("cifar10", "ncl"): [{**metrics(0, 70.0), **computed(driver="581.0")}]}
    said = tables.notes(tables.lines("table4", ["cifar10"], other))
    assert [note.partition(": ")[2].partition(": ")[0] for note in said if "computed" in note] == ["NCL", "FRoST"]
    assert any("NCL: networks bf16" in note and "driver 581.0" in note for note in said)


def test_an_average_over_data_sets_takes_the_mean_of_a_seed_that_was_run_twice() -> None:
    once, twice = [metrics(0, 70.0)], [metrics(0, 60.0), metrics(0, 62.0)]
    results = {("cifar10", "frost"): once, ("cifar100", "frost"): twice, ("tiny-imagenet", "frost"): once}
    made = tables.lines("table4", ["cifar10", "cifar100", "tiny-imagenet"], results)
    average = next(line for line in made if (line.dataset, line.method) == ("average", "frost"))
    assert list(average.cells[0].ours) == pytest.approx([(70 + 61 + 70) / 3])


def test_runs_with_other_settings_have_them_in_their_names() -> None:
    settings = ["discover.batch_size=32"]
    (run,) = tables.planned(tables.Table("", (("FRoST", "frost"),)), ["cifar10"], 1, variant="paper", settings=settings)
    assert run.name == "cifar10-5-5/frost-paper-discover-batch-size-32-seed0"
    assert run.config().discover.batch_size == 32
    command = run.command(Path("runs"), Path("data"))
    assert command[command.index("--variant") + 1] == "paper"
    usual = tables.planned(tables.Table("", (("FRoST", "frost"),)), ["cifar10"], 1)[0]
    assert usual.stage_one != run.stage_one, "stage one has other drops as the paper prints it"


def test_two_steps_have_every_head() -> None:
    results = {("cifar100", "frost"): [metrics(0, 66.0, steps=2)]}
    header, rows = tables.grid(tables.lines("tableA6", ["cifar100"], results))
    assert header[2:12] == [
        "step 1: Old",
        "step 1: New-1-J",
        "step 1: New-1-N",
        "step 1: All",
        "step 2: Old",
        "step 2: New-1-J",
        "step 2: New-2-J",
        "step 2: New-1-N",
        "step 2: New-2-N",
        "step 2: All",
    ]
    assert rows[-1][2:12] == ["66.0", "30.0", "60.0", "50.0", "66.0", "30.0", "31.0", "60.0", "61.0", "51.0"]
    assert rows[-1][12] == "56.4 / 72.8 / 77.5 / 58.2 / 25.8 / 75.0 / 48.4 / 77.3 / 79.6 / 33.0"


def test_both_protocols_stand_side_by_side() -> None:
    header, rows = tables.grid(tables.lines("tableA3", ["cifar10"], {("cifar10", "restune"): [metrics(0, 90.0)]}))
    assert header[2:8] == ["Old", "New", "All", "Old, RT", "New, RT", "All, RT"]
    assert rows[0][2:] == ["90.0", "40.0", "50.0", "91.0", "77.0", "47.0", "91.7 / 0.0 / 45.9 / 91.7 / 76.7 / 46.9"]
    assert rows[1][-1] == "77.5 / 49.5 / 63.4 / – / – / –"


def test_data_sets_that_the_paper_lacks_have_no_published_column() -> None:
    header, rows = tables.grid(tables.lines("table1", ["digits"], {("digits", "frost"): [metrics(0, 90.0)]}))
    assert header[-1] == "novel head"
    assert rows[0][:3] == ["FRoST", "0", "90.0"]
    assert TABLES["table5"].split("digits") == "4-3-3"
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        TABLES["table1"].split("cifar")
    with pytest.raises(InputError, match="did you mean 'table4'"):
        tables.get_table("table44")


def test_csv_has_a_line_a_figure() -> None:
    made = tables.lines("table1", ["cifar10"], {("cifar10", "frost"): [metrics(0, 70.0), metrics(1, 74.0)]})
    lines = list(csv.DictReader(io.StringIO(tables.as_csv("table1", made))))
    first = lines[0]
    assert (first["row"], first["metric"], first["mean"], first["sd"], first["published"], first["seeds"]) == (
        "FRoST",
        "Old",
        "72.0",
        "2.8",
        "77.4",
        "2",
    )
    assert {line["mean"] for line in lines if line["method"] != "frost"} == {""}


def test_latex_has_a_table_a_data_set() -> None:
    made = tables.lines("table2", ["cifar10", "cifar100"], {("cifar10", "frost"): [metrics(0, 70.0), metrics(1, 74.0)]})
    text = tables.as_latex("table2", made)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    assert r"FRoST & 0, 1 & 72.0 $\pm$ 2.8 &" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({line.count("&") for line in rows[:6]}) == 1


def test_runs_come_seed_by_seed_and_share_stage_one() -> None:
    runs = tables.planned(TABLES["table4"], ["cifar10", "cifar100"], seeds=2, epochs=10)
    assert len(runs) == 2 * 2 * 8
    assert [run.seed for run in runs] == [0] * 16 + [1] * 16
    assert len({run.stage_one for run in runs}) == 4
    assert len({run.name for run in runs}) == 32
    restune = next(run for run in runs if run.method == "restune")
    assert (restune.epochs, restune.fit_epochs, restune.name) == (5, 5, "cifar10-5-5/restune-epochs10-seed0")
