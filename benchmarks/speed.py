"""Speed and memory: the paper's sizes, and how cost grows with images, classes and batch size.

python benchmarks/speed.py              measures here, keeps results/speed/HARDWARE.json, renews docs/speed.md
python benchmarks/speed.py --start-up   measures only the start-up anew, which is kept with the rest
python benchmarks/speed.py --table      only renews docs/speed.md, from what is kept

The compiled step is measured by `hoarfrost bench` in processes of their own, the first with an empty cache of compiled
code and the last with that cache. What grows with what is measured in this process without compiling, which would
take half a minute for every row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoarfrost.paper.text import file_name, markdown, renewed

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "speed"
PAGE = ROOT / "docs" / "speed.md"
BEGIN = "<!-- made by benchmarks/speed.py -->"

GPU = {"dataset": "cifar10", "batches": (128, 512, 64), "images": (6_250, 12_500, 25_000, 50_000), "epochs": 6}
CPU = {"dataset": "digits", "batches": (32,), "images": (225, 450, 900, 1_800), "epochs": 6}
CLASSES = ((5, 5), (50, 50), (500, 500))
BATCHES = (32, 64, 128, 256, 512)


def bench(*options: str, cache: str) -> dict[str, Any]:
    """`hoarfrost bench` in a process of its own."""
    command = [sys.executable, "-m", "hoarfrost", "bench", "--json", *options]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return dict(json.loads(done.stdout))


def plan_for(device: str) -> dict[str, Any]:
    """What suits a device."""
    from hoarfrost.training.runtime import resolve_device

    return GPU if resolve_device(device).type == "cuda" else CPU


def start_up(device: str) -> dict[str, Any]:
    """The first start and the second."""
    from hoarfrost import provenance

    plan = plan_for(device)
    options = ["--device", device, "--dataset", plan["dataset"], "--epochs", "1", "--batch", str(plan["batches"][0])]
    with tempfile.TemporaryDirectory() as cache:
        first, again = bench(*options, cache=cache), bench(*options, cache=cache)
    kept = {"first": first["start_up"], "again": again["start_up"]}
    return {"hardware": first["hardware"], "start_up": {**provenance.describe(), **kept}}


def measured(device: str) -> dict[str, Any]:
    """Everything, on one device."""
    from hoarfrost import provenance
    from hoarfrost.bench import LOADS, measure
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe

    plan = plan_for(device)
    where = ["--device", device, "--dataset", plan["dataset"], "--epochs", str(plan["epochs"])]
    main = []
    with tempfile.TemporaryDirectory() as cache:
        for batch in plan["batches"]:
            main.append(bench(*where, "--batch", str(batch), cache=cache))
            print(f"batch {batch}: {main[-1]['discovery']['seconds_per_epoch']:.3f} s", file=sys.stderr, flush=True)
        warm = bench(*where, "--batch", str(plan["batches"][0]), cache=cache)
    recipe, load = get_recipe(plan["dataset"]), LOADS[plan["dataset"]]
    config = recipe.config(get_method("frost"), 0)

    def row(batch: int, **changes: int) -> dict[str, Any]:
        schedule = replace(config.discover, batch_size=batch)
        found = measure(
            replace(config, discover=schedule, fit=replace(config.fit, batch_size=batch)),
            replace(load, **changes),
            size=recipe.image_size or 32,
            channels=len(recipe.mean or (0.5,)),
            epochs=plan["epochs"] // 2,
            device=device,
            compiled="off",
        )
        print(batch, changes, f"{found['discovery']['seconds_per_epoch']:.3f} s", file=sys.stderr, flush=True)
        return found

    usual = plan["batches"][0]
    return {
        **provenance.describe(),
        "main": main,
        "warm": warm,
        "images": [row(usual, images=images) for images in plan["images"]],
        "classes": [row(usual, known=known, novel=novel) for known, novel in CLASSES],
        "batch": [row(batch) for batch in BATCHES if batch <= load.images // 4],
    }


def stage(found: dict[str, Any], key: str) -> list[str]:
    part = found[key]
    return [
        key.replace("_", " "),
        str(part["batch"]),
        f"{part['seconds_per_epoch']:.3f}",
        f"{part['images_per_second']:,.0f}",
        f"{part['floor_seconds']:.3f}",
        f"{part['times_floor']:.1f}",
    ]


def pays_from(compiled: dict[str, Any], plain: dict[str, Any]) -> str:
    """The number of discovery's steps from which compiling saves more time than it takes."""
    steps = math.ceil(compiled["images"] / compiled["discovery"]["batch"])
    gain = (plain["discovery"]["seconds_per_epoch"] - compiled["discovery"]["seconds_per_epoch"]) / steps
    cost = compiled["start_up"]["discovery_warm_up"] - plain["start_up"]["discovery_warm_up"]
    return f"{max(cost, 0) / gain:,.0f}" if gain > 0 else "no number of"


def section(kept: dict[str, Any]) -> str:
    """The tables of one machine."""
    main, warm = kept["main"], kept["warm"]
    first = main[0]
    image = "×".join(map(str, first["image"]))
    rows = [stage(first, "stage_one"), *(stage(found, "discovery") for found in main)]
    speed = markdown(["stage", "batch", "s/epoch", "images/s", "floor, s", "× floor"], rows)
    memory = first["memory"]
    starts = kept.get("start_up", {"first": first["start_up"], "again": warm["start_up"]})
    cold, again = starts["first"], starts["again"]
    on_device, bare = memory["device_peak_mib"], first["stage_one"]
    facts = [
        f"- Evaluation: {first['evaluation']['images_per_second']:,.0f} images a second.",
        f"- Start-up to a steady stage one: {cold['to_steady']:.0f} s the first time"
        f" ({cold['imports']:.0f} s of it imports), {again['to_steady']:.0f} s with its caches filled;"
        f" discovery then {cold['discovery_warm_up']:.0f} s and {again['discovery_warm_up']:.0f} s.",
        f"- Memory: {memory['host_peak_mib']:,.0f} MiB"
        + (f", {on_device:,.0f} MiB on the device." if on_device is not None else "."),
        f"- A bare PyTorch loop of stage one, same network and batch: {bare['bare_loop_seconds']:.3f} s an epoch;"
        f" ours takes {bare['overhead_percent']:+.1f} %.",
    ]
    if first["compiled"] == "on":
        plain = next(row for row in kept["batch"] if row["discovery"]["batch"] == first["discovery"]["batch"])
        facts.append(
            f"- Compiling discovery pays from {pays_from(first, plain)} steps on the first time,"
            f" and from {pays_from(warm, plain)} with the cache."
        )

    def growth(name: str, label: str) -> str:
        rows = []
        for found in kept[name]:
            value = {
                "images": f"{found['images']:,}",
                "classes": f"{sum(found['classes']):,}",
                "batch": str(found["discovery"]["batch"]),
            }[name]
            memory = found["memory"]["device_peak_mib"]
            rows.append(
                [
                    value,
                    f"{found['stage_one']['seconds_per_epoch']:.3f}",
                    f"{found['discovery']['seconds_per_epoch']:.3f}",
                    "–" if memory is None else f"{memory:,.0f}",
                ]
            )
        return markdown([label, "stage one, s/epoch", "discovery, s/epoch", "device MiB"], rows)

    return "\n".join(
        [
            f"### {first['hardware']}, {first['precision']}\n",
            f"{first['backbone']}, {first['images']:,} images {image} a stage, torch {kept['versions']['torch']}.\n",
            speed,
            "",
            *facts,
            "",
            "How cost grows, without compiling:\n",
            growth("images", "images"),
            "",
            growth("classes", "classes"),
            "",
            growth("batch", "batch"),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--start-up", action="store_true")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        found = start_up(args.device) if args.start_up else measured(args.device)
        hardware = found["hardware"] if args.start_up else found["main"][0]["hardware"]
        path = args.out / f"{file_name(hardware)}.json"
        args.out.mkdir(parents=True, exist_ok=True)
        if args.start_up:
            found = {**(json.loads(path.read_text()) if path.exists() else {}), "start_up": found["start_up"]}
            print(json.dumps(found["start_up"]))
        path.write_text(json.dumps(found, indent=1) + "\n")
    whole = [kept for path in sorted(args.out.glob("*.json")) if "main" in (kept := json.loads(path.read_text()))]
    made = "\n".join(map(section, whole))
    if args.out == RESULTS and PAGE.exists():
        PAGE.write_text(renewed(PAGE.read_text(), made.rstrip("\n"), begin=BEGIN))
    print(made)


if __name__ == "__main__":
    main()
