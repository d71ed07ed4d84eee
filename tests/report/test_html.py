"""The report is one whole, safe page that shows what there is and leaves out what there is not."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hoarfrost.report.data import ReportData
from hoarfrost.report.html import render, summarise

VOID_TAGS = {"meta", "img", "br", "hr", "link", "input"}
SECTIONS = {"scores", "curves", "confusion", "norms", "samples"}


class Page(HTMLParser):
    """What a browser would find in the page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if "tbody" in self.open and self.open[-1] == "td":
            self.cells.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    @property
    def sections(self) -> set[str | None]:
        return {attributes.get("id") for tag, attributes in self.tags if tag == "section"}

    def images(self) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == "img"]


def step(index: int, known: int, novel: int, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "known": known,
        "novel": novel,
        "joint": {"old": 93.64, "new": 61.2, "all": 76.06, "hm": 74.02},
        "new_by_step_joint": [60.0] * index,
        "new_by_step_novel": [70.5] * index,
        "original_rt": {"old": 95.1, "new": 71.3, "all": 80.9},
        **changes,
    }


METRICS: dict[str, Any] = {"stage_one": 98.25, "steps": [step(1, 3, 2), step(2, 5, 2)]}
TERMS = {"pairwise": 0.5, "replay": 0.1}
LOG: list[dict[str, Any]] = [
    {"stage": 0, "epoch": 0, "loss": 1.5, "terms": {"cross_entropy": 1.5}, "learning_rate": 0.1, "seconds": 1.0},
    {"stage": 1, "epoch": 0, "loss": 0.6, "terms": TERMS, "accuracy": {"old": 90.0, "new": 40.0, "all": 65.0}},
    {"stage": 2, "epoch": 0, "loss": 0.6, "terms": TERMS, "accuracy": {"old": 88.0, "new": 45.0, "all": None}},
]


def random_images(channels: int, count: int = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(channels).integers(0, 256, (count, 8, 8, channels), dtype=np.uint8)


@pytest.fixture(scope="module")
def data() -> ReportData:
    return ReportData(
        title="FRoST on the digits",
        facts=(("method", "frost"), ("seed", "0")),
        metrics=METRICS,
        log=LOG,
        class_names=["zero", "one", "two", "three", "four", "five", "six"],
        known=3,
        novel_per_step=[2, 2],
        weight_norms=np.linspace(0.5, 1.5, 7),
        confusion=np.eye(7, dtype=np.int64) * 9 + 1,
        samples={"three": random_images(1), "five": random_images(3)},
    )


@pytest.fixture(scope="module")
def text(data: ReportData) -> str:
    """The page of the whole report, made once."""
    return render(data)


@pytest.fixture(scope="module")
def bare(data: ReportData) -> ReportData:
    """As `data`, without the figures that take time."""
    return replace(data, log=[], confusion=None, samples={})


def test_a_whole_report_has_every_section_and_all_tags_match(text: str) -> None:
    page = Page(text)
    assert page.sections == SECTIONS
    assert "FRoST on the digits" in page.text
    assert (
        "learned 3 classes from labelled images. It then discovered 4 more in unlabelled images in 2 steps" in page.text
    )
    assert "method" in page.texts
    assert "frost" in page.texts


def test_the_page_needs_nothing_else(text: str) -> None:
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed"} == set()
    addresses = [value for _, tag in page.tags for name, value in tag.items() if name in {"src", "href", "srcset"}]
    assert addresses
    assert all(address is not None and address.startswith("data:image/") for address in addresses)
    assert "http://" not in text
    assert "https://" not in text
    assert re.search(r"url\(|@import", text) is None


def test_every_image_says_what_it_shows_and_can_be_read(text: str) -> None:
    images = Page(text).images()
    assert len(images) == 6
    for image in images:
        assert image["alt"]
        media_type, _, content = (image["src"] or "").partition(";base64,")
        decoded = base64.b64decode(content, validate=True)
        if media_type == "data:image/png":
            Image.open(io.BytesIO(decoded)).verify()
        else:
            assert media_type == "data:image/svg+xml"
            assert b"</svg>" in decoded


def test_samples_are_shown_in_the_order_of_the_classes(bare: ReportData) -> None:
    samples = {"five": random_images(3), "three": random_images(1), "four": random_images(1, count=0)}
    page = Page(render(replace(bare, samples=samples)))
    shown = [image["alt"] for image in page.images() if (image["src"] or "").startswith("data:image/png")]
    assert shown == ["3 images assigned to the class three.", "3 images assigned to the class five."]
    assert page.texts.index("three") < page.texts.index("five")


def test_scores_have_one_decimal_and_a_row_a_step(text: str) -> None:
    page = Page(text)
    joint = ["93.6", "61.2", "76.1", "74.0"]
    original = ["95.1", "71.3", "80.9"]
    assert page.cells == [*joint, "60.0", "70.5", *original, *joint, "60.0 · 60.0", "70.5 · 70.5", *original]
    assert "right on 98.2% of the test images" in page.text


def test_missing_scores_are_dashes(bare: ReportData) -> None:
    nothing = dict.fromkeys(("old", "new", "all", "hm"))
    empty = step(1, 3, 2, joint=nothing, original_rt=nothing, new_by_step_joint=[None], new_by_step_novel=[])
    page = Page(render(replace(bare, metrics={"stage_one": None, "steps": [empty]})))
    assert page.cells == ["–"] * 9
    assert "Before any discovery" not in page.text
    assert "None" not in page.text


@pytest.mark.parametrize(
    ("changes", "sections"),
    [
        ({}, {"scores", "norms"}),
        ({"log": [{**LOG[0], "loss": None}]}, {"scores", "norms", "curves"}),
        ({"confusion": np.eye(7, dtype=np.int64)}, {"scores", "norms", "confusion"}),
        ({"samples": {"six": random_images(1)}}, {"scores", "norms", "samples"}),
    ],
)
def test_a_section_without_data_is_absent(bare: ReportData, changes: dict[str, Any], sections: set[str]) -> None:
    page = Page(render(replace(bare, **changes)))
    assert page.sections == sections


def test_the_accuracy_figure_is_absent_without_accuracies(bare: ReportData) -> None:
    page = Page(render(replace(bare, log=LOG[:1])))
    assert "Loss" in page.texts
    assert "Accuracy" not in page.texts


def test_names_cannot_become_markup(bare: ReportData) -> None:
    evil = '"><script>alert(1)</script>'
    names = [*bare.class_names[:3], evil, *bare.class_names[4:]]
    changed = replace(bare, title=evil, facts=((evil, evil),), class_names=names, samples={evil: random_images(1)})
    text = render(changed)
    page = Page(text)
    assert "<script" not in text
    assert page.texts.count(evil) == 5  # The title twice, the fact twice, the class once.
    figures = [base64.b64decode((image["src"] or "").partition(",")[2]) for image in page.images()]
    assert not any(b"<script" in figure for figure in figures)


def test_mistakes_over_the_border_are_counted(bare: ReportData) -> None:
    matrix = np.zeros((7, 7), dtype=np.int64)
    matrix[0, 0], matrix[0, 6], matrix[6, 0], matrix[6, 6] = 3, 1, 1, 1
    page = Page(render(replace(bare, confusion=matrix)))
    assert "25.0% of the images of old classes are predicted as new classes" in page.text
    assert "50.0% of the images of new classes are predicted as old classes" in page.text


def test_a_confusion_matrix_without_images_is_drawn(bare: ReportData) -> None:
    page = Page(render(replace(bare, confusion=np.zeros((7, 7), dtype=np.int64))))
    assert "confusion" in page.sections
    assert "predicted as new classes" not in page.text


def test_a_report_before_any_discovery(bare: ReportData) -> None:
    changed = replace(
        bare,
        metrics={"stage_one": 98.25, "steps": []},
        novel_per_step=[],
        class_names=["zero", "one", "two"],
        weight_norms=np.ones(3),
    )
    assert summarise(changed) == "A classifier learned 3 classes from labelled images."
    page = Page(render(changed))
    assert page.cells == []
    assert "right on 98.2% of the test images" in page.text


def test_the_same_data_gives_the_same_page(data: ReportData, text: str) -> None:
    assert render(data) == text


def test_two_hundred_classes(bare: ReportData) -> None:
    names = [f"n{index:08d}" for index in range(200)]
    changed = replace(
        bare,
        class_names=names,
        known=180,
        novel_per_step=[10, 10],
        weight_norms=np.ones(200),
        confusion=np.eye(200, dtype=np.int64),
        samples={name: random_images(3) for name in names[180:]},
    )
    page = Page(render(changed))
    assert page.sections == SECTIONS - {"curves"}
    assert len(page.images()) == 2 + 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"known": 4}, "4 known and 4 discovered classes do not make 7"),
        ({"weight_norms": np.ones(6)}, "weight_norms"),
        ({"confusion": np.eye(3, dtype=np.int64)}, "confusion"),
        ({"samples": {"zero": random_images(1)}}, "'zero', which is not a discovered class"),
    ],
)
def test_parts_that_do_not_fit_are_refused(data: ReportData, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(data, **changes)


def test_the_data_can_be_imported_without_the_heavy_libraries() -> None:
    heavy = "{'matplotlib', 'jinja2', 'torch'}"
    code = f"import sys, hoarfrost.report.data; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
