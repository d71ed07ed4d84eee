"""What is remembered of images that are gone: how the features of each class are spread.

Every model keeps means and variances. A readout may ask for more: how features vary together, and the same of features
after a transformation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Transform = Literal["plain", "unit", "sqrt", "hellinger"]

JITTER = 1e-6
"""added to variances, as a part of each, so that every covariance has a root"""

CARRIED_RIDGE = 0.01
"""of the regression from features before a change to those after it, as a part of their mean sum of squares"""


def transformed(features: Tensor, how: Transform) -> Tensor:
    """Features ``(B, D)`` as they are, divided by their length, or the square root of each, whose sign stays.

    "hellinger" is the square root divided by its length: then the distance of two is Hellinger's of distributions.
    """
    if how in ("sqrt", "hellinger"):
        features = features.sign() * features.abs().sqrt()
    return torch.nn.functional.normalize(features, dim=1) if how in ("unit", "hellinger") else features


@dataclass(frozen=True)
class KeptStatistics:
    """What is kept of each class beside the mean and the variance of its features."""

    covariance: Literal["none", "full", "shared", "low-rank"] = "none"
    rank: int = 0
    """how many directions of a low-rank one"""
    features: Transform = "plain"
    """of transformed features mean and variance are kept too"""
    before_last: int = 0
    """so many further features, of the part before the last, stand behind the others, and are kept with those that are
    transformed"""

    @property
    def of_backbone(self) -> bool:
        """Whether all that is kept is of the backbone's features as they are."""
        return self.features == "plain" and not self.before_last

    @property
    def inner(self) -> KeptStatistics:
        """What is kept of features that are transformed already."""
        return replace(self, features="plain", before_last=0)

    def transformed(self, features: Tensor) -> Tensor:
        """Features ``(B, D)``, each part's by itself."""
        last = features.shape[1] - self.before_last
        parts = features[:, :last], features[:, last:]
        return torch.cat([transformed(part, self.features) for part in parts], dim=1)

    def root_shape(self, classes: int, features: int) -> tuple[int, ...] | None:
        """Of the root of the covariance, where one is kept."""
        if self.covariance == "low-rank":
            return (classes, features, min(self.rank, features))
        return {"full": (classes, features, features), "shared": (features, features)}.get(self.covariance)


@dataclass(frozen=True)
class ClassStatistics:
    """Eq. (9) for C classes and D features, always on the CPU, stored with the model."""

    mean: Tensor
    """(C, D)"""
    variance: Tensor
    """(C, D), divided by n as the paper has it"""
    count: Tensor
    """(C,) images a class; 0 for a discovered class to which no image went"""
    root: Tensor | None = None
    """where a readout asks for it, a root of the covariance: a matrix that gives it when multiplied by its transpose.
    (C, D, D) of each class, or (C, D, R) with its main directions alone, both in half precision and in units of the
    features' deviations; or (D, D) of all classes together, in single precision. A root in half precision is always
    that of some covariance, and far more exact in directions of little spread than the covariance itself would be."""
    transformed: ClassStatistics | None = None
    """the same of transformed features, where a readout looks at such"""

    def __len__(self) -> int:
        return len(self.mean)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int, kept: KeptStatistics | None = None) -> ClassStatistics:
        """The statistics of features ``(N, D)`` with class ids ``(N,)``."""
        tally = Tally(classes, features.shape[1] - (kept.before_last if kept else 0), features.device, kept)
        tally.add(features, labels.to(features.device))
        return tally.statistics()

    @property
    def for_readout(self) -> ClassStatistics:
        """Those of the features that the readout looks at."""
        return self.transformed or self

    def fit(self, kept: KeptStatistics, features: int) -> bool:
        """Whether these have the form of so many features, and all that is to be kept."""
        shape = (len(self.count), features)
        if not (self.mean.shape == self.variance.shape == shape and self.count.ndim == 1):
            return False
        if not kept.of_backbone:
            inner = features + kept.before_last
            return self.transformed is not None and self.transformed.fit(kept.inner, inner)
        root = kept.root_shape(*shape)
        return root is None or (self.root is not None and self.root.shape == root)

    def tensors(self) -> dict[str, Tensor]:
        """By the names that they have in ``prototypes.safetensors``."""
        found = {"mean": self.mean, "variance": self.variance, "count": self.count}
        if self.root is not None:
            found["covariance_root"] = self.root
        if self.transformed is not None:
            inner = self.transformed.tensors()
            found |= {f"transformed_{name}": tensor for name, tensor in inner.items() if name != "count"}
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], prefix: str = "") -> ClassStatistics:
        """The inverse of ``tensors``."""
        return cls(
            tensors[f"{prefix}mean"],
            tensors[f"{prefix}variance"],
            tensors["count"],
            tensors.get(f"{prefix}covariance_root"),
            None if prefix or "transformed_mean" not in tensors else cls.from_tensors(tensors, "transformed_"),
        )

    def covariances(self, classes: slice = slice(None), device: torch.device | None = None) -> Tensor:
        """``(C, D, D)`` of some classes, or ``(1, D, D)`` where they share one; in double precision."""
        assert self.root is not None
        if self.root.ndim == 2:
            on_cpu = device is None or device.type == "cpu"
            return (self._shared if on_cpu else _product(self.root.to(device)))[None]
        root, deviation = self.root[classes].to(device).double(), self.variance[classes].to(device).double().sqrt()
        found = root @ root.mT
        diagonal = found.diagonal(dim1=1, dim2=2)
        diagonal += (1 - diagonal).clamp(min=0)  # what is left out of the directions is spread by itself
        return found * deviation[:, :, None] * deviation[:, None, :]

    @cached_property
    def _shared(self) -> Tensor:
        """The covariance that all share, computed once: of many features it takes a while."""
        assert self.root is not None
        return _product(self.root)

    def first(self, classes: int) -> ClassStatistics:
        """Of the first classes alone; a covariance that is shared stays that of all."""
        root, inner = self.root, self.transformed
        return ClassStatistics(
            self.mean[:classes],
            self.variance[:classes],
            self.count[:classes],
            root if root is None or root.ndim == 2 else root[:classes],
            None if inner is None else inner.first(classes),
        )

    def extended(self, more: ClassStatistics) -> ClassStatistics:
        """With the classes of ``more`` behind these; without what one of both lacks."""
        root, inner = None, None
        if self.root is not None and more.root is not None:
            root = self._root_with(more) if self.root.ndim == 2 else torch.cat([self.root, more.root])
        if self.transformed is not None and more.transformed is not None:
            inner = self.transformed.extended(more.transformed)
        return ClassStatistics(
            torch.cat([self.mean, more.mean]),
            torch.cat([self.variance, more.variance]),
            torch.cat([self.count, more.count]),
            root,
            inner,
        )

    def _root_with(self, more: ClassStatistics) -> Tensor:
        """Of both covariances together, each by the number of its images."""
        ours, theirs = self.count.sum().clamp(min=1), more.count.sum()
        whole = self.covariances()[0] * ours + more.covariances()[0] * theirs
        return _shared_root(whole / (ours + theirs))

    def carried(self, before: Tensor, after: Tensor) -> ClassStatistics:
        """Where the features that a readout looks at change: what is remembered of them, moved along.

        ``before`` and ``after`` (N, D) are of the same images. A ridge regression from one to the other says where a
        mean goes and how a covariance turns; what it leaves unexplained is added to every covariance.
        """
        if self.transformed is not None:
            return replace(self, transformed=self.transformed.carried(before, after))
        first, second = before.double(), after.double()
        centre, goal = first.mean(dim=0), second.mean(dim=0)
        first, second = first - centre, second - goal
        products = first.mT @ first
        ridge = CARRIED_RIDGE * products.diagonal().mean() * torch.eye(len(products)).to(products)
        turn = torch.linalg.solve(products + ridge, first.mT @ second)
        left = second - first @ turn
        rest, device = left.mT @ left / len(left), first.device
        mean = (self.mean.to(device).double() - centre) @ turn + goal
        variance, root = torch.empty_like(self.variance), None if self.root is None else torch.empty_like(self.root)
        for label in range(len(self)):
            if self.root is None or self.root.ndim == 2:
                covariance = self.variance[label].to(device).double().diag()
            else:
                covariance = self.covariances(slice(label, label + 1), device)[0]
            whole = turn.mT @ covariance @ turn + rest
            variance[label] = whole.diagonal()
            if root is not None and root.ndim == 3:
                root[label] = _root_of(whole, root.shape[1:]).half()
        if root is not None and root.ndim == 2:
            root = _shared_root(turn.mT @ self.covariances(device=device)[0] @ turn + rest).cpu()
        return ClassStatistics(mean.float().cpu(), variance, self.count, root)

    def drawn_to(self, covariance: Tensor, share: float) -> ClassStatistics:
        """With the covariance of each class moved towards ``covariance`` ``(D, D)``, by a share from 0 to 1.

        It is of what the readout looks at. Where no class has a covariance of its own, nothing changes.
        """
        if self.transformed is not None:
            return replace(self, transformed=self.transformed.drawn_to(covariance, share))
        if self.root is None or self.root.ndim == 2:
            return self
        variance, root = self.variance.clone(), self.root.clone()
        for label in (self.count > 0).nonzero().flatten().tolist():
            whole = (1 - share) * self.covariances(slice(label, label + 1))[0] + share * covariance.cpu()
            variance[label] = whole.diagonal()
            root[label] = _root_of(whole, root.shape[1:]).half()
        return replace(self, variance=variance, root=root)

    def merged(self, stands_for: Tensor) -> ClassStatistics:
        """Where classes stand for others, ``(C,)`` ids: those together, in the place of that one; -1 leaves one out.

        A class that is part of another has no images of its own any more.
        """
        rest, kept = self.without(stands_for < 0), stands_for >= 0
        target, count = stands_for[kept], self.count[kept].double()
        whole = Tally(len(self), self.mean.shape[1], self.mean.device)
        whole.count.index_add_(0, target, count)
        total = whole.count.clamp(min=1)[:, None]
        whole.mean.index_add_(0, target, count[:, None] * self.mean[kept].double()).div_(total)
        apart = self.mean[kept].double() - whole.mean[target]
        whole.squares.index_add_(0, target, count[:, None] * (self.variance[kept].double() + apart.square()))
        root, joined = rest.root, (target.bincount(minlength=len(self)) > 1).nonzero().flatten().tolist()
        if root is not None and root.ndim == 2 and joined:
            between = (count[:, None] * apart).mT @ apart
            root = _shared_root(rest.covariances()[0] + between / whole.count.sum().clamp(min=1))
        elif root is not None and root.ndim == 3:
            root = root.clone()
            for label in joined:  # of the others each keeps its own, to the last bit
                root[label] = self._joined_root((stands_for == label).nonzero().flatten(), whole.mean[label])
        made, alone = whole.statistics(), target.bincount(minlength=len(self))[:, None] == 1
        return ClassStatistics(
            torch.where(alone, self.mean, made.mean),
            torch.where(alone, self.variance, made.variance),
            made.count,
            root,
            None if self.transformed is None else self.transformed.merged(stands_for),
        )

    def _joined_root(self, labels: Tensor, mean: Tensor) -> Tensor:
        """Of the covariance of some classes together, ``(D, R)``, around their mean ``(D,)``."""
        assert self.root is not None
        total = torch.zeros(self.mean.shape[1], self.mean.shape[1], dtype=torch.float64)
        for label in labels.tolist():
            apart = self.mean[label].double() - mean
            total += self.count[label] * (self.covariances(slice(label, label + 1))[0] + apart[:, None] * apart)
        return _root_of(total / self.count[labels].sum().clamp(min=1), self.root.shape[1:]).half()

    def without(self, gone: Tensor) -> ClassStatistics:
        """Without the images of the classes that are ``gone`` (C,) bool, which keep their places.

        Of a covariance that all classes share, the variances are then exactly those of the others. Its correlations
        stay, since nobody knows which are whose.
        """
        if not gone.any():
            return self
        count, root = self.count.masked_fill(gone, 0), self.root
        if root is not None and root.ndim == 2:
            part = (count / count.sum().clamp(min=1)).double()
            variance = part @ self.variance.double()
            before = self.covariances()[0].diagonal()
            root = (root.double() * torch.where(before > 0, variance / before, 0).sqrt()[:, None]).float()
        inner = None if self.transformed is None else self.transformed.without(gone)
        return replace(self, count=count, root=root, transformed=inner)

    def with_room(self, classes: int) -> ClassStatistics:
        """With places for so many classes; those behind the present ones have no images yet."""
        more = classes - len(self)
        if more <= 0:
            return self

        def padded(tensor: Tensor) -> Tensor:
            return torch.cat([tensor, tensor.new_zeros(more, *tensor.shape[1:])])

        return ClassStatistics(
            padded(self.mean),
            padded(self.variance),
            padded(self.count),
            self.root if self.root is None or self.root.ndim == 2 else padded(self.root),
            None if self.transformed is None else self.transformed.with_room(classes),
        )

    def changed(
        self, taken: Tensor, taken_from: Tensor, added: Tensor, added_to: Tensor, kept: KeptStatistics
    ) -> ClassStatistics:
        """Without some images ``(T, D)`` of the classes ``(T,)``, and with others ``(A, D)`` in the classes ``(A,)``.

        Counts and sums of these classes change exactly, those of all others not at all. A covariance that all share
        changes by what these images add to it.
        """
        if not len(taken) + len(added):
            return self
        inner, taken, added = None, taken if len(taken) else added[:0], added if len(added) else taken[:0]
        if self.transformed is not None:
            parts = [kept.transformed(part) for part in (taken, added)]
            inner = self.transformed.changed(parts[0], taken_from, parts[1], added_to, kept.inner)
        mean, variance, count = self.mean.clone(), self.variance.clone(), self.count.clone()
        root = self.root if self.root is None or self.root.ndim == 2 else self.root.clone()
        is_shared = root is not None and root.ndim == 2
        whole = self.covariances()[0] * self.count.sum() if is_shared else None
        width = mean.shape[1]
        for label in sorted({*taken_from.tolist(), *added_to.tolist()}):
            parts = [part[of == label][:, :width].double() for part, of in ((taken, taken_from), (added, added_to))]
            before = int(count[label])
            centre = parts[1].mean(dim=0) if len(parts[1]) and not before else mean[label].double()
            out, into = (part - centre for part in parts)
            after = max(0, before - len(out) + len(into))
            shift = (into.sum(dim=0) - out.sum(dim=0)) / max(after, 1)
            squares = before * variance[label].double() + into.square().sum(dim=0) - out.square().sum(dim=0)
            variance[label] = ((squares - after * shift.square()).clamp(min=0) / max(after, 1)) * (after > 0)
            change = into.mT @ into - out.mT @ out - after * shift[:, None] * shift
            if whole is not None:
                whole += change
            elif root is not None:
                covariance = before * self.covariances(slice(label, label + 1))[0] if before else 0
                root[label] = _root_of(_of_some(covariance + change) / max(after, 1), root.shape[1:]).half()
            mean[label], count[label] = centre + shift if after else 0 * centre, after
        if whole is not None:
            root = _shared_root(_of_some(whole) / count.sum().clamp(min=1))
        return ClassStatistics(mean, variance, count, root, inner)

    def deviation(self, spread: str) -> Tensor:
        """Standard deviations ``(C, D)``: each class's own, as in Eq. (9), or "shared", their mean over the classes.

        The shared one is the public code's: from unbiased variances, with 1e-5 added to each. An "isotropic" one is the
        root of the mean variance of all classes and features, as Happy has it.
        """
        if spread == "class":
            return self.variance.sqrt()
        if spread == "isotropic":
            return self.variance[self.count > 0].mean().sqrt().expand_as(self.mean)
        count = self.count[:, None].to(self.variance.dtype)
        unbiased = self.variance * count / (count - 1).clamp(min=1)
        seen = self.count > 0
        shared = (unbiased[seen] + 1e-5).sqrt().mean(dim=0)
        return shared.expand_as(self.mean)


class Tally:
    """Class statistics of features that come batch by batch; in double precision, since sums are long."""

    def __init__(self, classes: int, features: int, device: torch.device, kept: KeptStatistics | None = None) -> None:
        kept = kept or KeptStatistics()
        self.whole = kept
        self.transformed: Tally | None = None
        if not kept.of_backbone:
            self.transformed = Tally(classes, features + kept.before_last, device, kept.inner)
            kept = KeptStatistics()
        self.kept = kept
        self.count = torch.zeros(classes, dtype=torch.float64, device=device)
        self.mean = torch.zeros(classes, features, dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.mean)
        """of the distances from the mean, added up"""
        self.products: Tensor | None = None
        """(C, D, D), or (D, D) of all classes together: products of two features' distances from the mean, added up"""
        if kept.covariance != "none":
            shape = (features, features) if kept.covariance == "shared" else (classes, features, features)
            self.products = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """A batch ``(B, D)`` with class ids ``(B,)``; features of the part before the last stand behind, if any."""
        if self.transformed is not None:
            self.transformed.add(self.whole.transformed(features), labels)
        features = features[:, : self.mean.shape[1]].double()
        count = torch.zeros_like(self.count).index_add_(0, labels, torch.ones_like(features[:, 0]))
        mean = torch.zeros_like(self.mean).index_add_(0, labels, features) / count.clamp(min=1)[:, None]
        apart = features - mean[labels]
        squares = torch.zeros_like(self.mean).index_add_(0, labels, apart.square())
        products = None
        if self.products is not None and self.products.ndim == 2:
            products = apart.mT @ apart
        elif self.products is not None:
            products = torch.zeros_like(self.products)
            for label in count.nonzero().flatten().tolist():
                own = apart[labels == label]
                products[label] = own.mT @ own
        self.merge(count, mean, squares, products)

    def merge(self, count: Tensor, mean: Tensor, squares: Tensor, products: Tensor | None = None) -> None:
        """What another tally counted: two means are joined by how far they lie apart."""
        whole = self.count + count
        part = (count / whole.clamp(min=1))[:, None]
        apart = mean - self.mean
        if self.products is not None and products is not None:
            between = apart * part * self.count[:, None]
            both = between.mT @ apart if products.ndim == 2 else between[:, :, None] * apart[:, None, :]
            self.products += products + both
        self.squares += squares + apart.square() * part * self.count[:, None]
        self.mean += apart * part
        self.count = whole

    def joined(self, gather: Callable[[Tensor], list[Tensor]]) -> Tally:
        """What this one and those of other processes counted; ``gather`` brings a tensor of each, in their order."""
        whole = Tally(self.mean.shape[0], self.mean.shape[1], self.mean.device, self.kept)
        columns = [self.count, self.mean, self.squares, *([] if self.products is None else [self.products])]
        for parts in zip(*(gather(column) for column in columns), strict=True):
            whole.merge(*parts)
        if self.transformed is not None:
            whole.whole, whole.transformed = self.whole, self.transformed.joined(gather)
        return whole

    def statistics(self) -> ClassStatistics:
        """What was counted so far."""
        variance = self.squares / self.count.clamp(min=1)[:, None]
        return ClassStatistics(
            self.mean.float().cpu(),
            variance.float().cpu(),
            self.count.long().cpu(),
            self._root(),
            None if self.transformed is None else self.transformed.statistics(),
        )

    def _root(self) -> Tensor | None:
        """As ``ClassStatistics`` has it; one class after the other, since it takes memory."""
        if self.products is None:
            return None
        if self.products.ndim == 2:
            return _shared_root(self.products / self.count.sum().clamp(min=1)).cpu()
        shape = self.kept.root_shape(*self.mean.shape)
        assert shape is not None
        roots = torch.zeros(shape, dtype=torch.float16)
        for label in self.count.nonzero().flatten().tolist():
            roots[label] = _root_of(self.products[label] / self.count[label], shape[1:]).half().cpu()
        return roots


def _root_of(covariance: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As ``ClassStatistics`` has it of one class: all of it, or its main directions."""
    if shape[1] == shape[0]:
        return _root(covariance)
    lengths, directions = torch.linalg.eigh(covariance.nan_to_num())  # means say so, where one is no number
    main: Tensor = (directions * lengths.clamp(min=0).sqrt())[:, -shape[1] :]
    return main * _inverse(covariance.diagonal().sqrt())[:, None]


def _root(covariance: Tensor) -> Tensor:
    """The lower triangle that gives a covariance ``(D, D)`` when multiplied by its transpose, per deviation."""
    per_deviation = _inverse(covariance.diagonal().sqrt())
    correlation = covariance * per_deviation[:, None] * per_deviation
    root, _ = torch.linalg.cholesky_ex(correlation + JITTER * torch.eye(len(covariance)).to(covariance))
    return torch.tril(root)


def _of_some(scatter: Tensor) -> Tensor:
    """A scatter matrix from which images were taken that it may not hold: what is below 0 then is 0."""
    if int(torch.linalg.cholesky_ex(scatter + JITTER * scatter.diagonal().diag())[1]) == 0:
        return scatter
    lengths, directions = torch.linalg.eigh(scatter)
    kept: Tensor = (directions * lengths.clamp(min=0)) @ directions.mT
    return kept


def _product(root: Tensor) -> Tensor:
    """The covariance of which it is a root, in double precision."""
    exact = root.double()
    return exact @ exact.mT


def _shared_root(covariance: Tensor) -> Tensor:
    """The same, not per deviation, in single precision."""
    return (_root(covariance) * covariance.diagonal().sqrt()[:, None]).float()


def _inverse(deviation: Tensor) -> Tensor:
    """0 where nothing varies."""
    return torch.where(deviation > 0, 1 / deviation, 0)
