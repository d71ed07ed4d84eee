"""The demonstration over several seeds: runs it, keeps its metrics in results/demo/, renews docs/experiments.md.

python benchmarks/demo_seeds.py            seeds 0 to 4, each in a process of its own
python benchmarks/demo_seeds.py --table    only the table, from what is kept
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hoarfrost.paper.text import markdown, renewed, spread

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "demo"
BEGIN = "<!-- made by benchmarks/demo_seeds.py -->"


def run_demo(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hoarfrost", "demo", "--seed", str(seed), "--out", f"{folder}/demo", "--json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        config = json.loads(Path(folder, "demo", "config.json").read_text())
    return {**json.loads(done.stdout), "config": config}


def table(runs: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    columns = {name.capitalize(): [run["steps"][-1]["joint"][name] for run in runs] for name in ("old", "new", "all")}
    columns["novel head"] = [run["steps"][-1]["new_by_step_novel"][-1] for run in runs]
    columns["stage one"] = [run["stage_one"] for run in runs]
    columns["seconds"] = [run["seconds"]["total"] for run in runs]
    made = markdown(list(columns), [[spread(values) for values in columns.values()]])
    seeds, hardware = ", ".join(str(run["seed"]) for run in runs), ", ".join(sorted({run["hardware"] for run in runs}))
    return "\n".join([made, "", f"Percent, mean ± standard deviation over the seeds {seeds}; {hardware}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for seed in [] if args.table else range(args.seeds):
        (RESULTS / f"seed-{seed}.json").write_text(json.dumps(run_demo(seed), indent=2) + "\n")
    made = table([json.loads(path.read_text()) for path in sorted(RESULTS.glob("seed-*.json"))])
    page = ROOT / "docs" / "experiments.md"
    page.write_text(renewed(page.read_text(), made, begin=BEGIN))
    print(made)


if __name__ == "__main__":
    main()
