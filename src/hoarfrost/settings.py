"""A configuration as JSON and as dotted settings; unknown keys are errors.

``--set method.terms.replay.per_class=5`` on the command line and ``config.json`` in a run folder use the same keys.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from hoarfrost import plugins
from hoarfrost.config import Config
from hoarfrost.errors import InputError, Missing, require, unknown
from hoarfrost.losses.terms import Term, derived_from

T = TypeVar("T")

VERSION = 3
"""of configurations in JSON; it grows where a key is renamed or means something else"""


def _from_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """The batch statistics of frozen parts always moved; some files have a course, although it was applied already."""
    method = content.get("method")
    if not isinstance(method, dict):  # refused where it is decoded
        return content
    kept = {key: value for key, value in method.items() if key != "course"}
    return {**content, "method": {"moving_statistics": True, **kept}}


def _from_version_2(content: dict[str, Any]) -> dict[str, Any]:
    """NCL's contrast could mix negatives with features that a replay term drew for it alone."""
    method = content.get("method")
    terms = method.get("terms") if isinstance(method, dict) else None
    contrast = terms.get("contrast") if isinstance(terms, dict) else None
    if not (isinstance(method, dict) and isinstance(terms, dict) and isinstance(contrast, dict)):
        return content
    require(
        not contrast.get("hard_negatives"),
        "hard_negatives were removed from hoarfrost: fit the model again without them",
    )
    kept = {key: value for key, value in contrast.items() if key not in ("hard_negatives", "mixed", "kept")}
    others = {
        kind: term
        for kind, term in terms.items()
        if kind != "replay" or not isinstance(term, dict) or term.get("weight") != 0
    }
    return {**content, "method": {**method, "terms": {**others, "contrast": kept}}}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_version_1, 2: _from_version_2}
"""for each earlier version, what makes the next one of it"""


def migrated(content: dict[str, Any]) -> dict[str, Any]:
    """A configuration as it was written, by this version or an earlier one, with the keys of this one."""
    content = dict(content)
    version = content.pop("version", 1)
    require(
        isinstance(version, int) and 1 <= version <= VERSION,
        f"the configuration has version {version}; this hoarfrost reads 1 to {VERSION}: update hoarfrost",
    )
    for number in range(version, VERSION):
        content = MIGRATIONS[number](content)
    return content


def to_json(value: Any) -> Any:
    """Dataclasses, tuples and plain values for ``json``; a tuple of terms is an object keyed by their kinds.

    What is not compared is not written.
    """
    if dataclasses.is_dataclass(value):
        content = {"version": VERSION} if isinstance(value, Config) else {}
        content |= {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value) if f.compare}
        kind = getattr(value, "kind", None)
        return content if kind is None else {"kind": kind, **content}
    if isinstance(value, tuple):
        if value and all(isinstance(item, Term) for item in value):
            return {item.kind: {k: v for k, v in to_json(item).items() if k != "kind"} for item in value}
        return [to_json(item) for item in value]
    return value


def from_json(expected: type[T], content: Any, where: str = "") -> T:
    """The inverse of ``to_json``. Missing keys take their defaults; unknown ones and wrong types are errors."""
    return typing.cast(T, _decode(expected, content, where))


def filled(content: Any) -> Any:
    """A configuration in JSON with the defaults of what was not there yet when it was written."""
    try:
        return to_json(from_json(Config, content))
    except InputError:
        return content


def override(config: Config, changes: Mapping[str, Any]) -> Config:
    """A copy of the configuration with dotted keys changed: ``{"discover.epochs": 3}``.

    With the epochs of a stage its drops and ramps are stretched, but for those that are changed too.
    """
    if "version" in changes:
        raise InputError("version is the version of the file format: leave it as it is")
    for key in ("method", "method.name", "method.supervised", "method.labelled_images"):
        if key in changes:
            raise InputError(f"{key} is fixed by the preset: choose another one with --method")
    if any(key.startswith(("method.course", "method.fit_course")) for key in changes):
        raise InputError("method.course is already applied: set discover instead, as in discover.learning_rate=0.05")
    epochs = {stage: changes.get(f"{stage}.epochs") for stage in ("fit", "discover")}
    config = config.with_epochs(**{stage: count for stage, count in epochs.items() if _is_count(count)})
    content, when_fixed = to_json(config), config.method.when_fixed
    changes = {_with_kind(content, key, value): value for key, value in changes.items()}
    kinds = tuple(key.removesuffix("kind") for key in changes if key.split(".")[-1] == "kind")
    # Another kind has other keys: it comes before these, with their defaults.
    for key in sorted(changes, key=lambda key: (key.startswith(kinds), key.split(".")[-1] != "kind")):
        *path, last = key.split(".")
        place = content
        for depth, name in enumerate(path):
            place = _descend(place, name, ".".join(path[:depth]))
        _descend(place, last, ".".join(path))
        if last == "kind":
            place.clear()
        place[last] = changes[key]
        if last == "kind":
            content = to_json(from_json(Config, content))
    config = from_json(Config, content)
    open_ = [name for name in config.undecided if not any(f"{key}.".startswith(f"{name}.") for key in changes)]
    open_ = [name for name in open_ if not name.startswith(kinds)]  # which another kind need not have
    method = dataclasses.replace(config.method, when_fixed=when_fixed)
    return dataclasses.replace(config, method=method, undecided=tuple(open_))


def changes(config: Config, wanted: Config) -> dict[str, Any]:
    """The settings that ``override`` makes the other configuration with; none for what its images are to decide.

    >>> from hoarfrost.methods import FROST
    >>> config = Config(method=FROST)
    >>> changes(config, override(config, {"fit.epochs": 3, "precision": "fp32"}))["precision"]
    'fp32'
    """
    before, after, found = to_json(config), to_json(wanted), dict[str, Any]()
    for stage in ("fit", "discover"):  # these change other settings too
        if before[stage]["epochs"] != after[stage]["epochs"]:
            found[f"{stage}.epochs"] = after[stage]["epochs"]
    before = to_json(override(config, found))
    found |= {key: value for key, value in _differences(before, after, "").items() if key != "undecided"}
    # Said once more, though it is as before: what is set is not left open.
    for name in {*config.undecided} - {*wanted.undecided}:
        if not any(f"{key}.".startswith(f"{name}.") for key in found):
            found[name] = _at(after, name)
    open_ = tuple(f"{name}." for name in wanted.undecided)
    return {key: value for key, value in found.items() if not f"{key}.".startswith(open_)}


def _differences(before: Any, after: Any, where: str) -> dict[str, Any]:
    """Dotted keys and values of what is another in the second content."""
    if before == after:
        return {}
    both = isinstance(before, dict) and isinstance(after, dict)
    if not both or before.keys() != after.keys() or before.get("kind") != after.get("kind"):
        return {where: after}
    inside = f"{where}." if where else ""
    return {k: v for key in after for k, v in _differences(before[key], after[key], f"{inside}{key}").items()}


def _at(content: Any, key: str) -> Any:
    for name in key.split("."):
        content = content[name]
    return content


def _with_kind(content: Any, key: str, value: Any) -> str:
    """The key of a change; a name where something of some kind stands means another kind of it."""
    for name in key.split("."):
        content = content.get(name) if isinstance(content, dict) else None
    return f"{key}.kind" if isinstance(value, str) and isinstance(content, dict) and "kind" in content else key


def _is_count(value: object) -> bool:
    """Whether it is a number of epochs; what is not is refused where it is decoded."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def parse_setting(text: str) -> tuple[str, Any]:
    """``key=value`` as written on a command line; the value is JSON where it can be, and text where not.

    >>> parse_setting("discover.epochs=3"), parse_setting("views=separate")
    (('discover.epochs', 3), ('views', 'separate'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"'{text}' is not of the form KEY=VALUE")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):  # also what Python does not read: thousands of digits, or of brackets
        return key, value


def _descend(place: Any, name: str, where: str) -> Any:
    if not isinstance(place, dict):
        raise InputError(f"config key '{where}' has no keys below it: set '{where}' itself")
    if name not in place:
        raise unknown("config key", f"{where}.{name}" if where else name, _beneath(place, where))
    return place[name]


def _shown(content: Any) -> str:
    return json.dumps(content, default=repr)


def _beneath(place: Mapping[str, Any], where: str) -> list[str]:
    return [f"{where}.{key}" if where else key for key in place]


def _decode(expected: Any, content: Any, where: str) -> Any:
    if isinstance(content, np.generic):
        content = content.item()
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is Literal:
        if content not in arguments:
            raise unknown(where, str(content), [str(choice) for choice in arguments])
        return content
    if origin in (types.UnionType, typing.Union):
        if content is None and types.NoneType in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _decode(inner, content, where)
    if origin is tuple:
        return _decode_tuple(arguments, content, where)
    if dataclasses.is_dataclass(expected):
        return _decode_dataclass(expected, content, where)
    if isinstance(content, int) and abs(content) >= 2**63:
        raise InputError(f"{where} must be a smaller number")
    if expected is float and isinstance(content, int) and not isinstance(content, bool):
        return float(content)
    if isinstance(content, float) and not math.isfinite(content):
        raise InputError(f"{where} must be a number, not {content}")
    if not isinstance(content, expected) or (isinstance(content, bool) and expected is not bool):
        raise InputError(f"{where} must be of type {expected.__name__}, not {_shown(content)}")
    return content


def _decode_tuple(arguments: tuple[Any, ...], content: Any, where: str) -> tuple[Any, ...]:
    inner = arguments[0]
    if inner is Term and isinstance(content, dict):
        for kind, rest in content.items():
            require(isinstance(rest, dict), f"{where}.{kind} must be an object, not {_shown(rest)}")
        content = [{"kind": kind, **rest} for kind, rest in content.items()]
    if not isinstance(content, list | tuple):
        raise InputError(f"{where} must be a list, not {_shown(content)}")
    if arguments[-1] is not Ellipsis and len(content) != len(arguments):
        raise InputError(f"{where} must have {len(arguments)} values, not {len(content)}")
    return tuple(_decode(inner, item, f"{where}[{index}]") for index, item in enumerate(content))


def _kinds(expected: Any) -> dict[str, Any]:
    """What a kind of something may be called, and its class."""
    return {kind.kind: kind for kind in (expected, *derived_from(expected)) if "kind" in vars(kind)}


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a class's fields, which Python would read anew from text each time."""
    return typing.get_type_hints(kind)


def _decode_dataclass(expected: Any, content: Any, where: str) -> Any:
    if isinstance(content, str) and hasattr(expected, "kind"):
        content = {"kind": content}
    if not isinstance(content, dict):
        raise InputError(f"{where or expected.__name__} must be an object, not {_shown(content)}")
    content = migrated(content) if expected is Config else dict(content)
    if hasattr(expected, "kind") or expected is Term:
        kind, kinds = str(content.pop("kind", "")), _kinds(expected)
        if kind not in kinds and expected is Term:
            plugins.load_all(plugins.METHODS)  # another package may bring it
            kinds = _kinds(expected)
        if kind not in kinds:
            raise Missing(str(unknown(f"kind in {where}", kind, kinds)))
        expected = kinds[kind]
    hints = _hints(expected)
    names = [f.name for f in dataclasses.fields(expected)]
    for key in content:
        if key not in names:
            raise unknown("config key", f"{where}.{key}" if where else key, _beneath(dict.fromkeys(names), where))
    missing = [
        f.name
        for f in dataclasses.fields(expected)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in content
    ]
    if missing:
        raise InputError(f"config key '{where + '.' if where else ''}{missing[0]}' is missing")
    return expected(**{k: _decode(hints[k], v, f"{where}.{k}" if where else k) for k, v in content.items()})
