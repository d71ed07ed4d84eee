"""Speed and memory: the paper's sizes, and how cost grows with images, classes and batch size.

python benchmarks/speed.py                  measures here, keeps results/speed/HARDWARE.json, renews docs/speed.md
python benchmarks/speed.py --only compiled  measures one of the three parts anew, which is kept with the others
python benchmarks/speed.py --table          only renews docs/speed.md, from what is kept

The compiled step is measured by `hoarfrost bench` in processes of their own, the first with an empty cache of compiled
code and the others with that cache. What grows with what is measured in this process without compiling, which would
take half a minute for every row. What each device gains (``devices``, on a GPU alone) is measured in turns, with the
device and without it, all others on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoarfrost.paper.text import file_name, markdown, renewed

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "speed"
PAGE = ROOT / "docs" / "speed.md"
BEGIN = "<!-- made by benchmarks/speed.py -->"

GPU: dict[str, Any] = {
    "dataset": "cifar10",
    "batches": (128, 512, 64),
    "images": (6_250, 12_500, 25_000, 50_000),
    "epochs": 4,
}
CPU: dict[str, Any] = {"dataset": "digits", "batches": (32,), "images": (225, 450, 900, 1_800), "epochs": 6}
CLASSES = ((5, 5), (50, 50), (500, 500))
GROWTH_EPOCHS = 3
BATCHES = (32, 64, 128, 256, 512)


def bench(*options: str, cache: str) -> dict[str, Any]:
    """`hoarfrost bench` in a process of its own."""
    command = [sys.executable, "-m", "hoarfrost", "bench", "--json", *options]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return dict(json.loads(done.stdout))


def plan_for(device: str) -> dict[str, Any]:
    """What suits a device."""
    from hoarfrost.computing.runtime import resolve_device

    return GPU if resolve_device(device).type == "cuda" else CPU


def compiled(device: str) -> Iterator[dict[str, Any]]:
    """The paper's sizes: a first start, the same again, then other batches."""
    plan = plan_for(device)
    options = ["--device", device, "--dataset", plan["dataset"], "--epochs", str(plan["epochs"])]
    usual, *others = plan["batches"]
    with tempfile.TemporaryDirectory() as cache:
        first, warm, *rest = (told(bench(*options, "--batch", str(n), cache=cache)) for n in (usual, usual, *others))
    yield {"main": [first, *rest], "warm": warm}


def told(found: dict[str, Any]) -> dict[str, Any]:
    """The same, once a line of it is written."""
    one, two = found["stage_one"], found["discovery"]
    print(
        f"steady after {found['start_up']['to_steady']:.1f} s, stage one {one['seconds_per_epoch']:.3f} s,"
        f" discovery at {two['batch']} {two['seconds_per_epoch']:.3f} s",
        file=sys.stderr,
        flush=True,
    )
    return found


def growth(device: str) -> Iterator[dict[str, Any]]:
    """Other sizes, in this process."""
    from hoarfrost.bench import LOADS, measure
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe

    plan = plan_for(device)
    recipe, load = get_recipe(plan["dataset"]), LOADS[plan["dataset"]]
    config = recipe.config(get_method("frost"), 0)

    def row(batch: int, **changes: int) -> dict[str, Any]:
        schedule = replace(config.discover, batch_size=batch)
        found = measure(
            replace(config, discover=schedule, fit=replace(config.fit, batch_size=batch)),
            replace(load, **changes),
            size=recipe.image_size or 32,
            channels=len(recipe.mean or (0.5,)),
            epochs=GROWTH_EPOCHS,
            device=device,
            compiled="off",
        )
        return told(found)

    usual = plan["batches"][0]
    yield {
        "images": [row(usual, images=images) for images in plan["images"]],
        "classes": [row(usual, known=known, novel=novel) for known, novel in CLASSES],
        "batch": [row(batch) for batch in BATCHES if batch <= load.images // 4],
    }


def put(owner: object, name: str, value: object) -> None:
    """In this process alone."""
    setattr(owner, name, value)


def without_capture() -> None:
    """Steps are not replayed as a CUDA graph."""
    from hoarfrost.computing.runtime import Runtime

    put(Runtime, "captures", property(lambda _: False))
    put(Runtime, "rounds", property(lambda runtime: runtime.half))


def without_rounding() -> None:
    """Autocast rounds each weight by itself."""
    from hoarfrost.computing.runtime import Runtime

    put(Runtime, "rounds", property(lambda _: False))


def without_compiling() -> None:
    """The step is replayed as it is."""
    from hoarfrost.computing.runtime import Runtime

    put(Runtime, "compiles", lambda *_: False)


def without_padding() -> None:
    """The first convolution gets the channels that images have."""
    from hoarfrost.models import resnet

    put(resnet, "AT_ONCE", 0)


def without_search() -> None:
    """cuDNN takes what it thinks best instead of trying."""
    from hoarfrost.computing.runtime import Runtime

    usual = Runtime.numerics
    put(Runtime, "numerics", lambda runtime, **_: usual(runtime, search=False))


def without_combining() -> None:
    """Little kernels of stage one stay as they are."""
    from hoarfrost.training import step

    put(step, "COMBINED", None)


DEVICES: dict[str, Callable[[], None]] = {
    "the step as a CUDA graph": without_capture,
    "weights rounded all at once": without_rounding,
    "compiled step": without_compiling,
    "channels filled up to eight": without_padding,
    "cuDNN tries all its ways": without_search,
    "little kernels combined in stage one": without_combining,
}
"""what makes the step faster, and how to do without it"""


def one_device(name: str, device: str, batch: int) -> dict[str, Any]:
    """Seconds an epoch in this process, with everything but this one; "" for everything."""
    from hoarfrost.bench import LOADS, measure
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe

    if name:
        DEVICES[name]()
    recipe = get_recipe("cifar10")
    config = recipe.config(get_method("frost"), 0)
    config = replace(config, discover=replace(config.discover, batch_size=batch))
    return measure(config, LOADS["cifar10"], size=32, channels=3, epochs=GPU["epochs"], device=device, compiled="on")


def devices(device: str) -> Iterator[dict[str, Any]]:
    """Each off by itself, with runs in between that have all on; what there is after each run, as it takes minutes."""
    if plan_for(device) is not GPU:
        return
    rows, off = [], list(DEVICES)
    in_turns = [name for at in range(0, len(off), 2) for name in ("", *off[at : at + 2])]
    with tempfile.TemporaryDirectory() as cache:
        for name in (*in_turns, ""):
            command = [sys.executable, __file__, "--off", name, "--device", device]
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
            rows.append({"off": name, **told(json.loads(done.stdout.splitlines()[-1]))})
            yield {"rows": rows}


def gains(rows: list[dict[str, Any]]) -> str:
    """By how much each makes a stage faster than it is without."""

    def seconds(row: dict[str, Any]) -> list[float]:
        return [row[key]["seconds_per_epoch"] for key in ("stage_one", "discovery")]

    usual = [statistics.median(times) for times in zip(*(seconds(row) for row in rows if not row["off"]), strict=True)]
    table = [
        [row["off"], *(f"{100 * (own / all_on - 1):+.1f} %" for own, all_on in zip(seconds(row), usual, strict=True))]
        for row in rows
        if row["off"]
    ]
    return markdown(["without", "stage one takes", "discovery takes"], table)


def gained(kept: dict[str, Any]) -> list[str]:
    """The table of the devices, where they were measured."""
    if "devices" not in kept:
        return []
    commit = str(kept["devices"]["commit"])[:7]
    return [f"What each device gains, all others on, at commit {commit}:\n", gains(kept["devices"]["rows"]), ""]


Part = Callable[[str], Iterator[dict[str, Any]]]
PARTS: dict[str, Part] = {"compiled": compiled, "growth": growth, "devices": devices}


def keep(name: str, found: dict[str, Any], folder: Path) -> None:
    """One part with the other, in the file of its hardware."""
    from hoarfrost import provenance

    hardware = next(iter(found.values()))[0]["hardware"]
    path = folder / f"{file_name(hardware)}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**kept, name: {**provenance.describe(), **found}}, indent=1) + "\n")


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
    main, warm, grown = kept["compiled"]["main"], kept["compiled"]["warm"], kept["growth"]
    first, version = main[0], kept["compiled"]["versions"]["torch"]
    image = "×".join(map(str, first["image"]))
    rows = [stage(first, "stage_one"), *(stage(found, "discovery") for found in main)]
    speed = markdown(["stage", "batch", "s/epoch", "images/s", "floor, s", "× floor"], rows)
    memory = first["memory"]
    cold, again = first["start_up"], warm["start_up"]
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
        plain = next(row for row in grown["batch"] if row["discovery"]["batch"] == first["discovery"]["batch"])
        facts.append(
            f"- Compiling discovery pays from {pays_from(first, plain)} steps on the first time,"
            f" and from {pays_from(warm, plain)} with the cache."
        )

    def by(name: str) -> str:
        rows = []
        for found in grown[name]:
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
        return markdown([name, "stage one, s/epoch", "discovery, s/epoch", "device MiB"], rows)

    return "\n".join(
        [
            f"### {first['hardware']}, {first['precision']}\n",
            f"{first['backbone']}, {first['images']:,} images {image} a stage, torch {version}.\n",
            speed,
            "",
            *facts,
            "",
            "How cost grows, without compiling:\n",
            by("images"),
            "",
            by("classes"),
            "",
            by("batch"),
            "",
            *gained(kept),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--off", choices=["", *DEVICES], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.off is not None:
        print(json.dumps(one_device(args.off, args.device, GPU["batches"][-1])))
        return
    if not args.table:
        for name in [args.only] if args.only else PARTS:
            for found in PARTS[name](args.device):
                keep(name, found, args.out)
    files = [json.loads(path.read_text()) for path in sorted(args.out.glob("*.json"))]
    whole = [kept for kept in files if kept.keys() >= {"compiled", "growth"}]
    made = "\n".join(map(section, whole))
    if args.out == RESULTS and PAGE.exists():
        PAGE.write_text(renewed(PAGE.read_text(), made.rstrip("\n"), begin=BEGIN))
    print(made)


if __name__ == "__main__":
    main()
