"""Predictions as a table: of each image its path, its class, and how probable that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.arrays import array_of
from hoarfrost.data.images import ImageSet
from hoarfrost.data.unsure import UNSURE
from hoarfrost.training.display import ROWS, pictures, table


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of N images, a row each.

    probabilities: (N, P), a column for each class that can be predicted, as by `Learner.predict_proba`.
    class_names: of the columns.
    paths: where each image is; None for arrays.
    threshold: an image whose best class is less probable than that is unsure.
    class_ids: of the columns, 0 to P - 1 by default. An id stays when classes are merged or rejected.
    classes: the label of each column, as it was given to fit; its name by default.
    images: what notebooks show, if anything.

    >>> found = Predictions(np.array([[0.9, 0.1], [0.4, 0.6]]), ("ant", "new-1"), 1, ["a.png", "b.png"], threshold=0.7)
    >>> found.names, found.ids.tolist(), found.confidence.tolist()
    (('ant', 'unsure'), [0, -1], [0.9, 0.6])
    >>> found
    Predictions(2 images: 1 ant, 1 unsure)
    >>> found[0], [row["class"] for row in found]
    ({'path': 'a.png', 'class': 'ant', 'probability': 0.9, 'kind': 'old'}, ['ant', 'unsure'])
    >>> found[1:]
    Predictions(1 image: 1 unsure)
    """

    probabilities: NDArray[np.float64]
    class_names: tuple[str, ...]
    labelled_classes: int
    paths: Sequence[str] | None = None
    threshold: float | None = None
    class_ids: Sequence[int] | None = None
    classes: NDArray[Any] | None = None
    images: ImageSet | None = None

    def __len__(self) -> int:
        return len(self.probabilities)

    @overload
    def __getitem__(self, which: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: slice) -> Predictions: ...
    def __getitem__(self, which: int | slice) -> dict[str, Any] | Predictions:
        """What is said of one image, as in `rows`; of a slice, these images alone."""
        paths = [*map(str, range(len(self)))] if self.paths is None else self.paths
        if isinstance(which, slice):
            images = None if self.images is None else self.images.take(which)
            return replace(self, probabilities=self.probabilities[which], paths=paths[which], images=images)
        index = range(len(self))[which]
        return self[index : index + 1].rows()[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in Counter(self.names).most_common())
        return f"Predictions({len(self)} image{'' if len(self) == 1 else 's'}: {counts})"

    def _repr_html_(self) -> str:
        first = self[:ROWS]
        rows = (
            (
                "" if self.images is None else pictures(self.images.take([index])),
                (row["class"], f"{row['probability']:.3f}", row["kind"], row["path"]),
            )
            for index, row in enumerate(first)
        )
        return table(repr(self), ("class", "probability", "kind", "path"), rows, len(self) - ROWS)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """(N,): the probability of the best class."""
        best: NDArray[np.float64] = self.probabilities.max(axis=1)
        return best

    @property
    def columns(self) -> NDArray[np.int64]:
        """(N,): the column of the best class, -1 for unsure."""
        unsure = self.confidence < (self.threshold or 0.0)
        return np.where(unsure, -1, self.probabilities.argmax(axis=1))

    @property
    def ids(self) -> NDArray[np.int64]:
        """(N,): class ids, -1 for unsure."""
        columns = self.columns
        return columns if self.class_ids is None else np.where(columns < 0, -1, np.asarray(self.class_ids)[columns])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, N."""
        return tuple(UNSURE if column < 0 else self.class_names[column] for column in self.columns.tolist())

    @property
    def labels(self) -> NDArray[Any]:
        """(N,): as `Learner.predict` gives them, but for the images that are unsure."""
        classes, columns = np.array(self.class_names) if self.classes is None else self.classes, self.columns
        return array_of([*classes.tolist(), UNSURE])[columns] if (columns < 0).any() else classes[columns]

    def _kind(self, class_id: int) -> str:
        return UNSURE if class_id < 0 else "old" if class_id < self.labelled_classes else "new"

    def rows(self, top: int = 0) -> list[dict[str, Any]]:
        """A dictionary an image: path, class, probability and kind, and so many most probable classes as ``top``."""
        ranked = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :top].tolist()
        rows = []
        for index, (class_id, name, best) in enumerate(
            zip(self.ids.tolist(), self.names, self.confidence.tolist(), strict=True)
        ):
            row = {
                "path": str(index) if self.paths is None else self.paths[index],
                "class": name,
                "probability": round(best, 6),
                "kind": self._kind(class_id),
            }
            if top:
                given = self.probabilities[index]
                row["top"] = [
                    {"class": self.class_names[k], "probability": round(float(given[k]), 6)} for k in ranked[index]
                ]
            rows.append(row)
        return rows
