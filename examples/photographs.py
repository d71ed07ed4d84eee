"""From folders of pictures to named classes and predictions, in less than a minute on two cores.

    python examples/photographs.py --out runs/photographs

The script draws its own pictures, so it needs no data: six kinds with labels, and four others among them in a folder
without labels. For your own photographs, leave out `draw_folders` and name your folders instead.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw

from hoarfrost import Learner

Shape = Callable[[ImageDraw.ImageDraw, float, float, float, str], None]
"""draws one shape: the centre x and y, half its size, its colour"""

SIDE = 128
"""pixels a side; from 96 on, pictures in colour count as photographs and get the pretrained network"""


def box(x: float, y: float, half: float) -> tuple[float, float, float, float]:
    """Left, top, right and bottom."""
    return x - half, y - half, x + half, y + half


def cross(pen: ImageDraw.ImageDraw, x: float, y: float, half: float, colour: str) -> None:
    """Two lines."""
    pen.line((x - half, y, x + half, y), colour, 4)
    pen.line((x, y - half, x, y + half), colour, 4)


def face(pen: ImageDraw.ImageDraw, x: float, y: float, half: float, colour: str) -> None:
    """A disc with two eyes and a mouth."""
    pen.ellipse(box(x, y, half), colour)
    for side in (-1, 1):
        pen.ellipse(box(x + side * half / 3, y - half / 4, half / 6), "black")
    pen.arc(box(x, y, half / 2), 20, 160, "black", 2)


def arrow(pen: ImageDraw.ImageDraw, x: float, y: float, half: float, colour: str) -> None:
    """A line with a head, to the right."""
    pen.line((x - half, y, x + half, y), colour, 5)
    pen.polygon([(x + half / 3, y - half), (x + 1.5 * half, y), (x + half / 3, y + half)], colour)


def star(pen: ImageDraw.ImageDraw, x: float, y: float, half: float, colour: str) -> None:
    """Five points."""
    radii = [half if corner % 2 else half / 2.5 for corner in range(10)]
    corners = [(x + r * math.sin(k * math.pi / 5), y + r * math.cos(k * math.pi / 5)) for k, r in enumerate(radii)]
    pen.polygon(corners, colour)


KNOWN: dict[str, Shape] = {
    "bars": lambda pen, x, y, half, colour: pen.line((x, y - 4 * half, x, y + 4 * half), colour, 7),
    "crosses": cross,
    "discs": lambda pen, x, y, half, colour: pen.ellipse(box(x, y, half), colour),
    "faces": face,
    "squares": lambda pen, x, y, half, colour: pen.rectangle(box(x, y, half), colour),
    "triangles": lambda pen, x, y, half, colour: pen.regular_polygon((x, y, half), 3, fill=colour),
}
NEW: dict[str, Shape] = {
    "arrows": arrow,
    "frames": lambda pen, x, y, half, colour: pen.rectangle(box(x, y, half), outline=colour, width=4),
    "rings": lambda pen, x, y, half, colour: pen.ellipse(box(x, y, half), outline=colour, width=4),
    "stars": star,
}


def draw(shape: Shape, chance: random.Random) -> Image.Image:
    """Nine of a shape, in three rows, on a plain background."""
    image = Image.new("RGB", (SIDE, SIDE), f"hsl({chance.randrange(360)}, 40%, {chance.randrange(75, 95)}%)")
    pen, hue = ImageDraw.Draw(image), chance.randrange(360)
    for place in range(9):
        x, y = (SIDE / 6 * (1 + 2 * k) + chance.uniform(-6, 6) for k in divmod(place, 3))
        shape(pen, x, y, chance.uniform(12, 18), f"hsl({hue}, 80%, {chance.randrange(25, 50)}%)")
    return image


def draw_folders(out: Path, each: int = 12, seed: int = 0) -> None:
    """Folders as you may have them: known/KIND/, unsorted/ (names say nothing), and checked/KIND/ to score with."""
    chance = random.Random(seed)
    for folder, kinds in (("known", KNOWN), ("unsorted", {**KNOWN, **NEW}), ("checked", {**KNOWN, **NEW})):
        for kind, shape in kinds.items():
            for number in range(each):
                name = f"{chance.getrandbits(32):08x}" if folder == "unsorted" else f"{kind}/{number:02}"
                path = out / folder / f"{name}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                draw(shape, chance).save(path)


def main() -> None:
    """Fits, discovers, names what was found, and predicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/photographs"), metavar="DIR")
    out: Path = parser.parse_args().out
    draw_folders(out)

    learner = Learner(seed=0)
    learner.fit(out / "known")
    learner.discover(out / "unsorted")  # known and new classes, mixed
    print("found:", ", ".join(learner.class_names[learner.labelled_classes :]))

    # You would look at the pictures of each new class. The script uses pictures whose kind it knows.
    for kind in NEW:
        found = Counter(learner.predictions(out / "checked" / kind).names)
        cluster, count = found.most_common(1)[0]
        print(f"{kind}: {count} of {sum(found.values())} are {cluster}")
        if cluster.startswith("new-"):
            learner.rename(cluster, kind)

    predictions = learner.predictions(out / "checked")
    right = sum(Path(row["path"]).parent.name == row["class"] for row in predictions)
    print(f"right: {right} of {len(predictions)}, for example {predictions[0]}")
    learner.save(out / "model")


if __name__ == "__main__":
    main()
