"""Keeps results and makes the page of them.

python -m tools.results keep RUN [RUN …] [--to results]     a finished run folder's figures as one JSON file
python -m tools.results page [--results results]            prints RESULTS.md
python -m tools.results figures                             draws the paper's figures into docs/figures/
python -m tools.results splits                              writes the lists of images of continual category discovery
python -m tools.results renew PAGE [PAGE …]                 renews the tables in docs/reproducibility.md and README.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hoarfrost.errors import InputError
from hoarfrost.paper.text import renewed
from hoarfrost.printing import printable, printable_lines
from hoarfrost.store import write_json
from tools.results.figures import write_all
from tools.results.kept import collect, grouped, read_results
from tools.results.page import BEYOND, ESTIMATED, HEADLINE, beyond, estimated, headline, make_page
from tools.results.splits import LISTED, listed
from tools.results.verified import BEGIN, make_tables

MADE = {BEGIN: make_tables, HEADLINE: headline, BEYOND: beyond, ESTIMATED: estimated}
"""what stands between which marks of a page"""


def main(arguments: list[str] | None = None) -> int:
    """One of the five."""
    parser = argparse.ArgumentParser(prog="python -m tools.results", description="Keep results; make their page.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    keep = verbs.add_parser("keep", help="keep the figures of finished run folders")
    keep.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    keep.add_argument("--to", type=Path, default=Path("results"), metavar="DIR")
    keep.add_argument("--folder-names", action="store_true", help="name the files after the run folders")
    page = verbs.add_parser("page", help="print RESULTS.md")
    figures = verbs.add_parser("figures", help="draw the paper's figures")
    figures.add_argument("--to", type=Path, default=Path("docs/figures"), metavar="DIR")
    splits = verbs.add_parser("splits", help="write the lists of images of continual category discovery")
    splits.add_argument("--to", type=Path, default=Path("results/splits"), metavar="DIR")
    renew = verbs.add_parser("renew", help="renew what stands between marks in pages")
    renew.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    for verb in (page, figures, splits, renew):
        verb.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    given = parser.parse_args(arguments)
    try:
        if given.verb != "keep" and not given.results.is_dir():
            raise InputError(f"there is no folder {given.results}: check the path")
        if given.verb == "page":
            print(printable_lines(make_page(given.results)), end="")
            return 0
        if given.verb == "figures":
            for path in write_all(grouped(read_results(given.results)), given.to):
                print(printable(str(path)))
            return 0
        if given.verb == "splits":
            given.to.mkdir(parents=True, exist_ok=True)
            names = {run.content["dataset"]: run.content["class_names"] for run in read_results(given.results)}
            for name, (dataset, _, _) in LISTED.items():
                write_json(given.to / f"{name}.json", listed(name, names[dataset]))
            return 0
        if given.verb == "renew":
            for path in given.pages:
                text = path.read_text(encoding="utf-8")
                marks = [mark for mark in MADE if mark in text]
                if not marks:
                    raise InputError(f"{path} has none of the marks {', '.join(MADE)}")
                for mark in marks:
                    text = renewed(text, MADE[mark](given.results), begin=mark)
                path.write_text(text, encoding="utf-8")
            return 0
        for run in given.runs:
            print(printable(str(collect(run, given.to, run.name if given.folder_names else None))))
    except InputError as error:
        print(f"tools.results: {printable(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        where = printable(str(error.filename))
        print(f"tools.results: {error.strerror or error} for {where}: check the path", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
