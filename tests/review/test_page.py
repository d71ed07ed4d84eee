"""The page in a real browser: deciding by mouse and by keys alone, at two widths, light and dark, in two tabs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest

from hoarfrost.cli import main
from hoarfrost.models.description import read_classes
from hoarfrost.review.server import Server
from hoarfrost.review.session import Session

from .client import Client
from .conftest import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")

EVIL = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Tab:
    """A page that notes what it complained of and whom it asked."""

    def __init__(
        self,
        browser: Browser,
        server: Server,
        *,
        width: int = 1280,
        scheme: Literal["light", "dark"] = "light",
        **more: Any,
    ) -> None:
        self.server, self.complaints, self.asked = server, list[str](), list[str]()
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **more)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(server.address)

    def title(self, name: str) -> None:
        """Waits until a class of that name is shown."""
        self.page.locator("#title", has_text=name).wait_for()

    def said(self, words: str, seconds: float = 10) -> None:
        self.page.locator("#said", has_text=words).wait_for(timeout=1000 * seconds)

    def images(self) -> list[str]:
        """Those that are in the document, when all have come."""
        self.page.locator(".cell").first.wait_for()
        wait_for(
            lambda: bool(self.page.evaluate("[...document.querySelectorAll('.cell img')].every((one) => one.complete)"))
        )
        return list(self.page.evaluate("[...document.querySelectorAll('.cell img')].map((one) => one.alt)"))

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.id"))

    def name(self, text: str) -> None:
        self.page.fill("#name", text)
        self.page.press("#name", "Enter")

    def close(self) -> None:
        """All is well in the end."""
        self.context.close()
        assert self.complaints == []
        assert all(url.startswith(self.server.address) for url in self.asked), "no other host"


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Tab]:
    made = Tab(browser, server)
    yield made
    made.close()


def first_new(session: Session) -> int:
    """The largest new class, which the page shows first."""
    return int(session.state()["queue"][0])


def test_name_merge_reject_and_undo_by_mouse(tab: Tab, session: Session, server: Server) -> None:
    first = first_new(session)
    second = next(k for k in (3, 4) if k != first)
    names = session.table.own_names
    tab.title(names[first])
    assert tab.images()
    assert tab.page.text_content("#decided") == "0 of 2 decided"
    tab.page.fill("#name", "rose")
    tab.page.click("#give")
    tab.said(f"{names[first]} is now called rose.")
    tab.title(names[second])  # the next one that waits
    assert tab.page.text_content("#decided") == "1 of 2 decided"

    tab.name("rose")
    tab.page.locator("#offer", has_text=f"There already is a class rose. Merge {names[second]} into it?").wait_for()
    assert session.table.stands_for[second] == second, "nothing is merged before it is said"
    tab.page.click("#decline")
    assert tab.page.locator("#offer").is_hidden()
    tab.name("rose")
    tab.page.click("#merge")
    tab.said(f"{names[second]} is now part of rose.")
    assert session.table.stands_for[second] == first
    assert tab.page.text_content("#decided") == "2 of 2 decided"
    tab.page.locator(".gone", has_text=f"{names[second]}: now part of rose").wait_for()

    tab.page.click("#undo")
    tab.said(f"Undone: {names[second]} is now part of rose.")
    tab.page.click("#redo")
    tab.said("Done again")
    tab.page.click("#undo")
    tab.said("Undone")
    tab.page.click(f'#groups [data-group="{second}"]')
    tab.title(names[second])
    tab.page.click("#reject")
    tab.said(f"{names[second]} is rejected.")
    tab.page.locator(".gone", has_text=f"{names[second]}: rejected").wait_for()
    table = read_classes(server_model(session))
    assert table.own_names[first] == "rose"
    assert table.stands_for[second] == -1
    tab.page.reload()
    tab.title("rose")
    assert tab.page.text_content("#decided") == "2 of 2 decided"


def server_model(session: Session) -> Any:
    return session.model


def test_keyboard_alone(tab: Tab, session: Session) -> None:
    press, names, first = tab.page.keyboard.press, session.table.own_names, first_new(session)
    tab.title(names[first])
    shown = tab.images()
    press("?")
    assert tab.page.locator("#keys").is_visible()
    press("Escape")
    assert tab.page.locator("#keys").is_hidden()

    chosen = tab.page.locator('.cell[aria-selected="true"] img')
    assert chosen.get_attribute("alt") == shown[0]
    press("ArrowRight")
    assert chosen.get_attribute("alt") == shown[1]
    press(" ")
    assert tab.page.locator("#original").get_attribute("alt") == shown[1]
    press("ArrowRight")
    press("ArrowLeft")
    press("ArrowLeft")
    assert tab.page.locator("#original").get_attribute("alt") == shown[0]
    wait_for(lambda: bool(tab.page.evaluate("document.querySelector('#original').naturalWidth > 0")))
    press("Escape")
    assert tab.page.locator("#viewer").is_hidden()
    press("End")
    press("ArrowUp")
    press("Home")
    assert chosen.get_attribute("alt") == shown[0]
    size = tab.page.input_value("#size")
    press("+")
    assert int(tab.page.input_value("#size")) > int(size)
    press("-")

    press("n")
    assert tab.focused() == "name"
    tab.page.keyboard.type("jkxu?")  # keys are letters in the field
    press("Enter")
    tab.said("is now called jkxu?.")
    assert tab.focused() == "canvas"
    other = names[next(k for k in (3, 4) if k != first)]
    tab.title(other)
    press("m")
    assert tab.page.locator("#names li").count() == 4, "all other classes"
    tab.page.keyboard.type("jk")
    press("ArrowDown")
    press("Enter")
    assert tab.focused() == "merge"
    press("Escape")
    assert tab.focused() == "name"
    press("Enter")
    press("Enter")
    tab.said(f"{other} is now part of jkxu?.")
    press("Control+z")
    tab.said("Undone")
    press("Control+Shift+z")
    tab.said("Done again")
    press("u")
    tab.said("Undone")
    press("k")
    press("k")
    press("j")
    tab.title(other)
    press("x")
    tab.said(f"{other} is rejected.")
    for _ in range(4):  # quicker than the server answers
        press("u")
    tab.said("There is nothing to undo.")
    assert session.table.edits == ()
    press("r")
    press("r")
    tab.said(f"Done again: {other} is rejected.")
    for _ in range(8):
        press("j")
    press("x")
    tab.said("Only new classes can be rejected.")


def test_what_is_refused_is_said(tab: Tab) -> None:
    tab.images()
    tab.name("unsure")
    tab.said("'unsure' is reserved")
    tab.complaints.clear()  # the browser notes an answer of 422
    assert tab.page.input_value("#name") == "unsure"


def test_two_tabs_and_a_command(browser: Browser, tab: Tab, session: Session, server: Server) -> None:
    other, first = Tab(browser, server), first_new(session)
    name = session.table.own_names[first]
    tab.images()
    other.images()
    tab.page.route("**/state?*", lambda route: route.abort() if False else None)  # it hears of nothing
    other.name("rose")
    other.said("is now called rose")
    tab.name("tulip")
    tab.said("The classes were changed elsewhere.")
    tab.complaints.clear()  # the browser notes an answer of 409
    assert session.table.own_names[first] == "rose"
    tab.page.unroute("**/state?*")
    assert main(["name", str(session.model), "rose=red"]) == 0
    other.page.locator(".called", has_text="red").wait_for()
    assert name != "red"
    other.close()


def test_names_of_classes_and_files_are_text(tab: Tab, session: Session) -> None:
    first = first_new(session)
    tab.images()
    tab.name(EVIL)
    tab.said("is now called")
    tab.page.click(f'#groups [data-group="{first}"]')
    tab.title(EVIL)
    for group in (*session.state()["queue"], "unsure"):
        tab.page.evaluate(f"location.hash = '{group}'")
        tab.page.wait_for_timeout(100)
        tab.page.keyboard.press(" ")
        tab.page.keyboard.press("Escape")
    assert tab.page.title() == "model2 – hoarfrost review"
    assert tab.page.locator("script").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(
    browser: Browser, server: Server, session: Session, width: int, scheme: Literal["light", "dark"]
) -> None:
    Client(server).decide("rename", class_=first_new(session), name="wide" * 40)
    made = Tab(browser, server, width=width, scheme=scheme)
    made.images()
    page = made.page
    wide = "Math.max(document.documentElement.scrollWidth, document.querySelector('#scroll').scrollWidth)"
    assert page.evaluate(wide) <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(","))) < 200) == (scheme == "dark")
    if width == 390:
        assert page.locator("#queue").is_hidden()
        page.click("#open-queue")
        assert page.locator("#queue").is_visible()
        page.locator("#groups button").nth(1).click()
        assert page.locator("#queue").is_hidden()
    page.fill("#name", "0")
    page.press("#name", "Enter")
    page.locator("#offer").wait_for()
    assert page.evaluate(wide) <= width
    page.keyboard.press("Escape")
    page.click("#help")
    assert page.evaluate(wide) <= width
    box = page.locator("#keys").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    made.close()


def test_without_javascript_it_says_what_to_do(browser: Browser, server: Server) -> None:
    made = Tab(browser, server, java_script_enabled=False)
    assert made.page.locator("h1", has_text="This page needs JavaScript").is_visible()
    assert made.page.locator("#app").is_hidden()
    made.close()


def test_when_the_server_ends_the_page_says_so(browser: Browser, session: Session) -> None:
    with Server() as server:
        server.serve(session)
        made = Tab(browser, server)
        made.images()
    made.said("The review has ended")
    assert made.page.locator("#give").is_disabled()
    made.complaints.clear()  # the browser notes that nobody answers
    made.close()


def selected(tab: Tab) -> list[str]:
    return list(
        tab.page.evaluate("[...document.querySelectorAll('.cell[aria-selected=true] img')].map((one) => one.alt)")
    )


def test_images_are_dragged_to_another_class(tab: Tab, session: Session) -> None:
    first = first_new(session)
    names, second = session.table.own_names, 7 - first
    tab.title(names[first])
    shown = tab.images()
    tab.page.locator(".cell").first.click()
    tab.page.locator(".cell").nth(1).click(modifiers=["Shift"])
    assert selected(tab) == shown[:2]
    tab.page.locator(".cell").nth(1).drag_to(tab.page.locator(f'#groups [data-group="{second}"]'))
    tab.said(f"2 images are now {names[second]}.", 60)  # the model is loaded first
    tab.said("changed class", 60)
    assert read_classes(session.model).edits[-1].id == second
    tab.page.click(f'#groups [data-group="{second}"]')
    tab.title(names[second])
    assert set(shown[:2]) <= set(tab.images())
    tab.page.click("#undo")
    tab.said("Undone: 2 images are moved to")
    assert read_classes(session.model).edits == ()


def test_images_are_moved_by_keys_to_a_class_that_is_new(tab: Tab, session: Session) -> None:
    tab.title(session.table.own_names[first_new(session)])
    shown = tab.images()
    tab.page.focus("#canvas")
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "v"):
        tab.page.keyboard.press(key)
    assert selected(tab) == shown[:3]
    assert tab.focused() == "name"
    assert tab.page.text_content("#give") == "Move"
    tab.page.keyboard.type("seven")
    tab.page.keyboard.press("Enter")
    tab.said("3 images are now seven.", 60)
    tab.page.locator("#groups .called", has_text="seven").wait_for()
    tab.said("changed class", 60)
    assert read_classes(session.model).own_names[-1] == "seven"
    tab.page.keyboard.press("u")
    tab.said("Undone: 3 images are now the class seven")
    assert len(read_classes(session.model)) == 5


def test_a_class_is_split_after_its_groups_were_seen(tab: Tab, session: Session) -> None:
    first = first_new(session)
    name = session.table.own_names[first]
    tab.title(name)
    tab.images()
    tab.page.focus("#canvas")
    tab.page.keyboard.press("s")
    tab.page.locator("#parts").wait_for(timeout=60_000)
    groups = tab.page.locator("#halves figure")
    assert groups.count() == 2
    goes = groups.nth(1).locator("button").count()
    groups.nth(0).locator("button").first.click()
    assert groups.nth(1).locator("button").count() == goes + 1, "an image went across"
    tab.page.click("#part")
    tab.said(f"{name} is split.")
    tab.title("new-3")
    assert len(tab.images()) >= goes + 1
    edit = read_classes(session.model).edits[-1]
    assert (edit.verb, edit.into, len(edit.images or ())) == ("split", first, goes + 1)
    tab.page.click("#undo")
    tab.said("Undone")
    tab.page.keyboard.press("Escape")
    assert read_classes(session.model).edits == ()
