"""Keeps results and makes the page of them.

python -m hoarfrost.paper keep RUN [RUN …] [--to results]     a finished run folder's figures as one JSON file
python -m hoarfrost.paper page [--results results]            prints RESULTS.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hoarfrost.errors import InputError
from hoarfrost.paper.page import make_page
from hoarfrost.paper.records import collect


def main(arguments: list[str] | None = None) -> int:
    """One of the two."""
    parser = argparse.ArgumentParser(prog="python -m hoarfrost.paper", description="Keep results; make their page.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    keep = verbs.add_parser("keep", help="keep the figures of finished run folders")
    keep.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    keep.add_argument("--to", type=Path, default=Path("results"), metavar="DIR")
    keep.add_argument("--folder-names", action="store_true", help="name the files after the run folders")
    page = verbs.add_parser("page", help="print RESULTS.md")
    page.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    given = parser.parse_args(arguments)
    try:
        if given.verb == "page":
            if not given.results.is_dir():
                raise InputError(f"there is no folder {given.results}: check the path")
            print(make_page(given.results), end="")
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
