"""Counts words and sentences of Markdown pages, outside tables and code, and holds the front pages to their limits.

    python tools/prose.py                 README.md and CONTRIBUTING.md against their limits; exit code 1 above them
    python tools/prose.py PAGE [PAGE …]   the counts of any pages

A word is what stands between spaces; a link counts by its text. A sentence ends with a full stop, a question mark or an
exclamation mark, or with its paragraph or list item. Headings have words but are no sentences.
"""

from __future__ import annotations

import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST, MEDIAN = 30, 15
WORDS = {"README.md": (600, 700), "CONTRIBUTING.md": (450, 600)}
"""words a page may have, least and most"""

AWAY = re.compile(r"^```.*?^```$|<!--.*?-->|<[^>]+>|^\s*\|.*?$", flags=re.DOTALL | re.MULTILINE)
"""code blocks, comments, tags and rows of tables"""
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) |#)|(?<=\n)(?=#)")
MARK = re.compile(r"^\s*(?:[-*+]|\d+\.|#+) ")
END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Prose:
    """What a page says: all of its words, and its sentences."""

    words: int
    sentences: tuple[str, ...]

    @property
    def lengths(self) -> list[int]:
        """Words of each sentence."""
        return [len(sentence.split()) for sentence in self.sentences]

    @property
    def median(self) -> float:
        """Of the lengths."""
        return statistics.median(self.lengths or [0])


def read(text: str) -> Prose:
    """The prose of a page in Markdown.

    >>> read("# A title\\n\\nOne [link](a.md). Two!\\n- an item\\n- `code here`\\n\\n| a | table |\\n").words
    9
    >>> read("One two. Three?\\n- four\\n").lengths
    [2, 1, 1]
    """
    words, sentences = 0, []
    for block in BLOCK.split(LINK.sub(r"\1", AWAY.sub("", text))):
        plain = " ".join(MARK.sub("", block).split())
        words += len(plain.split())
        if plain and not block.lstrip().startswith("#"):
            sentences += END.split(plain)
    return Prose(words, tuple(sentences))


def complaints(prose: Prose, least: int, most: int) -> list[str]:
    """What is above or below the limits, a line each."""
    found = [] if least <= prose.words <= most else [f"{prose.words} words: {least} to {most} are allowed"]
    if prose.median > MEDIAN:
        found.append(f"sentences have {prose.median:g} words in the median: {MEDIAN} are allowed")
    long = zip(prose.lengths, prose.sentences, strict=True)
    return [*found, *(f"{length} words, {LONGEST} are allowed: {said}" for length, said in long if length > LONGEST)]


def main(pages: list[str]) -> int:
    """Prints the counts; without pages, what the front pages have too much of."""
    bad = False
    for page in pages or WORDS:
        prose = read((Path(page) if pages else ROOT / page).read_text(encoding="utf-8"))
        longest = max(prose.lengths, default=0)
        print(f"{page}: {prose.words} words; sentences: median {prose.median:g}, longest {longest} words")
        for complaint in [] if pages else complaints(prose, *WORDS[page]):
            print(f"  {complaint}")
            bad = True
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
