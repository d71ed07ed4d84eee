"""The front pages are short, and so are their sentences."""

from __future__ import annotations

import pytest

from .pages import load

prose = load("tools/prose.py")


def test_the_front_pages_keep_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main([]) == 0, capsys.readouterr().out


def test_tables_code_comments_and_addresses_do_not_count() -> None:
    page = """# Two words
<!-- a comment -->
A [link to a page](https://example.org/a) here. And `code`!

| a | table |
|---|--:|

```
a command
```
<img src="picture.png" alt="not seen">

- an item
  goes on
- another? Yes
"""
    found = prose.read(page)
    assert found.sentences == ("A link to a page here.", "And `code`!", "an item goes on", "another?", "Yes")
    assert found.words == 2 + 6 + 2 + 4 + 2
    assert found.median == 2


def test_what_is_too_long_is_said() -> None:
    page = prose.read("Short. " + "word " * 31 + "end. " + "x " * 40)
    few, median, first, second = prose.complaints(page, 100, 200)
    assert few == "73 words: 100 to 200 are allowed"
    assert median == "sentences have 32 words in the median: 15 are allowed"
    assert first.startswith("32 words, 30 are allowed: word")
    assert second.startswith("40 words, 30 are allowed: x")
    assert prose.complaints(prose.read("One. Two three."), 1, 5) == []
