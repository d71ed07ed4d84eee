"""Every changed sentence is seen in a diff: tests/messages.txt holds all texts that people meet."""

from __future__ import annotations

from difflib import unified_diff

from tests.messages import SNAPSHOT, collect, of_code, of_template

from .pages import load

prose = load("tools/prose.py")


def test_the_snapshot_holds_every_message() -> None:
    before, now = SNAPSHOT.read_text(encoding="utf-8").splitlines(), collect().splitlines()
    changed = [line for line in unified_diff(before, now, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")]
    assert not changed, "read these once more, then run: python -m tests.messages --write\n" + "\n".join(changed)


def test_no_sentence_is_too_long() -> None:
    parts = [part.split("\n") for part in SNAPSHOT.read_text(encoding="utf-8").split("\n\n")]
    said = [line for file, *lines in parts for line in lines]
    assert len(said) > 800
    sentences = [sentence for line in said for sentence in prose.END.split(line)]
    assert not [sentence for sentence in sentences if len(sentence.split()) > prose.LONGEST]


def test_strings_are_found_and_docstrings_are_not() -> None:
    source = '''
"""A docstring of the module."""
LIMIT = 3
"""a docstring of a value"""
def check(n: int) -> None:
    """A docstring of a function."""
    raise ValueError(f"{n:.1f} is above "
        f"{LIMIT}{' by far' if n > 9 else ''}: lower it")
'''
    assert list(of_code(source)) == ["{} is above {}{}: lower it", " by far", ""]


def test_a_page_gives_its_sentences_and_descriptions() -> None:
    page = "<style>p { color: red }</style><p>{{ n }} of <b>{{ m }}</b>{% if x %} new{% else %} old{% endif %}.</p>"
    assert [text for text in of_template(f'{page}<img alt="a plot">') if text] == ["a plot", "{} of {} new /  old."]
