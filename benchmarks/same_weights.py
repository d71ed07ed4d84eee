"""Whether the code still learns and says the same: weights, scores, JSON and pages of many small cases.

python benchmarks/same_weights.py --against COMMIT          this tree and that commit, on this machine
python benchmarks/same_weights.py --against COMMIT --only digits/frost photographs
python benchmarks/same_weights.py --write FILE              this tree alone, in this process, as JSON
python benchmarks/same_weights.py --compare FILE FILE       two such files

The cases: every preset on digits, with two discoveries; photographs that are drawn here, with the pretrained network as
it is, tuned, tuned half-way, and averaged; scenarios; every command that answers with JSON. Of each case are compared,
byte for byte: tensors of model folders, whatever their names are; model.json, config.json, metrics.json and what
commands answer; pages; scores, probabilities, assigned images, the number of classes. Times, and names of commits,
are left out. What is new on one side is listed, and does not count as a difference.

CPU, with one thread and with two. entry.py has all that this knows of the code. --keep leaves the folders of the cases.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import entry
import numpy as np
from PIL import Image

Case = dict[str, dict[str, str]]
"""parts of a case, and of each part what stands at which place"""

SHORT = {"fit.epochs": 2, "discover.epochs": 2, "fit.batch_size": 32, "discover.batch_size": 16}
IMAGES = 40
"""digits a class"""
SIDE = 128
"""of photographs, in pixels"""
THREADS = (1, 2)
SHOWN = 6
"""differences of a part that are printed"""

TIMES = {"seconds", "commit", "versions", "hardware", "time", "times"}
"""keys of JSON whose values are of the moment or of the tree"""
OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    ("hoarfrost", {"method.design.before_last": False}),
    ("hoarfrost", {"method.decides": "average"}),
    ("hoarfrost", {"method.decides": "trained"}),
    ("frost", {"method.weight_average": 0.9}),
    ("frost", {"views": "separate"}),
]
"""presets with other settings, beside all as they are"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def array(values: Any) -> str:
    """Kind, shape and bytes."""
    found = np.ascontiguousarray(values)
    return f"{found.dtype}{list(found.shape)} {digest(found.tobytes())}"


def flat(content: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Each value of JSON with its place; times left out."""
    if isinstance(content, dict) and content:
        for key, value in content.items():
            if key not in TIMES:
                yield from flat(value, f"{place}.{key}" if place else key)
    elif isinstance(content, list) and content and any(isinstance(value, dict | list) for value in content):
        for index, value in enumerate(content):
            yield from flat(value, f"{place}[{index}]")
    else:
        yield place, json.dumps(content)


def page(text: str) -> dict[str, str]:
    """The lines of a page; pictures by their digests, times left out."""
    text = re.sub(r"base64,([A-Za-z0-9+/=]+)", lambda found: digest(base64.b64decode(found[1])), text)
    text = re.sub(r"\b\d[\d.,]* (s|min|h|seconds|minutes)\b", "TIME", text)
    return {f"{number:05}": line for number, line in enumerate(text.splitlines())}


def tensors(path: Path) -> dict[str, str]:
    """Of a safetensors file, read here so that no code that is compared takes part."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, of in header.items():
        start, end = of["data_offsets"]
        found[name] = f"{of['dtype']}{of['shape']} {digest(content[8 + size + start : 8 + size + end])}"
    return found


def files(folder: Path) -> Case:
    """What lies in a model folder or a run folder."""
    found: Case = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        if path.suffix == ".safetensors":
            found[f"tensors of {name}"] = tensors(path)
        elif path.suffix == ".json":
            found[name] = dict(flat(json.loads(path.read_text())))
        elif path.suffix == ".html":
            found[name] = page(path.read_text())
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = dict(flat(lines))
        elif path.suffix in (".csv", ".md", ".tex", ".png"):
            found[name] = {"": digest(path.read_bytes())}
    return found


def answer(*words: str, masked: bool = False) -> dict[str, str]:
    """What a command answers with --json; with `masked` its keys alone."""
    out, err = TextIOWrapper(BytesIO(), "utf-8"), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = entry.command([*words, "--json"])
    out.seek(0)
    if code != 0:
        raise RuntimeError(f"hoarfrost {' '.join(words)} ended with {code}: {err.getvalue()[-500:]}")
    found = dict(flat(json.loads(out.read())))
    return dict.fromkeys(found, "") if masked else found


def learned(learner: Any, name: str, images: Any) -> Case:
    """Of a learner: what it saves, and what it says of images."""
    learner.save(name)
    found = files(Path(name))
    found[f"scores of {name}"] = {key: array(value) for key, value in entry.said(learner, images).items()}
    return found


def discovered(learner: Any, name: str, images: Any) -> Case:
    """The same after a discovery, and where its images went."""
    found = learned(learner, name, images)
    assigned, number = entry.discovered(learner)
    found[f"discovery of {name}"] = {"assigned": array(assigned), "number": number}
    return found


def digits() -> tuple[Any, Any, list[Any]]:
    """Images, labels, and of each digit the first rows."""
    from sklearn.datasets import load_digits

    content = load_digits()
    labels = content.target
    return (content.images * 15.9).astype("uint8"), labels, [np.flatnonzero(labels == k)[:IMAGES] for k in range(10)]


def preset(method: str, settings: dict[str, Any]) -> Case:
    """Four digits with labels; three that are new; the other three among old ones, their number estimated."""
    images, labels, rows = digits()
    first, test = np.concatenate(rows[:4]), images[::7]
    learner = entry.new_learner(method, {**SHORT, **settings})
    learner.fit(images[first], labels[first])
    found = learned(learner, "fitted", test)
    found["unlike"] = {"": array(entry.unlikeness(learner, test))} if method == "hoarfrost" else {}
    mixed = np.concatenate([*(each[:15] for each in rows[:4]), *rows[7:]])
    try:
        learner.discover(images[np.concatenate(rows[4:7])], 3, only_new=True)
    except entry.refused():  # references, which need labels again
        return found | scenario("--split", "5-5", "--method", method)
    found |= discovered(learner, "new", test)
    learner.discover(images[mixed], "auto", only_new=False)
    return found | discovered(learner, "mixed", test)


def scenario(*words: str) -> Case:
    """A whole one on digits."""
    short = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    found = {"answer": answer("run", "--dataset", "digits", *words, *short, "--device", "cpu", "--out", "run")}
    return found | files(Path("run"))


def photograph(kind: int, number: int) -> Image.Image:
    """One of a kind: waves of its own direction and length, in its own colour; no two are alike."""
    random = np.random.default_rng([kind, number])
    x, y = np.meshgrid(*[np.arange(SIDE) / SIDE] * 2)
    angle, waves = kind * 0.5 + random.normal(0, 0.25), 4 + 1.2 * kind + random.normal(0, 0.8)
    wave = np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + random.uniform(0, 6))
    colour = 0.5 + 0.3 * np.sin(kind * 1.2 + np.arange(3) * 2.1 + random.normal(0, 0.6, 3))
    pixels = 255 * np.clip(colour * (0.6 + 0.4 * wave[..., None]) + random.normal(0, 0.15, (SIDE, SIDE, 3)), 0, 1)
    return Image.fromarray(pixels.astype(np.uint8))


def draw() -> None:
    """Sixty-two photographs: four known kinds with labels; folders with two new kinds, with both, with nothing new."""
    drawn = Counter[int]()

    def put(folder: str, kinds: Sequence[int], each: int) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            for _ in range(each):
                photograph(kind, drawn[kind]).save(Path(folder, f"{kind}-{drawn[kind]}.png"))
                drawn[kind] += 1

    for kind in range(4):
        put(f"known/kind-{kind}", [kind], 8)
    put("new", [4, 5], 7)
    put("nothing-new", range(4), 2)
    put("mixed", range(4), 2)
    for path in sorted(Path("new").iterdir()):
        shutil.copy(path, "mixed")
    for path in (path for folder in ("mixed", "nothing-new") for path in sorted(Path(folder).iterdir())):
        checked = Path(f"checked/kind-{path.name.partition('-')[0]}")
        checked.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, checked)


def sets(**settings: Any) -> list[str]:
    """Settings as words; two underscores are a full stop."""
    pairs = {key.replace("__", "."): value for key, value in settings.items()}
    return [word for key, value in pairs.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def fitted(*words: str) -> Case:
    """A model of the photographs with labels."""
    draw()
    found = {"answer of fit": answer("fit", "known", "--out", "model", "--device", "cpu", *words)}
    return found | files(Path("model")) | said("model")


def said(model: str) -> Case:
    """What a saved model says of a third of the photographs without labels."""
    images = sorted(str(path) for folder in ("mixed", "nothing-new") for path in Path(folder).iterdir())[::3]
    found = entry.said(entry.load(model), images)
    return {f"scores of {model}": {key: array(value) for key, value in found.items()}}


def found_in(folder: str, *words: str, model: str = "model", out: str = "model2") -> Case:
    """A discovery."""
    found = {f"answer of discover {out}": answer("discover", model, folder, "--out", out, "--device", "cpu", *words)}
    return found | files(Path(out)) | said(out)


def as_it_is() -> Case:
    """The usual way of photographs on a CPU, and all that people do with a model."""
    found = fitted()
    found |= found_in("new", "--only-new", "--novel", "2", out="only-new")
    found |= found_in("new", "--only-new", out="only-new-estimated")
    found |= found_in("mixed", out="from-mixed")
    found |= found_in("mixed", "--novel", "2", out="from-mixed-given")
    found |= found_in("nothing-new", out="from-nothing-new")
    found |= found_in("new", model="from-nothing-new", out="later")

    def then(name: str, *words: str) -> None:
        found[f"answer of {name}"] = answer(*words)

    then("evaluate fit", "evaluate", "model", "checked", "--device", "cpu")
    then("evaluate", "evaluate", "from-mixed-given", "checked", "--device", "cpu")
    then("predict", "predict", "from-mixed-given", "mixed", "--top", "3", "--device", "cpu")
    then("predict some", "predict", "from-mixed-given", "mixed", "--threshold", "0.9", "--device", "cpu")
    then("sort", "sort", "from-mixed-given", "mixed", "--into", "sorted", "--device", "cpu")
    found["sorted"] = {str(path): digest(path.read_bytes()) for path in sorted(Path("sorted").glob("[!.]*/*"))}
    then("classes", "classes", "from-mixed-given")
    then("name", "name", "from-mixed-given", "new-1=first")
    then("merge", "merge", "from-mixed-given", "new-2", "first")
    then("classes then", "classes", "from-mixed-given")
    then("predict then", "predict", "from-mixed-given", "mixed", "--device", "cpu")
    then("undo", "undo", "from-mixed-given")
    then("reject", "reject", "from-mixed-given", "new-2")
    return found | files(Path("from-mixed-given")) | said("from-mixed-given")


def tuned() -> Case:
    """The pretrained network trained in every stage."""
    short = sets(fit_frozen=[], fit__epochs=1, fit__batch_size=16, discover__epochs=1, discover__batch_size=8)
    return fitted("--method", "frost", *short) | found_in("mixed", "--novel", "2")


def half_way() -> Case:
    """Trained in stage one, and brought half-way back."""
    short = sets(fit_keeps=0.5, fit__epochs=1, fit__batch_size=16)
    return fitted(*short) | found_in("mixed") | found_in("nothing-new", out="from-nothing-new")


def averaged() -> Case:
    """The average of the network before and after a discovery decides."""
    method = {"method__frozen": ["all but the last"], "method__decides": "average"}
    short = sets(**method, fit_frozen=[], fit__epochs=1, fit__batch_size=16, discover__epochs=1, discover__batch_size=8)
    return fitted(*short) | found_in("new", "--only-new", "--novel", "2")


def by_method(method: str) -> Callable[[], Case]:
    """The pretrained network as it is, with heads that are trained."""

    def case() -> Case:
        short = sets(fit__epochs=4, discover__epochs=4)
        return fitted("--method", method, *short) | found_in("mixed")

    return case


def little_pictures() -> Case:
    """Small images in files, decoded each time and kept in a file of pixels."""
    images, labels, rows = digits()
    for label in range(3):
        Path(f"few/{label}").mkdir(parents=True)
        for row in rows[label][:12]:
            Image.fromarray(images[row]).resize((32, 32)).save(f"few/{labels[row]}/{row}.png")
    found: Case = {}
    for name, words in {"disk": ["--from-disk"], "cache": ["--cache", "kept"], "memory": []}.items():
        short = [*sets(**{"fit__epochs": 2, "fit__batch_size": 16}), "--device", "cpu"]
        found[f"answer of {name}"] = answer("fit", "few", "--out", name, *words, *short)
        found |= files(Path(name))
    return found


def commands() -> Case:
    """What answers without a model."""
    bench = answer("bench", "--dataset", "digits", "--images", "64", "--epochs", "1", "--device", "cpu", masked=True)
    reproduced = answer(
        "reproduce", "figureA1", "--dataset", "digits", "--epochs", "1", "--device", "cpu", "--out", "all"
    )
    found = {"methods": answer("methods"), "bench": bench, "reproduce": reproduced}
    return found | files(Path("all"))


def demonstration() -> Case:
    found = {"answer": answer("demo", "--out", "demo", "--device", "cpu")}
    return found | files(Path("demo"))


def cases() -> dict[str, Callable[[], Case]]:
    """By name."""
    found: dict[str, Callable[[], Case]] = {}
    names = dict.fromkeys(place.partition(".")[0] for place in answer("methods"))
    for method, settings in [*((name, {}) for name in names), *OTHERWISE]:
        other = "".join(f" {key}={value}" for key, value in settings.items())
        found[f"digits/{method}{other}"] = partial(preset, method, settings)
    found |= {
        "scenario/mixed": lambda: scenario("--split", "4-3-3", "--mixed", "0.3", "--novel", "auto"),
        "scenario/c-gcd": lambda: scenario("--split", "5-3-2", "--protocol", "c-gcd", "--seed", "1"),
        "photographs/as-it-is": as_it_is,
        "photographs/tuned": tuned,
        "photographs/half-way": half_way,
        "photographs/averaged": averaged,
        **{f"photographs/{method}": by_method(method) for method in ("frost", "kmeans", "vb-cgcd")},
        "little-pictures": little_pictures,
        "commands": commands,
        "demo": demonstration,
    }
    return found


def write(file: Path, only: Sequence[str], keep: Path | None) -> None:
    """Tries all cases here, each in a folder of its own."""
    content: dict[str, Case] = {}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) if keep is None else keep
        for name, case in cases().items():
            if only and not name.startswith(tuple(only)):
                continue
            folder, began = home / name.replace("/", "-").replace(" ", "-"), time.process_time()
            folder.mkdir(parents=True)
            with chdir(folder):
                try:
                    content[name] = case()
                except Exception as error:  # one that fails on both sides is said, and does not hide the others
                    content[name] = {"failed": {"": "".join(traceback.format_exception_only(error)).strip()}}
            if keep is None:
                shutil.rmtree(folder)
            file.write_text(json.dumps(content, indent=1) + "\n")
            print(f"{name:50} {time.process_time() - began:5.1f} s of CPU", file=sys.stderr, flush=True)


def changes(part: str, before: dict[str, str], now: dict[str, str]) -> tuple[list[str], list[str]]:
    """What differs in a part of a case, and what is new there."""
    if part.startswith("tensors"):
        gone, new = Counter(before.values()) - Counter(now.values()), Counter(now.values()) - Counter(before.values())
        lost = [f"{name}: {value} is gone" for name, value in before.items() if value in gone]
        added = [f"{name}: {value}" for name, value in now.items() if value in new]
        return (lost + [f"instead: {line}" for line in added] if lost else []), ([] if lost else added)
    if part.endswith(".html"):
        lines = difflib.unified_diff(list(before.values()), list(now.values()), lineterm="", n=0)
        return [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"], []
    differing = [
        f"{place}: {value} became {now.get(place, 'nothing')}"
        for place, value in before.items()
        if now.get(place) != value
    ]
    return differing, [f"{place}: {value}" for place, value in now.items() if place not in before]


def compare(before: dict[str, Case], now: dict[str, Case]) -> int:
    """Prints what differs; the number of cases that do."""
    differing = 0
    for name in before | now:
        if name not in before or name not in now:
            print(f"{name}: only {'now' if name in now else 'before'}")
            differing += name not in now
            continue
        told, differs = list[str](), False
        for part in before[name] | now[name]:
            if part not in before[name]:
                told.append(f"  {part} is new")
                continue
            if part not in now[name]:
                lost, added = ["is gone"], list[str]()
            else:
                lost, added = changes(part, before[name][part], now[name][part])
            differs |= bool(lost)
            for word, lines in (("differs", lost), ("has more", added)):
                told += [f"  {part} {word} ({len(lines)}):"] if lines else []
                told += [f"    {line[:200]}" for line in lines[:SHOWN]]
        failed = now[name].get("failed", {}).get("")
        told += [f"  it fails: {failed}"] if failed else []
        differing += differs or bool(failed)
        print("\n".join([f"{name}: {'differs' if differs else 'failed' if failed else 'the same'}", *told]))
    return differing


def started(tree: Path, threads: int, file: Path, args: argparse.Namespace, side: str) -> subprocess.Popen[bytes]:
    """This file with the code of a tree."""
    command = [sys.executable, __file__, "--write", str(file)]
    command += ["--only", *args.only] if args.only else []
    command += [] if args.keep is None else ["--keep", str(args.keep / f"{side}-{threads}")]
    count = str(threads)
    own = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    return subprocess.Popen(command, env={**os.environ, **own}, stderr=subprocess.DEVNULL)


def against(args: argparse.Namespace) -> int:
    """Both trees: side by side with one thread, one after the other with more."""
    home, differing = Path(__file__).resolve().parents[1], 0
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place, "tree")
        subprocess.run(["git", "-C", home, "worktree", "add", "-q", "--detach", tree, args.against], check=True)
        try:
            for threads in args.threads:
                files_of = {side: Path(place, f"{side}-{threads}.json") for side in ("before", "now")}
                processes = []
                for side, path in files_of.items():
                    processes.append(started(tree if side == "before" else home, threads, path, args, side))
                    if threads > 1:
                        processes[-1].wait()
                if sum(process.wait() != 0 for process in processes):
                    raise SystemExit("the cases could not be tried: call --write FILE to see why")
                before, now = (json.loads(path.read_text()) for path in files_of.values())
                print(f"{threads} thread{'s' if threads > 1 else ''}:")
                found = compare(before, now)
                print(f"{found} of {len(before)} cases differ\n")
                differing += found
        finally:
            subprocess.run(["git", "-C", home, "worktree", "remove", "--force", tree], check=True)
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="cases whose names begin so")
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS, metavar="N")
    parser.add_argument("--keep", type=lambda text: Path(text).absolute(), metavar="DIR")
    args = parser.parse_args()
    if args.write is not None:
        write(args.write.absolute(), args.only, args.keep)
        return
    if args.compare is not None:
        before, now = (json.loads(path.read_text()) for path in args.compare)
        differing = compare(before, now)
        print(f"{differing} of {len(before)} cases differ")
    elif args.against is not None:
        differing = against(args)
    else:
        parser.error("give --against COMMIT, --compare FILE FILE or --write FILE")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
