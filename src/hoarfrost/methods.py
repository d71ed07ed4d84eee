"""The methods: one table of presets. An ablation is a preset with a weight of 0, never new code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from hoarfrost import plugins
from hoarfrost.config import Course, Method
from hoarfrost.errors import InputError
from hoarfrost.losses.continual import ClusterLabels, GroupEntropy, SelfDistillation
from hoarfrost.losses.self_labelling import InstanceContrast, OverClustering, SelfLabelling
from hoarfrost.losses.terms import (
    ClusterConsistency,
    Clustering,
    Consistency,
    Contrast,
    CrossEntropy,
    ExtremePairs,
    FeatureDistillation,
    LabelledContrast,
    LabelledCrossEntropy,
    LogitDistillation,
    OldHeadConsistency,
    OldHeadDistillation,
    Pairwise,
    Replay,
    SelfTraining,
    Term,
)
from hoarfrost.models.backbone import ALL, BUT_LAST
from hoarfrost.models.network import Design
from hoarfrost.models.readout import ClassMeans, Gaussians, HeadLogits, HeadProbabilities
from hoarfrost.unsorted.known import RIDGE

DEFAULT = "hoarfrost"
PAPER = "Roy et al., Class-incremental Novel Class Discovery, ECCV 2022"
HERE = "a reference of this project, not from a paper"

# A copy of the network discovers and is thrown away; the network of stage one decides, by a Gaussian for each class, so
# that nothing that was learned can drift. docs/hoarfrost.md has the equations, and what each part gains.
HOARFROST = Method(
    name=DEFAULT,
    summary="self-labelling in a temporary copy of the network; the unchanged network classifies with class Gaussians",
    paper="this project's own method, not from a paper",
    stage_one=(CrossEntropy(), InstanceContrast()),
    terms=(
        SelfLabelling(weight=1.0),
        OverClustering(weight=1.0),
        FeatureDistillation(weight=10.0, form="cosine"),
    ),
    frozen=(BUT_LAST,),
    moving_statistics=True,
    design=Design(
        novel="cosine", readout=Gaussians(features="hellinger", shrink=0.75, ridge=0.003), before_last=True, mirror=True
    ),
    start="k-means",
    decides="unmoved",
    fit_course=Course(cosine=True, nesterov=True, weight_decay=5e-4, batch="double", strong=0.5),
    course=Course(epochs=40, cosine=True, batch="large", strong=1.0),
    # No term is left that would shape features. Of photographs, few a class, one covariance for all classes is all that
    # can be estimated, with the ridge that k-means has there too. A larger image tells more than a mirror image, in
    # less time.
    when_fixed={
        "method.stage_one.instance-contrast.weight": 0,
        "method.terms.self-labelling.weight": 0,
        "method.terms.over-clustering.weight": 0,
        "method.terms.feature-distillation.weight": 0,
        "method.design.readout.covariance": "shared",
        "method.design.readout.ridge": RIDGE,
        "method.design.mirror": False,
    },
)

# Everything up to the discovery is HOARFROST's, features and all, so that the two can be compared on one stage one.
VB_CGCD = replace(
    HOARFROST,
    name="vb-cgcd",
    summary="a Gaussian mixture of all images, fitted again without those of known classes; new ones as wide as known",
    paper="Dai and Chauhan, Continual Generalized Category Discovery: Learning and Forgetting from a Bayesian"
    " Perspective, ICML 2025",
    terms=(),
    start="mixture",
    course=Course(),
)

# Of a folder with old classes in it the known ones are told apart as for every method; the paper's stages have none.
FREEZE_AND_CLUSTER = Method(
    name="freeze-and-cluster",
    summary="the joint head learns from k-means labels of unchanged features, with feature replay",
    paper="Zhang et al., Freeze and Cluster: A Simple Baseline for Rehearsal-Free Continual Category Discovery, 2025",
    stage_one=HOARFROST.stage_one,
    terms=(ClusterLabels(weight=1.0), Replay(weight=1.0, spread="class")),
    frozen=(ALL,),
    start="k-means",
    fit_course=HOARFROST.fit_course,
    course=Course(epochs=40),
)

# Deviation: stage one is HOARFROST's but for the head, not Happy's own; contrast has strong views of its own.
HAPPY = Method(
    name="happy",
    summary="self-distillation of one head; entropy balances old and new classes; replay favours easily confused ones",
    paper="Ma et al., Happy: A Debiased Learning Framework for Continual Generalized Category Discovery, NeurIPS 2024",
    stage_one=HOARFROST.stage_one,
    terms=(
        SelfDistillation(weight=1.0),
        GroupEntropy(weight=1.0),
        InstanceContrast(weight=1.0, temperature=1.0),
        Replay(weight=1.0, spread="isotropic", sampling="hard"),
        FeatureDistillation(weight=2.0, form="cosine"),  # of unit features the squared distance
    ),
    frozen=(BUT_LAST,),
    design=Design(novel="joint", joint="cosine"),
    start="joint k-means",
    fit_course=HOARFROST.fit_course,
    course=Course(epochs=30, learning_rate=0.01, cosine=True, weight_decay=5e-5, batch="stage one"),
)

# The values that depend on the data set (the weight and ramp of consistency, the weight of self-training, the number of
# replayed features, the epochs between two targets) are set by its recipe (hoarfrost.recipes), unless a method has its
# own here. Of every preset the batch statistics of frozen parts move, as in the authors' public code.
FROST = Method(
    name="frost",
    summary="one joint head with feature replay, feature distillation and self-training",
    paper=PAPER,
    terms=(
        Pairwise(weight=1.0),
        Consistency(),
        SelfTraining(),
        Replay(weight=1.0),
        FeatureDistillation(weight=10.0),
    ),
    moving_statistics=True,
)

# Deviation: as the authors of FRoST ran it: after the common stage one, without rotations learned before, stages 2 to
# 4 trained. The original trains the last stage alone.
AUTONOVEL = Method(
    name="autonovel",
    summary="pairwise labels from rank statistics; nothing against forgetting; concatenated heads",
    paper="Han et al., Automatically Discovering and Learning New Visual Categories with Ranking Statistics, ICLR 2020",
    terms=(Pairwise(weight=1.0), Consistency()),
    moving_statistics=True,
    design=Design(readout=HeadLogits()),
)

NCL = Method(
    name="ncl",
    summary="pairwise labels from cosine similarity; contrast with a queue of neighbours; concatenated heads",
    paper="Zhong et al., Neighborhood Contrastive Learning for Novel Class Discovery, CVPR 2021",
    terms=(
        Pairwise(weight=1.0, pairs="cosine"),
        Consistency(),
        Contrast(weight=1.0, start=1),  # the queue is filled in the first epoch
    ),
    moving_statistics=True,
    design=Design(readout=HeadLogits()),
)

# A reference: NCL's own script has these losses on labelled images, which are gone in class-iNCD.
NCL_LABELLED = replace(
    NCL,
    name="ncl-labelled",
    summary="reference: NCL that also trains on the labelled images, in every discovery",
    terms=(
        *NCL.terms,
        OldHeadConsistency(),
        LabelledCrossEntropy(weight=1.0),
        LabelledContrast(weight=0.1),
    ),
    labelled_images=True,
)

RESTUNE = Method(
    name="restune",
    summary="clustering on a residual branch; logit distillation of the old head; concatenated heads",
    paper="Liu and Tuytelaars, Residual Tuning: Toward Novel Category Discovery Without Labels, TNNLS 2022",
    terms=(
        Clustering(weight=1.0),
        ClusterConsistency(weight=1.0),
        ExtremePairs(weight=1.0),
        OldHeadDistillation(weight=1.0),
    ),
    frozen=(),
    moving_statistics=True,
    design=Design(novel="centres", residual=True, readout=HeadProbabilities()),
    course=Course(epochs=100, learning_rate=0.05, drops=(), batch="stage one", reflects=True),
    start="k-means",
)

WARM_UP = 10


def dtc(name: str, summary: str, *terms: Term) -> Method:
    """Deep transfer clustering with these terms, after a warm-up of clustering alone."""
    return Method(
        name=name,
        summary=summary,
        paper="Han et al., Learning to Discover Novel Visual Categories via Deep Transfer Clustering, ICCV 2019",
        terms=terms,
        frozen=(),
        moving_statistics=True,
        design=Design(novel="centres", readout=HeadProbabilities()),
        course=Course(
            epochs=WARM_UP + 100,
            warm_up=WARM_UP,
            learning_rate=0.05,
            drops=tuple(WARM_UP + epoch for epoch in (40, 60, 80)),
            drop_factor=0.5,
            batch="stage one",
            reflects=True,
        ),
        start="k-means",
    )


CLUSTERING = Clustering(weight=1.0, warm_up=WARM_UP)
DTC = (
    dtc(
        "dtc",
        "clustering that starts from k-means; consistency of two views (PI); concatenated heads",
        CLUSTERING,
        ClusterConsistency(weight=10.0, ramp=5, start=WARM_UP),
    ),
    dtc(
        "dtc-te",
        "DTC with consistency to each image's mean prediction over the epochs (TE)",
        CLUSTERING,
        ClusterConsistency(weight=10.0, ramp=5, start=WARM_UP, target="ensemble"),
    ),
    dtc(
        "dtc-tep",
        "DTC with targets from each image's mean prediction over the epochs (TEP)",
        replace(CLUSTERING, momentum=0.6),
    ),
)


FD, FR, ST = "feature-distillation", "replay", "self-training"
"""terms of FRoST, by the paper's letters"""


def ablation(
    name: str,
    summary: str,
    *left_out: str,
    replay: Replay | None = None,
    more: tuple[Term, ...] = (),
    design: Design = FROST.design,
) -> Method:
    """FRoST with the weights of some terms set to 0; another replay, more terms or another design where given."""
    terms = [replace(term, weight=0.0) if term.kind in left_out else term for term in FROST.terms]
    if replay is not None:
        terms = [replay if term.kind == FR else term for term in terms]
    return replace(FROST, name=name, summary=f"ablation: {summary}", terms=(*terms, *more), design=design)


def lwf(form: Literal["softmax", "presoftmax"], *, replay: bool) -> Method:
    """FRoST with Learning without Forgetting in the place of feature distillation, and of replay unless asked for."""
    suffix, words, left_out = ("-replay", "", (FD,)) if replay else ("", " and replay", (FD, FR))
    summary = f"FRoST with logit distillation ({form}) in place of feature distillation{words}"
    more = (LogitDistillation(weight=10.0, form=form),)
    return ablation(f"lwf-{form}{suffix}", summary, *left_out, more=more)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        HOARFROST,
        VB_CGCD,
        FREEZE_AND_CLUSTER,
        HAPPY,
        FROST,
        AUTONOVEL,
        RESTUNE,
        NCL,
        NCL_LABELLED,
        *DTC,
        lwf("softmax", replay=False),
        lwf("presoftmax", replay=False),
        lwf("softmax", replay=True),
        lwf("presoftmax", replay=True),
        ablation("joint", "FRoST without a novel head: the joint head clusters", design=Design(novel="joint")),
        ablation(
            "joint-without-st",
            "the joint head alone, without self-training; replay compares earlier classes only",
            ST,
            replay=Replay(weight=1.0, over="earlier"),
            design=Design(novel="joint"),
        ),
        ablation(
            "novel-without-st",
            "concatenated old and novel heads, without self-training",
            ST,
            replay=Replay(weight=1.0, over="labelled"),
            design=Design(readout=HeadLogits()),
        ),
        ablation("frost-without-fd", "FRoST without feature distillation", FD),
        ablation("frost-without-fr", "FRoST without feature replay", FR),
        ablation("frost-without-st", "FRoST without self-training", ST),
        ablation("frost-without-fd-fr", "FRoST without feature distillation and feature replay", FD, FR),
        ablation(
            "frost-without-fd-fr-st", "clustering losses of FRoST only; the joint head is not trained", FD, FR, ST
        ),
        Method(
            name="kmeans",
            summary="reference: k-means of the features, then the nearest class mean; nothing is trained",
            paper=HERE,
            terms=(),
            moving_statistics=True,
            design=Design(readout=ClassMeans()),
            start="k-means",
        ),
        Method(
            name="supervised",
            summary="upper bound: every step trains on all classes so far, with all labels",
            paper=HERE,
            terms=(CrossEntropy(),),
            moving_statistics=True,
            design=Design(novel="joint"),
            supervised=True,
        ),
    )
}


def get_method(name: str) -> Method:
    """The preset of a name, of this package or of another that is installed."""
    method = plugins.find("method", name, METHODS, plugins.METHODS)
    if not isinstance(method, Method) or method.name != name:
        raise InputError(f"the package of the method '{name}' provides no Method of that name: ask its authors")
    return method


def when_fixed(method: Method) -> Mapping[str, Any]:
    """What a method changes where no discovery changes the backbone; of one from a file, the preset's."""
    found = method.when_fixed
    if not found and method.name in plugins.names(METHODS, plugins.METHODS):
        found = get_method(method.name).when_fixed
    # A method that was made of another one may have left terms out.
    terms = [f"method.terms.{term.kind}." for term in method.terms]
    terms += [f"method.stage_one.{term.kind}." for term in method.stage_one]
    of_terms = ("method.terms.", "method.stage_one.")
    return {key: value for key, value in found.items() if key.startswith(tuple(terms)) or not key.startswith(of_terms)}


def all_methods() -> dict[str, Method]:
    """Every preset by its name, those of other packages last."""
    plugins.import_own_files()
    return {name: get_method(name) for name in plugins.names(METHODS, plugins.METHODS)}
