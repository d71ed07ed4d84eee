"""Arguments that cannot be used."""

from __future__ import annotations

import pytest
import torch

from .place import DISCOVER, FIT, PREDICT, RUN, Place, Words, named

ARGUMENTS: list[tuple[Words, Words]] = [
    (("discovr", "model"), ("'discovr'", "'discover'")),
    (("--versin",), ("'--versin'", "'--version'")),
    (("fit",), ("DIR", "--out")),
    (("predict", "model2"), ("DIR",)),
    ((*PREDICT, "more"), ("'more'",)),
    ((*PREDICT, "--jsn"), ("'--jsn'", "'--json'")),
    ((*FIT, "--out", "x" * 240), ("--out", "xxx…", "too long")),
    ((*RUN, "--epoch", "3"), ("'--epoch'", "'--epochs'")),
    (("run", "--datset", "digits", "--out", "made"), ("--dataset",)),
    ((*FIT, "--method", "frots"), ("method", "'frots'", "'frost'")),
    ((*RUN, "--method", "zzz"), ("method", "'zzz'", "frost", "choose from")),
    ((*RUN, "--dataset", "cifar-10"), ("data set", "'cifar-10'", "'cifar10'")),
    ((*RUN, "--dataset", "mnist"), ("data set", "'mnist'", "digits", "choose from")),
    ((*FIT, "--device", "cdua"), ("device", "'cdua'", "'cuda'")),
    ((*PREDICT, "--device", "tpu:0:1"), ("device", "'tpu:0:1'")),
    ((*FIT, "--backbone", "resnet81"), ("backbone", "'resnet81'", "'resnet18'")),
    ((*RUN, "--class-order", "natrual"), ("class order", "'natrual'", "'natural'")),
    ((*RUN, "--split", "3-3"), ("'3-3'", "6", "5")),
    ((*RUN, "--split", "5"), ("'5'", "5-5")),
    ((*RUN, "--split", "1-4"), ("'1-4'", "2")),
    ((*RUN, "--split", "5-0"), ("'5-0'", "1")),
    ((*RUN, "--split", "3--2"), ("'3--2'", "5-5")),
    ((*RUN, "--split", "3-x"), ("'3-x'", "5-5")),
    ((*RUN, "--split=-3-8"), ("'-3-8'", "5-5")),
    ((*RUN[:5], *RUN[7:]), ("--split",)),
    ((*FIT, "--epochs", "0"), ("epochs", "0")),
    ((*DISCOVER, "--epochs", "-2"), ("epochs", "-2")),
    ((*RUN, "--fit-epochs", "0"), ("epochs", "0")),
    ((*RUN, "--epochs", "many"), ("--epochs", "'many'")),
    ((*FIT, "--seed", "x"), ("--seed", "'x'")),
    ((*RUN, "--seed", "-1", "--class-order", "seeded"), ("seed", "-1")),
    ((*FIT, "--image-size", "4"), ("image size", "4", "8")),
    ((*FIT, "--image-size", "-4"), ("image size", "-4", "8")),
    ((*FIT, "--image-size", "1000000000"), ("image size", "1000000000", "4096")),
    ((*FIT, "--seed", "1" + "0" * 30), ("seed", "2**63")),
    ((*DISCOVER, "--novel", "0"), ("new classes", "0")),
    ((*DISCOVER, "--novel", "-1"), ("new classes", "-1")),
    ((*DISCOVER, "--novel", "two"), ("--novel", "'two'")),
    ((*DISCOVER, "--novel", "17"), ("16 images", "17 new classes")),
    (("evaluate", "model", "model2"), ("model2",)),
]


@pytest.mark.parametrize(("arguments", "words"), named(ARGUMENTS))
def test_arguments_that_cannot_be_used(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_there(place: Place, device: str) -> None:
    place.refused(*FIT, "--device", device, words=(f"'{device}'", "no GPU", "--device cpu"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("fit.epochs", ("'fit.epochs'", "KEY=VALUE")),
        ("=3", ("'=3'", "KEY=VALUE")),
        ("fit.epoch=3", ("'fit.epoch'", "'fit.epochs'")),
        ("method.terms.reply.weight=1", ("'method.terms.reply'", "'method.terms.replay'")),
        ("learning_rate=3", ("'learning_rate'", "choose from")),
        ("fit.epochs.x=3", ("fit.epochs",)),
        ("fit.epochs=1.5", ("fit.epochs", "int", "1.5")),
        ("fit.epochs=", ("fit.epochs", "int")),
        ("fit.epochs=true", ("fit.epochs", "int", "true")),
        ("fit.epochs=0", ("epochs", "0")),
        ("fit.batch_size=-1", ("batch_size", "-1")),
        ("fit.learning_rate=fast", ("fit.learning_rate", "float", "fast")),
        ("fit.learning_rate=NaN", ("learning_rate",)),
        ("fit.learning_rate=Infinity", ("learning_rate",)),
        ("fit.learning_rate=1e308", ("learning_rate", "1e+308", "1e+30")),
        ("fit.learning_rate=1" + "0" * 400, ("learning_rate", "smaller")),
        ("fit.drop_factor=1e308", ("drop_factor", "1e+308")),
        ("fit.warm_up_rate=1e308", ("warm_up_rate", "1e+308")),
        ("fit.weight_decay=1e308", ("weight_decay", "1e+308")),
        ("fit.epochs=9223372036854775808", ("epochs", "smaller")),
        ("image_size=1000000000", ("image size", "1000000000")),
        ("method.terms.replay=3", ("method.terms.replay", "object")),
        ("method.terms.replay.per_class=9223372036854775807", ("per_class", "9223372036854775807")),
        ("fit.momentum=-1", ("momentum", "-1")),
        ("fit.weight_decay=-1", ("weight_decay", "-1")),
        ("fit.drops=5", ("fit.drops", "list")),
        ("fit=3", ("fit", "object")),
        ("method=frost", ("method", "--method")),
        ("views=both", ("views", "'both'", "'together'")),
        ("fit_augment.rotate=NaN", ("rotate",)),
        ('fit_augment={"kind": "corp"}', ("'corp'", "'crop'")),
        ('fit_augment={"kind": "crop", "pad": -3}', ("pad", "-3")),
        ("image_size=-5", ("image size", "-5")),
        ("backbone=resnet", ("backbone", "'resnet'", "'resnet18'")),
        ('method.frozen=["stage7"]', ("'stage7'",)),
    ],
)
@pytest.mark.parametrize("command", [FIT, RUN], ids=["fit", "run"])
def test_settings_that_cannot_be_used(place: Place, command: Words, setting: str, words: Words) -> None:
    place.refused(*command, "--set", setting, words=words)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("backbone=resnet18", ("backbone",)),
        ("image_size=null", ("image_size",)),
        ("mean=null", ("mean",)),
        ("mean=[0.5, 0.5, 0.5]", ("mean",)),
        ("method.terms.replay.per_class=-1", ("per_class", "-1")),
        ("method.terms.replay.per_class=0", ("per_class", "0")),
        ("method.terms.pairwise.weight=NaN", ("weight",)),
        ("method.terms={}", ("terms",)),
        ('method.frozen=["stage7"]', ("'stage7'",)),
    ],
)
def test_settings_that_do_not_suit_the_model(place: Place, setting: str, words: Words) -> None:
    place.refused(*DISCOVER, "--set", setting, words=words)
