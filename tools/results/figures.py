"""The paper's figures of the runs that are kept, and their section of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hoarfrost.errors import InputError
from hoarfrost.paper.pictures import draw, panels, write_png
from hoarfrost.paper.tables import TABLES
from hoarfrost.report.comparison import Compared
from tools.results.kept import Result

HEAD = """## The paper's figures

Each of one seed. In a confusion matrix a row is a true class, and new classes stand by the clusters that they were
matched to, so that what is right is on the diagonal; the orange lines are the border between old and new.
"""


@dataclass(frozen=True)
class Kept:
    """A figure on one data set, all of whose runs are kept."""

    name: str
    dataset: str
    split: str
    seed: int
    shown: tuple[Compared, ...]

    @property
    def file(self) -> str:
        """Its name among the pictures."""
        return f"{self.name}-{self.dataset}.png"

    @property
    def title(self) -> str:
        """For the heading of a section."""
        return f"Figure {self.name.removeprefix('figure')} on {self.dataset}. {TABLES[self.name].title}"

    def write(self, folder: Path) -> Path:
        """Draws it into a folder."""
        figure = draw(TABLES[self.name], self.shown, f"{self.dataset} {self.split}, seed {self.seed}")
        return write_png(figure, folder / self.file)


def kept_figures(groups: Mapping[tuple[str, str, str], Sequence[Result]]) -> Iterator[Kept]:
    """The figures, each on every data set where all of its runs are kept with one seed and with what is drawn."""
    for name, table in TABLES.items():
        if table.picture is None:
            continue
        for dataset, split in table.possible.items():
            runs = [
                {result.content["seed"]: result.content for result in groups.get((dataset, split, method), ())}
                for _, method in table.rows
            ]
            for seed in sorted(set.intersection(*(set(of_method) for of_method in runs))):
                try:
                    shown = [
                        panel
                        for (label, _), of_method in zip(table.rows, runs, strict=True)
                        for panel in panels(table, label, of_method[seed])
                    ]
                except InputError:
                    continue
                yield Kept(name, dataset, split, seed, tuple(shown))
                break


def write_all(groups: Mapping[tuple[str, str, str], Sequence[Result]], folder: Path) -> list[Path]:
    """Draws all figures that can be into a folder, and removes those that no longer can be."""
    figures = list(kept_figures(groups))
    if figures:
        folder.mkdir(parents=True, exist_ok=True)
    made = [figure.write(folder) for figure in figures]
    for path in folder.glob("figure*.png"):
        if path not in made:
            path.unlink()
    return made


def section(groups: Mapping[tuple[str, str, str], Sequence[Result]], folder: str) -> list[str]:
    """The figures that can be drawn, as parts of a page; from there they lie in ``folder``. Empty without any."""
    parts = [f"### {figure.title}\n\n![{figure.title}]({folder}/{figure.file})\n" for figure in kept_figures(groups)]
    return [HEAD, *parts] if parts else []
