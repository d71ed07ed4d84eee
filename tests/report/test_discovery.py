"""The page of a discovery shows the right images of each class, reads no others, and fits a telephone."""

from __future__ import annotations

import base64
import html
import io
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hoarfrost.data.images import ImageSet
from hoarfrost.models.model import Discovery
from hoarfrost.report.data import DiscoveryData, Group
from hoarfrost.report.gather import discovery_data
from hoarfrost.report.html import render
from hoarfrost.training.inference import Outputs
from hoarfrost.unsorted.number import Count
from tests.report.test_html import Page

NAMES = ("ant", "bee", "cat", "new-1", "new-2")
EVIL = '"><script>alert(1)</script>'
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def outputs_of(assigned: np.ndarray, classes: int) -> Outputs:
    """Of the images given to one class the first is the most probable; unsure ones look like nothing."""
    scores = np.zeros((len(assigned), classes), dtype=np.float32)
    for row, label in enumerate(assigned.tolist()):
        if label >= 0:
            scores[row, label] = 9 - row / 10
    scores[:, 1] += 0.5  # what is no ant and no cat is rather a bee
    return Outputs(scores=scores, novel_scores=())


FEATURES = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)


class Counted(ImageSet):
    """Images that note which of them were read; each is filled with its own position."""

    read: list[int]

    def pixels(self, indices: object) -> np.ndarray:
        rows = np.asarray(indices)
        object.__setattr__(self, "read", [*getattr(self, "read", []), *rows.tolist()])
        return super().pixels(rows)


@pytest.fixture
def images() -> Counted:
    pixels = np.broadcast_to(np.arange(60, dtype=np.uint8)[:, None, None, None], (60, 8, 8, 3))
    return Counted(np.ascontiguousarray(pixels), paths=[f"photos/{row:02}.jpg" for row in range(60)])


ASSIGNED = np.array([3] * 30 + [4] * 3 + [0] * 5 + [1] * 8 + [-1] * 14)


@pytest.fixture
def data(images: Counted) -> DiscoveryData:
    found = Discovery(60, 13, 14, (30, 3), Count(2, 2, 3, 4.0, (30.0, 9.0, 3.0, 2.0, 1.0, 0.0)))
    return discovery_data(found, ASSIGNED, outputs_of(ASSIGNED, 5), FEATURES, images, NAMES)


def numbers(group: Group) -> tuple[list[int], list[int]]:
    """The positions of the typical and of the doubtful images, as their pixels and their names say them."""
    shown = (group.typical, group.doubtful)
    assert all(image.name == f"photos/{image.pixels[0, 0, 0]:02}.jpg" for part in shown for image in part)
    typical, doubtful = ([int(image.pixels[0, 0, 0]) for image in part] for part in shown)
    return typical, doubtful


def test_each_new_class_has_its_typical_and_its_doubtful_images(data: DiscoveryData) -> None:
    large, little = data.new
    assert (large.name, large.size, little.name, little.size) == ("new-1", 30, "new-2", 3)
    assert numbers(large) == ([0, 1, 2, 3, 4, 5, 6, 7], [29, 28, 27, 26])
    assert numbers(little) == ([30, 31, 32], [])
    assert large.nearest[0] == "bee"
    assert set(large.nearest) <= {"ant", "bee", "cat"}
    assert large.near_new is None, "it is more like a bee"


def test_how_well_a_class_holds_together_is_the_mean_probability_of_its_images(data: DiscoveryData) -> None:
    scores = outputs_of(ASSIGNED, 5).scores.astype(np.float64)
    own = [np.exp(row[3]) / np.exp(row).sum() for row in scores[ASSIGNED == 3]]
    assert data.new[0].probability == pytest.approx(sum(own) / len(own))
    assert data.new[1].probability is None, "of three images nothing can be said"
    assert replace(data.new[0], probability=0.934).holds == "93 % sure on average"
    assert replace(data.new[0], probability=0.5).holds == "50 % sure on average; perhaps several classes"
    assert f"30 images, {data.new[0].holds}" in Page(render(data)).text


def test_a_new_class_that_is_like_another_new_one_says_so(images: Counted) -> None:
    scores = outputs_of(ASSIGNED, 5).scores
    scores[ASSIGNED == 4, 3] += 5
    data = discovery_data(Discovery(60, 13, 14, (30, 3)), ASSIGNED, Outputs(scores, ()), FEATURES, images, NAMES)
    assert [group.near_new for group in data.new] == [None, "new-1"]
    assert "3 images; most similar to new-1; most similar known classes: bee, " in Page(render(data)).text


def test_known_classes_come_by_their_least_sure_image_and_those_without_images_not_at_all(data: DiscoveryData) -> None:
    probabilities = outputs_of(ASSIGNED, 5).probabilities
    ant, bee = (probabilities[assigned, c].min() for c, assigned in ((0, ASSIGNED == 0), (1, ASSIGNED == 1)))
    assert bee < ant
    assert [(group.name, group.size) for group in data.known] == [("bee", 8), ("ant", 5)]
    assert data.known_classes == 2
    assert numbers(data.known[0]) == ([38, 39, 40, 41], [45, 44, 43, 42])
    assert len(data.unsure) == 12
    assert data.unsure_images == 14


def test_known_classes_that_are_not_shown_are_named_with_their_sizes(images: Counted) -> None:
    assigned = np.repeat([14, *range(14)], [4, 2, 1, *[4] * 11, 9])
    names = (*"abcdefghijklmn", "new-1")
    found = Discovery(60, 56, 0, (4,))
    scores = np.zeros((60, 15), dtype=np.float32)
    scores[np.arange(60), assigned] = 5 - assigned / 10  # the later, the less sure
    data = discovery_data(found, assigned, Outputs(scores, ()), FEATURES, images, names)
    assert [group.name for group in data.known] == list("nmlkjihgfedc")
    assert data.known_others == [("b", 1), ("a", 2)]
    text = Page(render(data)).text
    assert "The 12 of 14 classes with the least sure images are shown." in text
    assert "Not shown: b (1 image), a (2 images)." in text


def test_only_what_is_shown_is_read(data: DiscoveryData, images: Counted) -> None:
    groups = [data.unsure, *(part for group in (*data.new, *data.known) for part in (group.typical, group.doubtful))]
    assert sorted(images.read) == sorted(int(image.pixels[0, 0, 0]) for part in groups for image in part)
    assert len(images.read) == 12 + 3 + 8 + 5 + 12


def test_the_map_tells_known_new_and_unsure_apart(data: DiscoveryData) -> None:
    assert data.points.shape == (60, 2)
    assert np.bincount(data.point_groups + 2).tolist() == [14, 13, 30, 3]


def test_a_class_that_got_no_image_and_a_rejected_one(images: Counted) -> None:
    outputs = outputs_of(ASSIGNED, 5)
    outputs.scores[:, 1] = -np.inf
    given = np.where(ASSIGNED == 4, 3, ASSIGNED)
    found = Discovery(60, 13, 14, (33, 0))
    data = discovery_data(found, given, outputs, FEATURES, images, NAMES)
    assert "bee" not in data.new[0].nearest
    assert (data.new[1].size, data.new[1].typical, data.new[1].nearest) == (0, [], [])
    assert "No image belongs to this class" in Page(render(data)).text


def test_many_classes_show_fewer_images_each(images: Counted) -> None:
    names = (*NAMES[:3], *(f"new-{n}" for n in range(1, 31)))
    assigned = np.repeat(np.arange(3, 33), 2)
    data = discovery_data(Discovery(60, 0, 0, (2,) * 30), assigned, outputs_of(assigned, 33), FEATURES, images, names)
    assert sum(len(group.typical) + len(group.doubtful) for group in data.new) <= 30 * 5
    assert all(group.typical for group in data.new)


def test_the_page(data: DiscoveryData) -> None:
    text = render(data)
    page = Page(text)
    assert page.sections == {"new", "next", "unsure", "known", "number", "map", "details"}
    title = "2 new classes in 33 of 60 images; 13 look like known classes, 14 are unsure."
    assert page.texts.count(title) == 2  # the heading, and what the browser calls the page
    assert f"30 images, {data.new[0].holds}; most similar known classes: bee, " in page.text
    assert "hoarfrost merge MODEL CLASS CLASS2" in page.text
    assert "old/new decisions" not in page.text
    assert (
        "Expect about 4 in 100 of these old/new decisions to be wrong" in Page(render(replace(data, error=0.041))).text
    )
    assert "photos/29.jpg" in page.text
    bees = [tag["alt"] for tag in page.images() if tag["alt"] in [f"photos/{row}.jpg" for row in range(38, 46)]]
    assert bees == [f"photos/{row}.jpg" for row in range(38, 46)], "the surest first, the least sure last"
    assert "Estimated: 2 (2 to 3)." in page.text
    assert "the 12 least sure. hoarfrost sort copies all of them into a folder unsure." in page.text
    assert "<script" not in text
    assert "http:" not in text


def test_a_range_without_a_curve_is_said(data: DiscoveryData) -> None:
    text = render(replace(data, count=Count(2, 1, 4)))
    assert "Estimated: <b>2 (1 to 4)</b>" in text
    assert "Hartigan" not in text
    assert 'id="number"' not in render(replace(data, count=None))


def test_every_image_is_large_on_a_click(data: DiscoveryData) -> None:
    page = Page(render(data))
    ids = [tag["id"] for _, tag in page.tags if "id" in tag]
    assert len(ids) == len(set(ids))
    targets = [tag["href"] for name, tag in page.tags if name == "a"]
    assert {(target or "").removeprefix("#") for target in targets} <= set(ids)
    photographs = [tag for tag in page.images() if (tag["src"] or "").startswith("data:image/jpeg;base64,")]
    assert len(photographs) == 40
    assert len(targets) == 2 * len(photographs)
    for tag in photographs:
        with Image.open(io.BytesIO(base64.b64decode((tag["src"] or "").partition(",")[2]))) as picture:
            assert 96 <= max(picture.size) <= 400


def test_nothing_new_is_said(images: Counted) -> None:
    assigned = np.where(ASSIGNED > 2, 2, ASSIGNED)
    count = Count(0, 0, 0, 4.0, ())
    data = discovery_data(
        Discovery(60, 46, 14, (), count), assigned, outputs_of(assigned, 3), FEATURES, images, NAMES[:3]
    )
    page = Page(render(data))
    assert page.text.count("Nothing new in 60 images") == 2
    assert page.sections == {"unsure", "known", "map", "details"}


def evil(data: DiscoveryData) -> DiscoveryData:
    """As the data, with names that are long, markup, or not all text."""
    name = EVIL + "x" * 200
    new = [replace(group, name=name + group.name, nearest=[name]) for group in data.new]
    unsure = [replace(data.unsure[0], name="caf\udce9.png"), *(replace(image, name=name) for image in data.unsure)]
    return replace(data, new=new, unsure=unsure, facts=((EVIL, EVIL),))


def test_names_cannot_become_markup(data: DiscoveryData) -> None:
    text = render(evil(data))
    assert "<script" not in text
    assert "caf?.png" in Page(text).texts
    text.encode()
    assert f"{EVIL}{'x' * 200}new-1" in Page(text).texts
    figures = [base64.b64decode(found) for found in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text)]
    assert len(figures) == 2
    assert not any(b"<script" in figure for figure in figures)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(data: DiscoveryData, tmp_path: Path, width: int) -> None:
    """In a frame of that width, since a window cannot be as narrow as a telephone everywhere."""
    frame = (
        f'<iframe width="{width}" height="800" style="border:0" srcdoc="{html.escape(render(evil(data)))}"></iframe>'
    )
    measure = "onload = () => document.title = document.querySelector('iframe').contentDocument.body.scrollWidth"
    page = tmp_path / "frame.html"
    page.write_text(f"<!doctype html><title>0</title>{frame}<script>{measure}</script>", encoding="utf-8")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"<title>(\d+)</title>", dom)
    assert found is not None
    assert 0 < int(found[1]) <= width
