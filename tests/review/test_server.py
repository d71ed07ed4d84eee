"""Strangers get nothing: attempts at the server of the page, over a real socket."""

from __future__ import annotations

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import pytest

from hoarfrost.cli import main
from hoarfrost.errors import InputError
from hoarfrost.models.description import read_classes
from hoarfrost.review import server as served
from hoarfrost.review.server import MOST_BODY, Server
from hoarfrost.review.session import Session

from .client import Answer, Client
from .conftest import wait_for


def nothing(answer: Answer, *statuses: int) -> None:
    assert answer.status in (statuses or (404,))
    assert answer.body == b""


def test_the_page_and_its_parts(client: Client) -> None:
    for name, kind in (("", "text/html"), ("review.js", "text/javascript"), ("review.css", "text/css")):
        answer = client.get(name)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_the_page_has_nothing_inline_and_asks_nobody_else() -> None:
    page = files("hoarfrost.review").joinpath("page")
    text = page.joinpath("index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
    for name in ("index.html", "review.css", "review.js"):
        assert not re.search(r"https?://|//\w+\.\w+/|@import", page.joinpath(name).read_text(encoding="utf-8"))
    assert "innerHTML" not in page.joinpath("review.js").read_text(encoding="utf-8")
    assert "hoarfrost name MODEL" in text.partition("</noscript>")[0]


def test_a_wrong_token_gets_nothing(client: Client) -> None:
    token = client.server.token
    others = ("", "x", token[:-1], token + "x", token.swapcase(), "%00", "a" * 5000, token[:-1] + "%C3%A9")
    for other in others:
        for path in ("", "state", "review.js", "images/unsure", "thumbnail/0", "original/0"):
            nothing(client.raw("GET", f"/{other}/{path}"))
        nothing(client.raw("POST", f"/{other}/decide", b"{}", Origin=client.own), 404)
    for path in ("/", "/favicon.ico", "/state", f"/{token}", "/open/x", "/open/", f"/open/{token}"):
        nothing(client.raw("GET", path))


def test_a_ticket_opens_the_page_once(client: Client) -> None:
    (ticket,) = client.server.tickets
    nothing(client.raw("GET", f"/open/{ticket}", Host="evil.example"), 403)
    answer = client.raw("GET", f"/open/{ticket}")
    assert answer.status == 303
    assert client.own + answer.headers["location"] == client.server.address
    nothing(client.raw("GET", f"/open/{ticket}"))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", "[::1]:{}", ""]
)
def test_a_forged_host_gets_nothing(client: Client, host: str) -> None:
    """As by DNS rebinding: the page of another name that now leads to this machine."""
    forged = host.format(client.server.port)
    for path in ("", "state", "thumbnail/0"):
        nothing(client.get(path, Host=forged), 403)
    nothing(client.post({}, Host=forged, Origin=f"http://{forged}"), 403)


def test_two_hosts_get_nothing(client: Client) -> None:
    path, own = f"/{client.server.token}/state", f"Host: 127.0.0.1:{client.server.port}\r\n"
    for hosts in (own + "Host: evil.example\r\n", "Host: evil.example\r\n" + own, ""):
        answer = client.bytes(f"GET {path} HTTP/1.1\r\n{hosts}\r\n".encode())
        assert answer.split()[1] in (b"400", b"403")
        assert b"version" not in answer


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{}", "http://127.0.0.1:1", "", "file://"]
)
def test_pages_of_another_origin_get_nothing(client: Client, origin: str) -> None:
    forged = origin.format(client.server.port)
    before = client.state["version"]
    nothing(client.get("state", Origin=forged), 403)
    nothing(client.post({"version": before, "decision": {"verb": "undo"}}, Origin=forged), 403)


def test_a_decision_needs_an_origin(client: Client) -> None:
    body = json.dumps({"version": client.state["version"], "decision": {"verb": "reject", "class": 3}}).encode()
    nothing(client.raw("POST", f"/{client.server.token}/decide", body), 403)
    assert client.state["undo"] is None


def test_what_another_page_embeds_gets_nothing(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        nothing(client.get("thumbnail/0", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors"), 403)
    assert client.get("", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert client.get("thumbnail/0", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="no-cors").status == 200


ESCAPES = (
    *("../model2/model.json", "..%2fmodel.json", "%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "file:///etc/passwd"),
    *(
        "original/../../model2/model.json",
        "original/%2e%2e%2fmodel.json",
        "original/-1",
        "original/16",
        "original/99999",
    ),
    *("original/0.5", "original/1e1", "original/0x1", "original/+1", "original/%30%00", "original/%D9%A3", "original/"),
    *("thumbnail/" + "9" * 6000, "thumbnail/unsure", "original/0/../1", "images/-1", "images/99", "images/3;4"),
    *("index.html", "server.py", "page/index.html", "review.js/", "review.js%00", "icon.svg/..", "..", "%2e%2e"),
)


@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_leads_to_no_file(client: Client, path: str) -> None:
    nothing(client.get(path))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"])
def test_other_methods_get_nothing(client: Client, method: str) -> None:
    nothing(client.raw(method, f"/{client.server.token}/state", Origin=client.own))
    nothing(client.raw("GET", f"/{client.server.token}/decide"))


def test_what_was_no_image_then_is_not_served(fresh: Path, session: Session, client: Client) -> None:
    """A file that changed, became a link or is gone since the model looked at it."""
    assert session.pictures is not None
    index = session.pictures.paths.index("4-0.png")
    path = fresh / "unsorted" / "4-0.png"
    path.rename(fresh / "aside.png")
    try:
        nothing(client.get(f"original/{index}"))
        path.symlink_to("/etc/passwd")
        nothing(client.get(f"original/{index}"))
        path.unlink()
        os.mkfifo(path)
        nothing(client.get(f"original/{index}"))
        path.unlink()
        shutil.copy(fresh / "unsorted" / "4-1.png", path)
        nothing(client.get(f"original/{index}"))
        assert client.get(f"original/{session.pictures.paths.index('4-1.png')}").status == 200
    finally:
        path.unlink()
        (fresh / "aside.png").rename(path)


BAD = (
    *(b"", b"[]", b"{", b"null", b"\xff", b"[" * 50_000, b'{"version": 1, "decision": {}}'),
    *(b'{"version": "x", "decision": {"verb": "burn"}}', b'{"version": "x", "decision": {"verb": 1}}'),
    b'{"version": "x", "decision": {"verb": "reject", "class": 1e400}}',
    b'{"version": "x", "decision": {"verb": "rename", "class": 3, "name": "\\ud800"}}',
)


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_what_is_no_decision_is_refused(client: Client, body: bytes) -> None:
    nothing(client.post(body), 400)


def test_a_name_of_a_million_characters(fresh: Path, client: Client) -> None:
    before = (fresh / "model2" / "model.json").read_bytes()
    version = client.state["version"]
    decision = {"verb": "rename", "class": 3, "name": "x" * 1_000_000}
    nothing(client.post({"version": version, "decision": decision}), 413)
    body = json.dumps({"version": version, "decision": decision}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:50_000], body[50_000:])) + b"0\r\n\r\n"
    path = f"/{client.server.token}/decide"
    nothing(client.raw("POST", path, chunks, Origin=client.own, Transfer_Encoding="chunked"), 413)
    answer = client.decide("rename", class_=3, name="x" * (MOST_BODY - 200))
    assert answer.status == 422
    assert answer.told == {"refused": "the name is too long: use at most 200 characters"}
    assert (fresh / "model2" / "model.json").read_bytes() == before
    answered = client.bytes(b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n\r\n")
    assert not answered or answered.split()[1] == b"400"
    assert client.state["version"] == version


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202e", "a\nb", "__proto__"]
)
def test_names_are_data(client: Client, name: str) -> None:
    assert client.decide("rename", class_=3, name=name).status == 200
    answer = client.get("state")
    assert answer.headers["content-type"] == "application/json"
    assert answer.told["classes"][3]["name"] == name


def test_decisions_from_the_page_are_those_of_the_commands(fresh: Path, client: Client) -> None:
    model = fresh / "model2"
    assert client.decide("rename", class_=3, name="rose").told["classes"][3]["name"] == "rose"
    assert client.decide("merge", class_=4, into=3).told["classes"][4]["stands_for"] == 3
    assert main(["undo", str(model)]) == 0
    state = client.state
    assert state["classes"][4]["stands_for"] == 4, "the page sees what a command decided"
    assert (state["undo"], state["redo"]) == ("new-1 is now called rose", "new-2 is now part of rose")
    assert client.decide("redo").status == 200
    assert client.decide("undo").status == 200
    assert client.decide("reject", class_=4).told["classes"][4]["stands_for"] == -1
    assert client.decide("redo").told == {"refused": "there is nothing to redo"}
    assert read_classes(model).names == ("0", "1", "2", "rose", "new-2")
    words = [json.loads(line)["words"] for line in (model / "decisions.jsonl").read_text().splitlines()]
    merged = "new-2 is now part of rose"
    assert words == [
        *("new-1 is now called rose", merged, f"undone: {merged}", merged, f"undone: {merged}", "new-2 is rejected"),
    ]


def test_what_cannot_be_decided_is_said_and_changes_nothing(client: Client) -> None:
    version = client.state["version"]
    for decision, words in (
        ({"verb": "rename", "class_": 3, "name": "0"}, "merge"),
        ({"verb": "rename", "class_": 3, "name": "unsure"}, "reserved"),
        ({"verb": "rename", "class_": 3}, "is empty"),
        ({"verb": "merge", "class_": 0, "into": 3}, "has labels"),
        ({"verb": "merge", "class_": 3, "into": 77}, "not there any more"),
        ({"verb": "reject", "class_": 0}, "has labels"),
        ({"verb": "reject", "class_": 99}, "not there any more"),
        ({"verb": "undo"}, "nothing to undo"),
        ({"verb": "redo"}, "nothing to redo"),
    ):
        answer = client.decide(**decision)
        assert answer.status == 422
        assert words in answer.told["refused"]
    assert client.state["version"] == version


def test_a_stale_page_decides_nothing(fresh: Path, client: Client) -> None:
    version = client.state["version"]
    assert main(["name", str(fresh / "model2"), "new-1=rose"]) == 0
    answer = client.decide("reject", version=version, class_=3)
    assert answer.status == 409
    assert answer.told["classes"][3]["name"] == "rose", "the page is told how it is now"
    assert client.decide("reject", version=answer.told["version"], class_=3).status == 200


def test_of_decisions_at_once_one_is_taken(fresh: Path, client: Client) -> None:
    version = client.state["version"]
    with ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(client.decide, "rename", version, class_=3, name=f"name-{k}") for k in range(8)]
        statuses = sorted(task.result().status for task in tasks)
    assert statuses == [200, *[409] * 7]
    assert len((fresh / "model2" / "decisions.jsonl").read_text().splitlines()) == 1


def test_a_damaged_record_is_named_and_the_page_goes_on(fresh: Path, client: Client) -> None:
    client.decide("rename", class_=3, name="rose")
    (fresh / "model2" / "decisions.jsonl").write_text("{}\n")
    assert client.state["redo"] is None
    answer = client.decide("reject", class_=4)
    assert answer.status == 422
    assert "decisions.jsonl is damaged" in answer.told["refused"]


def test_nothing_changed_needs_no_answer(client: Client) -> None:
    since = client.state["since"]
    assert client.get(f"state?since={since}".replace(" ", "%20")).status == 204
    client.decide("rename", class_=3, name="rose")
    assert client.get(f"state?since={since}".replace(" ", "%20")).status == 200


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    with pytest.raises(InputError, match="pip install"):
        Server()


def test_a_port_in_use(client: Client) -> None:
    with pytest.raises(InputError, match="choose another --port"):
        served.bound(client.server.port)


def test_after_a_rejection_the_model_itself_is_asked(fresh: Path, session: Session, client: Client) -> None:
    import numpy as np

    from hoarfrost import Learner

    client.decide("reject", class_=4)
    state = client.state
    assert sum(row["images"] for row in state["classes"]) + state["unsure"] == state["images"], "at once, about right"
    assert state["classes"][4]["images"] == 0
    wait_for(lambda: not session.judge.busy)
    assert session.groups is not None
    found = Learner.load(fresh / "model2", "cpu").predictions(fresh / "unsorted")
    judged = session.groups.judgement.probabilities
    np.testing.assert_allclose(judged[:, found.class_ids], found.probabilities, atol=1e-6)
    assert not judged[:, 4].any()
    client.decide("undo")
    wait_for(lambda: not session.judge.busy)
    assert session.groups.judgement.table.present == [0, 1, 2, 3, 4]
