"""``hoarfrost methods``: what can be chosen with ``--method``."""

from __future__ import annotations

import argparse

from hoarfrost.cli import options

SUMMARY = "list the methods"
DESCRIPTION = "List the methods that --method accepts, by paper, with a line on each."
EXAMPLE = "example: hoarfrost methods --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``methods``."""
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Prints them, by paper."""
    from hoarfrost.methods import all_methods
    from hoarfrost.settings import to_json

    every = all_methods()

    content = {
        name: {
            "summary": method.summary,
            "paper": method.paper,
            "terms": [term.kind for term in method.active],
            "frozen": list(method.frozen),
            "design": to_json(method.design),
        }
        for name, method in every.items()
    }
    width, lines = max(map(len, every)), list[str]()
    for paper in dict.fromkeys(method.paper for method in every.values()):
        lines += ["", paper] if lines else [paper]
        own = (method for method in every.values() if method.paper == paper)
        lines += [f"  {method.name:{width}}  {method.summary}" for method in own]
    return options.answer(args, content, "\n".join(lines))
