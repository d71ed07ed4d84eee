"""Keeps results and makes the page of them.

python -m hoarfrost.paper keep RUN [RUN …] [--to results]     a finished run folder's figures as one JSON file
python -m hoarfrost.paper page [--results results]            prints RESULTS.md
python -m hoarfrost.paper verified PAGE [--results results]   renews the tables in docs/reproducibility.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hoarfrost.errors import InputError
from hoarfrost.paper.page import make_page
from hoarfrost.paper.records import collect
from hoarfrost.paper.text import renewed
from hoarfrost.paper.verified import BEGIN, make_tables


def main(arguments: list[str] | None = None) -> int:
    """One of the three."""
    parser = argparse.ArgumentParser(prog="python -m hoarfrost.paper", description="Keep results; make their page.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    keep = verbs.add_parser("keep", help="keep the figures of finished run folders")
    keep.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    keep.add_argument("--to", type=Path, default=Path("results"), metavar="DIR")
    keep.add_argument("--folder-names", action="store_true", help="name the files after the run folders")
    page = verbs.add_parser("page", help="print RESULTS.md")
    verified = verbs.add_parser("verified", help="renew the tables in docs/reproducibility.md")
    verified.add_argument("page", type=Path, metavar="PAGE")
    for verb in (page, verified):
        verb.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    given = parser.parse_args(arguments)
    try:
        if given.verb in ("page", "verified") and not given.results.is_dir():
            raise InputError(f"there is no folder {given.results}: check the path")
        if given.verb == "page":
            print(make_page(given.results), end="")
            return 0
        if given.verb == "verified":
            text = given.page.read_text(encoding="utf-8")
            given.page.write_text(renewed(text, make_tables(given.results), begin=BEGIN), encoding="utf-8")
            return 0
        for run in given.runs:
            print(collect(run, given.to, run.name if given.folder_names else None))
    except InputError as error:
        print(f"hoarfrost.paper: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"hoarfrost.paper: {error.strerror or error} for {error.filename}: check the path", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
