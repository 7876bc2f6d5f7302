"""Files of fleets: tables that mean something with values that do not, and what a fleet must leave whatever it read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from dmlprep.portable.printable import printable
from tests.fuzz.texts import mutated_text
from tests.fuzz.values import DOUBLES, TEXTS, integer, text

__all__ = ["VRAM", "fleet_file", "fleet_left"]

VRAM = (
    "4GB",
    "800 MB",
    "4GiB",
    "0",
    "-1",
    "0GB",
    "1e400GB",
    "1e3MB",
    "nan",
    "inf GB",
    "0x10",
    "1_000",
    "4gb",
    "4 G B",
    "\u0664GB",
    ".5GB",
    "5.GB",
    "9" * 400,
    "9" * 5000 + "GB",
    "1" + "0" * 18 + "GiB",
    "GB",
    "4TB",
    "4GB\nerror: forged",
)
"""What somebody may take for the memory of a device."""

_PATTERNS = (
    "m/*.onnx",
    "m/a.onnx",
    "m/b.onnx",
    "**/*.onnx",
    "**/**/*.onnx",
    "./m/../m/a.onnx",
    "m/[ab].onnx",
    "m/[",
    "*",
    "m",
    "../*/m/a.onnx",
    "m/A.onnx",
    "m//b.onnx",
)
_TARGETS = ("ort-1.24", "ort-1.30", "1.24", "ort-1.15", "all", "ort-9.9", "")
_RECIPES = (
    "@static-fp32",
    "@denote-only",
    "@check-only",
    "@vision-fp16",
    "@no",
    "r.toml",
    "m/a.onnx",
    "none.toml",
    "@",
)
_PINS = ("batch", "height", "sequence", "N", "x:0", "x:", "input:0", "sr:")
_SIZES = ("small", "large", "a", "A", "..", "CON", "a/b", ".x", "", "x" * 65, "1")
_RULES = ("model", "recipe", "target", "size")


def fleet_file(rng: random.Random, *, few: bool = False) -> bytes:
    """The text of a ``dmlprep.toml`` for the models ``m/a.onnx`` and ``m/b.onnx``.

    Args:
        few: at most one axis, so that a fleet that is run ends within the seconds of a case.
    """
    axes = {"recipes", "targets", "sizes"}
    left_out = axes - {rng.choice(sorted(axes))} if few else set()
    lines = ['device = "cpu"', *_fields(rng, rng.choice((0, 0, 1, 2)), left_out)]
    if rng.random() < 0.8:
        lines.append('settings = ["parity.cpu=false", "parity.fp16_emulation=off"]')
    for pattern in dict.fromkeys(_one(rng, _PATTERNS, 7) for _ in range(rng.choice((1, 1, 2, 3)))):
        not_here = {"out"} if rng.random() < 0.98 else set()
        lines += [f"[models.{_text(pattern)}]", *_fields(rng, rng.choice((0, 1, 2, 4)), left_out | not_here)]
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 2))):
        lines.append("[[exclude]]")
        lines += [f"{name} = {_patterns(rng)}" for name in rng.sample(_RULES, rng.choice((0, *[1, 1, 2] * 6)))]
    data = "\n".join(lines).encode("utf-8", "replace") + b"\n"
    return mutated_text(rng, data) if rng.random() < 0.15 else data


def _fields(rng: random.Random, count: int, left_out: set[str]) -> list[str]:
    makers: dict[str, Callable[[], str]] = {
        "recipe": lambda: _text(_one(rng, _RECIPES, 3)),
        "recipes": lambda: _list(rng, _RECIPES, 3),
        "target": lambda: _text(_one(rng, _TARGETS, 2)),
        "targets": lambda: _list(rng, _TARGETS, 2),
        "pins": lambda: _pins(rng),
        "sizes": lambda: _sizes(rng),
        "vram": lambda: _text(_one(rng, VRAM, 4)),
        "feeds": lambda: _list(rng, ("{name}.npz", "m", "f.npz", "{x}", "x=f.npz", "none", "{name")),
        "require_dml": lambda: rng.choice(("true", "false", "false")),
        "metric": lambda: _text(_one(rng, ("f.py:g", "r.toml:x", ":", "f.py", "none.py:g"))),
        "metric_bound": lambda: str(rng.choice(DOUBLES)),
        "out": lambda: _text(_one(rng, ("out", "m", "m/a.onnx", "."))),
    }
    names = rng.sample(sorted(makers.keys() - left_out), count)
    if rng.random() < 0.9:  # one of the two
        names = [name for name in names if f"{name}s" not in names]
    said = [f"{name} = {makers[name]() if rng.random() < 0.97 else _value(rng)}" for name in names]
    return said if rng.random() < 0.98 else [*said, f"{_text(text(rng)[:300])} = {_value(rng)}"]


def _one(rng: random.Random, known: tuple[str, ...], good: int = 0) -> str:
    """One of ``known``, of which the first ``good`` (all where it is 0) are taken more often; now and then any text."""
    if rng.random() < 0.03:
        return rng.choice(TEXTS)[:400]
    return rng.choice(known[:good] if good and rng.random() < 0.85 else known)


def _list(rng: random.Random, known: tuple[str, ...], good: int = 0) -> str:
    made = (_text(_one(rng, known, good)) for _ in range(rng.choice((0, *[1, 2, 3] * 8))))
    return f"[{', '.join(made if rng.random() < 0.05 else dict.fromkeys(made))}]"


def _patterns(rng: random.Random) -> str:
    known = ("*", "a", "b", "m/*", "small", "ort-1.24", "[", "[!", "**", "a" * 200 + "*" * 50, "*a" * 30)
    return _text(_one(rng, known)) if rng.random() < 0.7 else _list(rng, known)


def _pins(rng: random.Random) -> str:
    count = rng.choice((1, *[1, 1, 2] * 6, 0))
    rows = (f"{_text(_one(rng, _PINS))} = {1 if rng.random() < 0.9 else _value(rng)}" for _ in range(count))
    return f"{{ {', '.join(rows)} }}"


def _sizes(rng: random.Random) -> str:
    names = dict.fromkeys(_one(rng, _SIZES, 3) for _ in range(rng.choice((0, 1, 2, 2, 3))))
    return f"{{ {', '.join(f'{_text(name)} = {_pins(rng)}' for name in names)} }}"


def _value(rng: random.Random) -> str:
    made = (
        str(integer(rng)),
        str(rng.choice(DOUBLES)),
        _text(text(rng)[:400]),
        "[]",
        "{}",
        "true",
        "[[1]]",
        "1979-05-27",
    )
    return rng.choice(made)


def _text(said: str) -> str:
    """As a TOML string: JSON's escapes are TOML's, but for characters that TOML writes with U."""
    return json.dumps(said, ensure_ascii=False).replace("\x7f", "\\u007f")


def fleet_left(out: Path, code: int) -> str:
    """What is wrong with the folder that a fleet left; empty where nothing is."""
    if not (out / "fleet.json").is_file():
        return "" if code in (2, 3) else f"exit code {code} without fleet.json"
    try:
        record = json.loads((out / "fleet.json").read_bytes())
        json.loads((out / "fleet.sarif").read_bytes())
        cases = len(list(ElementTree.parse(out / "junit.xml").iter("testcase")))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        return f"a report that does not read: {type(error).__name__}"
    if record["exit_code"] != code or cases != len(record["jobs"]):
        return "reports that contradict the exit code"
    for job in record["jobs"]:
        if (job["outcome"] == "good") != (out / job["name"] / "model.onnx").is_file():
            return f"a job that is {job['outcome']}, and a result that says otherwise"
        if job["outcome"] == "internal-error":
            return "a job with an internal error"
    there = {path.relative_to(out).parent.as_posix() for path in out.rglob("job.json")}
    names = {job["name"] for job in record["jobs"]}
    return "" if {printable(name) for name in there} <= {printable(name) for name in names} else "a folder of no job"
