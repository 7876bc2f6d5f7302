"""Folders of somebody else: packages to replace, project files, links that lead out, and files with hostile names."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

from tests.fuzz.texts import mutated_json, mutated_text
from tests.fuzz.values import TEXTS, integer

__all__ = ["CANARY", "SECRET", "hostile_package", "linked", "metric_file", "project_file", "stem"]

SECRET = b"kept-from-all-results-7c1e"
"""The content of a file outside of the folder that a command is given."""

CANARY = "ran.txt"
"""The file that a measure of the folder writes when it runs."""

_NAMES = (
    "..",
    ".",
    "../mine/keep.txt",
    "../../case",
    ".git",
    ".git/config",
    "notes.txt",
    "/etc/passwd",
    "mine",
    "CON",
    "a:b",
    "x\nerror: forged",
    "##vso[task.x]y",
    "x" * 300,
    "model.json",
    "\udcff",
)
_STEMS = (
    "..",
    ".",
    "con",
    "a b",
    "a\nerror: forged",
    "n\n::set-output name=x::y",
    "::error::x",
    "##vso[task.setvariable variable=x]y",
    "##[error]x",
    "\x1b[31mred",
    "\u202egnp",
    ";$(X)%41&",
    "$(id)",
    "`id`",
    "'\"",
    "<b>&amp;",
    "{name}",
    "[a]*?",
    "-o",
    "# heading",
    "é" * 60,
    "x" * 240,
)


def stem(rng: random.Random) -> str:
    """The name of a model's file, without its suffix."""
    return rng.choice(_STEMS)


def hostile_package(rng: random.Random, package: Mapping[str, bytes]) -> tuple[dict[str, bytes], frozenset[str]]:
    """A package in ``app`` that names files which are not its own; and which of its files a new package may replace."""
    files = dict(package)
    contract = json.loads(files["app/model.json"])
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(_NAMES)
        place = rng.randrange(4)
        if place == 0:
            contract["files"][name] = {"bytes": integer(rng, 40), "sha256": rng.choice("0a") * 64}
        elif place == 1:
            contract["model"]["data"] = [name]
        elif place == 2:
            contract["model"]["file"] = name
        else:
            contract["files"] = {name: {"bytes": 1, "sha256": "0" * 64}}
    data = json.dumps(contract).encode("utf-8", "surrogatepass")
    files["app/model.json"] = mutated_json(rng, data) if rng.random() < 0.2 else data
    own = frozenset(files)
    files |= {"app/.git/config": b"[core]\n", "app/notes.txt": b"mine\n", "mine/keep.txt": b"mine\n"}
    return files, own


def project_file(rng: random.Random) -> bytes:
    """The text of a found ``dmlprep.toml``."""
    outs = ("build", "out", ".", "..", "../x", "/etc", "/", "a/../../x", "link", "CON", "a\\b", "", "\x01", "m.onnx")
    values: dict[str, list[str]] = {
        "out": [*outs, *TEXTS[:20]],
        "metric": ["measure.py:count", "measure.py:none", "none.py:x", "/etc/passwd:x", ":", "m.onnx:x"],
        "recipe": ["@static-fp32", "@denote-only", "r.toml", "../r.toml", "@no", "/dev/zero"],
        "target": ["ort-1.24", "ort-1.30", "all", "x"],
        "vram": ["4GB", "0", "x"],
        "device": ["cpu", "cpu", "cpu", "auto"],
    }
    chosen = rng.sample(sorted(values), rng.choice((1, 2, 3)))
    lines = [f"{name} = {_text(rng.choice(values[name])[:400])}" for name in chosen if name != "device"]
    lines.append('device = "cpu"')
    if "metric" in chosen and rng.random() < 0.8:
        lines.append(f"metric_bound = {rng.choice(('1.0', '1e300', 'nan', '-1'))}")
    if rng.random() < 0.3:
        lines.append(f"settings = [{_text(rng.choice(('parity.seeds=1', 'parity.cpu=false', *TEXTS[:12]))[:400])}]")
    if rng.random() < 0.3:
        lines.append(f"pins = {{ {_text(rng.choice(('batch', 'N', *TEXTS[:12]))[:400])} = {integer(rng)} }}")
    if rng.random() < 0.5:
        lines += [f"[models.{_text(rng.choice(('m.onnx', '*.onnx', '../*', '[', '**/*')))}]", 'out = "o"'][
            : rng.choice((1, 2))
        ]
    data = "\n".join(lines).encode("utf-8", "replace") + b"\n"
    return mutated_text(rng, data) if rng.random() < 0.15 else data


def metric_file() -> bytes:
    """A measure that leaves a trace when it is imported, and when it runs."""
    return f"open({CANARY!r}, 'w').close()\n\ndef count(expected, got):\n    return 0.0\n".encode()


def linked(rng: random.Random, folder: str, names: list[str]) -> dict[str, str]:
    """Links below ``folder``: where each leads, by its place."""
    targets = (
        "../outside/secret.txt",
        "../outside",
        "..",
        ".",
        "self",
        "/dev/zero",
        "/dev/null",
        "none",
        "/proc/self/mem",
    )
    links: dict[str, str] = {}
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice((*names, "vocab.txt", "extra.json", "sub"))
        target = "../outside/secret.txt" if rng.random() < 0.5 else rng.choice(targets)
        links[f"{folder}/{name}"] = name if target == "self" else target
    return links


def _text(said: str) -> str:
    return json.dumps(said, ensure_ascii=False).replace("\x7f", "\\u007f")
