"""Every text that people meet: errors, warnings, printed lines, help, and the sentences of the pages.

python -m tests.messages            print them
python -m tests.messages --write    renew tests/messages.txt, which tests/test_messages.py compares

A text is any string of two words or more in the package, docstrings aside, or a block of text in a page's template.
Values in a text are written ``{}``.
"""

from __future__ import annotations

import argparse
import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "hoarfrost"
SNAPSHOT = Path(__file__).with_name("messages.txt")

WORDS = re.compile(r"[A-Za-z]{2,}\W.*[A-Za-z]{2,}", re.DOTALL)
"""two words"""

INLINE = "a|b|code|i|small|span"
"""elements of a page that do not end a sentence"""


def collect() -> str:
    """The texts of all files, each file's in the order of its lines."""
    parts = []
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.j2"), *PACKAGE.rglob("*.html")]):
        source = path.read_text(encoding="utf-8")
        found = of_code(source) if path.suffix == ".py" else of_template(source)
        if texts := [" ".join(text.split()) for text in found if " " in text.strip() and WORDS.search(text)]:
            parts.append("\n".join([f"# {path.relative_to(PACKAGE).as_posix()}", *dict.fromkeys(texts)]))
    return "\n\n".join(parts) + "\n"


def of_code(source: str) -> Iterator[str]:
    """All strings but docstrings, with ``{}`` for each value of an f-string; strings within a value come after it."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            waiting += [part.value for part in reversed(node.values) if isinstance(part, ast.FormattedValue)]
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def of_template(source: str) -> Iterator[str]:
    """The text between the elements of a page, and what a screen reader says instead of a picture."""
    source = re.sub(r"<style>.*</style>", "", source, flags=re.DOTALL)
    source = re.sub(r"{{.*?}}", "{}", source, flags=re.DOTALL)
    source = re.sub(r"{%\s*(?:else|elif).*?%}", " / ", source, flags=re.DOTALL)
    source = re.sub(r"{%.*?%}", "", source, flags=re.DOTALL)
    yield from re.findall(r'(?:aria-label|alt|data-label)="([^"]*)"', source)
    source = re.sub(rf"</?(?:{INLINE})\b[^>]*>", "", source)
    for block in re.split(r"<[^>]*>", source):
        # Commands on a page have a line each.
        yield from (html.unescape(part) for part in (block.split("\n") if "\n# " in f"\n{block}" else [block]))


def main() -> None:
    """Prints or writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"renew {SNAPSHOT.name}")
    if parser.parse_args().write:
        SNAPSHOT.write_text(collect(), encoding="utf-8")
    else:
        print(collect(), end="")


if __name__ == "__main__":
    main()
