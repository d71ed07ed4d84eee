"""Memory of a training from disk, and of photographs: it should not depend on how many images there are.

python benchmarks/disk_memory.py                            10,000 and 100,000 images
python benchmarks/disk_memory.py --images 1000 2000 --json  other numbers, and the figures as JSON
python benchmarks/disk_memory.py --photographs              fit, discover and predict; kept in results/memory/, and
                                                            put into docs/speed.md and README.md
python benchmarks/disk_memory.py --table                     only the table, of what is kept

For each number a folder of that many little JPEG files is made, and one epoch of stage one runs over it in a process
of its own, on the CPU. The figure is the highest memory of that process and its readers together, sampled: the sum of
their proportional set sizes, which counts shared pages once. "Own" leaves out the pages of files, such as libraries,
that the system drops and loads as it likes; "main" is the process without its readers, exactly. Linux only.

Photographs have 500 x 375 pixels, and the commands run over them as people call them, with as many unsorted ones, half
of known classes: on 20,000 that takes an hour of two cores. Threads read them, so that "main" is the figure: samples
miss what lasts a moment.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hoarfrost.paper.text import markdown, renewed
from hoarfrost.provenance import commit
from hoarfrost.store import write_bytes

CLASSES = 10
SIDE = 64
PHOTOGRAPH = (500, 375)
DISTINCT = 200
"""encoded images a class; the files repeat them, each with its number behind the end of the image"""
SAMPLE_SECONDS = 0.2
MIB = 1 << 20

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "memory" / "photographs.json"
PAGE, README = ROOT / "docs" / "speed.md", ROOT / "README.md"
BEGIN = "<!-- made by benchmarks/disk_memory.py -->"
VERBS = {
    "fit": ["fit", "images", "--out", "model"],
    "discover": ["discover", "model", "unsorted", "--out", "model2"],
    "predict": ["predict", "model2", "unsorted", "--out", "predicted.csv"],
}


def write_images(folder: Path, count: int, size: tuple[int, int] = (SIDE, SIDE), *, first: int = 0) -> None:
    """Class folders of real, separate files: coloured blots, another mean colour in every class from the ``first``."""
    for class_id in range(first, first + CLASSES):
        rng = np.random.default_rng(class_id)
        colour = rng.integers(60, 196, 3)
        encoded = []
        for _ in range(DISTINCT):
            blots = np.clip(colour + rng.normal(0, 40, (8, 8, 3)), 0, 255).astype(np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
            encoded.append(buffer.getvalue())
        inside = folder / f"class-{class_id}"
        inside.mkdir(parents=True)
        for number in range(class_id - first, count, CLASSES):
            (inside / f"{number:08d}.jpg").write_bytes(encoded[number // CLASSES % DISTINCT] + b"%d" % number)


def train(folder: Path, settings: dict[str, Any]) -> dict[str, float]:
    """One training from disk; the seconds of its parts, and the highest memory of this process."""
    from hoarfrost import Learner
    from hoarfrost.data.folder import read_folder

    started = time.perf_counter()
    images = read_folder(folder, labelled=True, on_disk=True)
    scanned = time.perf_counter()
    Learner(backbone="small", device="cpu", settings=settings).fit(images)
    ended = time.perf_counter()
    return {"main_peak_mib": high_water_mark() / MIB, "scan_seconds": scanned - started, "fit_seconds": ended - scanned}


def proportional_memory(root: int) -> tuple[int, int]:
    """Bytes of a process and all below it, all and without files; what ends while it is looked at counts as nothing."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    total, own, waiting = 0, 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        try:
            _, *lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (OSError, ValueError):
            continue
        fields = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
        total += fields["Pss:"]
        own += fields["Pss_Anon:"] + fields["Pss_Shmem:"]
    return total, own


def measure(count: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Makes the images, trains on them, and says how much memory that took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        write_images(Path(folder, "images"), count)
        made = time.perf_counter() - started
        command = [__file__, "--train", f"{folder}/images", "--settings", json.dumps(settings)]
        peaks, answer = watched(command, Path(folder))
    return {"images": count, **peaks, **json.loads(answer), "make_seconds": made}


def watched(arguments: list[str], folder: Path) -> tuple[dict[str, float], str]:
    """Runs Python in a folder; the highest memory that it took, and what it printed."""
    peak = own_peak = highest = 0
    command, started = [sys.executable, *arguments], time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        while process.poll() is None:
            total, own = proportional_memory(process.pid)
            peak, own_peak, highest = max(peak, total), max(own_peak, own), max(highest, high_water_mark(process.pid))
            time.sleep(SAMPLE_SECONDS)
        assert process.stdout is not None
        answer = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed")
    peaks = {"peak_mib": peak / MIB, "own_peak_mib": own_peak / MIB, "main_peak_mib": highest / MIB}
    return {**peaks, "seconds": time.perf_counter() - started}, answer


def high_water_mark(process: int | str = "self") -> int:
    """The most bytes that a process ever had in memory, by the kernel's count; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def photographs(counts: list[int]) -> None:
    """Each command on each number of photographs, kept as it comes."""
    made_by = commit()
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            write_images(Path(folder, "images"), count, PHOTOGRAPH)
            write_images(Path(folder, "unsorted"), count, PHOTOGRAPH, first=CLASSES // 2)
            for verb, arguments in VERBS.items():
                found, _ = watched(["-m", "hoarfrost", *arguments, "--device", "cpu"], Path(folder))
                print(f"{count:,} photographs, {verb}: {found}", file=sys.stderr, flush=True)
                keep({"photographs": count, "verb": verb, **found, "cores": os.cpu_count(), "commit": made_by})


def kept_rows() -> list[dict[str, Any]]:
    return list(json.loads(KEPT.read_text())) if KEPT.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Beside the rows of other commands and numbers."""
    key = row["photographs"], row["verb"]
    rows = [old for old in kept_rows() if (old["photographs"], old["verb"]) != key]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(KEPT, (json.dumps([*rows, row], indent=1) + "\n").encode())


def table_of_photographs(rows: list[dict[str, Any]]) -> str:
    """A row a command: the highest memory with each number of photographs."""
    counts = sorted({row["photographs"] for row in rows})
    found = {(row["photographs"], row["verb"]): row for row in rows}
    cells = [[f"`{verb}`", *(cell for count in counts for cell in _cells(found.get((count, verb))))] for verb in VERBS]
    titles = [title for count in counts for title in (f"{count:,}: MiB", "s")]
    cores = " and ".join(sorted({str(row["cores"]) for row in rows}))
    note = f"Highest memory of a command (VmHWM) and its seconds; {cores} cores, which others may have used too."
    return f"{markdown(['photographs', *titles], cells)}\n\n{note}"


def in_a_sentence(rows: list[dict[str, Any]]) -> str:
    """How long the fewest photographs take, and how much memory the fewest and the most."""
    few, many = (choose(row["photographs"] for row in rows) for choose in (min, max))
    found = {(row["photographs"], row["verb"]): row for row in rows}
    fit, discover = found[few, "fit"], found[few, "discover"]
    least, most = (max(row["main_peak_mib"] for row in rows if row["photographs"] == count) for count in (few, many))
    return (
        f"With {few:,} photographs, `fit` takes {fit['seconds']:.0f} s and `discover` {discover['seconds']:.0f} s on"
        f" {fit['cores']} cores without a GPU. They need at most {least:.0f} MiB of memory; {many:,} photographs need"
        f" {most:.0f} MiB. [Speed](docs/speed.md#photographs) has the details."
    )


def _cells(row: dict[str, Any] | None) -> tuple[str, str]:
    return ("–", "–") if row is None else (f"{row['main_peak_mib']:,.0f}", f"{row['seconds']:,.0f}")


PEAKS = {"peak_mib": "peak MiB", "own_peak_mib": "own MiB", "main_peak_mib": "main MiB"}


def table(runs: list[dict[str, Any]]) -> str:
    lines = ["    images" + "".join(f"{title:>11}" for title in PEAKS.values()) + "   scan s    fit s"]
    for run in runs:
        peaks = "".join(f"{run[figure]:11.1f}" for figure in PEAKS)
        lines.append(f"{run['images']:10,}{peaks}{run['scan_seconds']:9.0f}{run['fit_seconds']:9.0f}")
    lines.append("     ratio" + "".join(f"{ratio(runs, figure):11.3f}" for figure in PEAKS))
    return "\n".join([*lines, f"ratio: largest to smallest; {platform.machine()}, {os.cpu_count()} cores"])


def ratio(runs: list[dict[str, Any]], figure: str) -> float:
    peaks: list[float] = [run[figure] for run in runs]
    return max(peaks) / min(peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", metavar="N")
    parser.add_argument("--photographs", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train is not None:
        print(json.dumps(train(args.train, args.settings)))
        return
    if args.photographs or args.table:
        if not args.table:
            photographs(args.images or [1_000, 20_000])
        if not kept_rows():
            parser.error(f"nothing is kept in {KEPT}: measure first")
        for page, made in ((PAGE, table_of_photographs(kept_rows())), (README, in_a_sentence(kept_rows()))):
            page.write_text(renewed(page.read_text(), made, begin=BEGIN))
            print(made)
        return
    settings = {"fit.epochs": args.epochs, "fit.batch_size": args.batch}
    runs = [measure(count, settings) for count in args.images or [10_000, 100_000]]
    if args.json:
        ratios = {figure: ratio(runs, figure) for figure in PEAKS}
        print(json.dumps({"runs": runs, "ratios": ratios, "cores": os.cpu_count()}, indent=2))
    else:
        print(table(runs))


if __name__ == "__main__":
    main()
