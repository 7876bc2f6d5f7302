"""One case of a run: files, and a command that is given them. A seed and a number make it, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.fuzz.archives import mutated_archive
from tests.fuzz.corpus import Corpus, parent
from tests.fuzz.fleets import VRAM, fleet_file
from tests.fuzz.folders import good_folder, hostile_folder
from tests.fuzz.frames import framed_recipe, preprocessor, takes_pictures
from tests.fuzz.media import MEDIA, media, reader_model
from tests.fuzz.models import mutated
from tests.fuzz.rooms import SECRET, hostile_package, linked, metric_file, project_file, stem
from tests.fuzz.texts import mutated_json, mutated_text
from tests.fuzz.values import TEXTS, integer, spoiled, text

__all__ = ["KINDS", "Case", "make"]

_UNPROVED = ("--set", "parity.cpu=false", "--set", "parity.fp16_emulation=off", "--device", "cpu", "-q")
"""No session is opened: the steps are what is tried."""

_LIMIT = ("--time-limit", "3")

_WEIGHTED = (b"MatMul", b"Gemm", b"Gather")
"""Operators that have weights which may become fewer bits."""

_PINS = ("batch=1", "sequence=16", "length=64", "height=32", "width=32", "N=1", "x:0=1", "input:0=1", "past=4")


@dataclass(frozen=True)
class Case:
    """A command and the files that lie in its folder.

    Attributes:
        kind: what is tried.
        files: contents by name; the first is the one that was mutated.
        command: arguments of ``dmlprep``.
        links: where symbolic links in the folder lead, by their place.
        own: files that the command may replace or remove.
    """

    number: int
    kind: str
    files: dict[str, bytes]
    command: tuple[str, ...]
    links: dict[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()


def make(seed: int, number: int, corpus: Corpus, only: Sequence[str] = ()) -> Case:
    """The case of that number; of these kinds, where they are named."""
    rng = random.Random(f"{seed}:{number}")
    among = [kind for kind in _KINDS if not only or kind in only]
    kind = rng.choices(among, [_KINDS[name][0] for name in among])[0]
    files, command, *more = _KINDS[kind][1](rng, corpus)
    said = tuple(a.replace("\0", "").encode("utf-8", "replace").decode() for a in command)
    return Case(number, kind, files, said, *more)


_Made = (
    tuple[dict[str, bytes], list[str]]
    | tuple[dict[str, bytes], list[str], dict[str, str]]
    | tuple[dict[str, bytes], list[str], dict[str, str], frozenset[str]]
)


def _model(rng: random.Random, corpus: Corpus) -> dict[str, bytes]:
    return {"m.onnx": mutated(rng, parent(rng, corpus.models), rng.choice(corpus.models))}


def _form(rng: random.Random, *forms: str) -> list[str]:
    return ["--format", rng.choice(forms)] if rng.random() < 0.3 else []


def _pins(rng: random.Random) -> list[str]:
    chosen = [rng.choice(_PINS) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    if rng.random() < 0.1:
        chosen.append(f"{text(rng)[:200]}{rng.choice(('=', ':='))}{integer(rng, 80)}")
    return [part for pin in chosen for part in ("--pin", pin)]


def _check(rng: random.Random, corpus: Corpus) -> _Made:
    target = ["--target", rng.choice(("ort-1.15", "ort-1.20", "ort-1.24", "all"))] if rng.random() < 0.2 else []
    return _model(rng, corpus), ["check", "m.onnx", *target, *_form(rng, "json", "sarif")]


def _plan(rng: random.Random, corpus: Corpus) -> _Made:
    recipe = rng.choice(("@static-fp32", "@static-fp32", "@denote-only", "@check-only"))
    return _model(rng, corpus), ["check", "--plan", "m.onnx", "-r", recipe, *_pins(rng), *_form(rng, "json")]


def _steps(rng: random.Random, corpus: Corpus) -> _Made:
    recipe = rng.choice(("@static-fp32", "@static-fp32", "@denote-only", "@check-only"))
    to = ["--set", f"step.opset.version={rng.choice((11, 13, 17, 19, 21, 23, 26))}"] if rng.random() < 0.4 else []
    return _model(rng, corpus), ["prepare", "m.onnx", "-o", "out", "-r", recipe, *_UNPROVED, *to, *_pins(rng)]


def _half(rng: random.Random, corpus: Corpus) -> _Made:
    options = ["--set", "step.fp16.islands=off", "--set", 'step.fp16.allow=["little-gain"]']
    if rng.random() < 0.4:
        options += ["--set", f"step.fp16.keep_io={rng.choice(('true', 'false'))}"]
    if rng.random() < 0.2:
        options += ["--set", f"step.fp16.policy={rng.choice(('fast', 'safe'))}"]
    command = ["prepare", "m.onnx", "-o", "out", "-r", "@vision-fp16"]
    return _model(rng, corpus), [*command, *_UNPROVED, *options, *_pins(rng)]


def _proved(rng: random.Random, corpus: Corpus) -> _Made:
    recipe = rng.choice(("@static-fp32", "@vision-fp16", "@denote-only"))
    # A loop of 2^62 rounds is no fault, and ends at the time limit.
    command = ["prepare", "m.onnx", "-o", "out", "-r", recipe, "--device", "cpu", "--set", "parity.time_limit=3"]
    return _model(rng, corpus), [*command, *_pins(rng)]


def _compared(rng: random.Random, corpus: Corpus) -> _Made:
    other = parent(rng, corpus.models)
    return {**_model(rng, corpus), "o.onnx": other}, ["compare", "o.onnx", "m.onnx", *_LIMIT, *_form(rng, "json")]


def _recipe(rng: random.Random, corpus: Corpus) -> _Made:
    files = {"r.toml": mutated_text(rng, parent(rng, corpus.recipes))}
    if rng.random() < 0.5:
        return files, ["explain", "r.toml", *_form(rng, "json")]
    files["m.onnx"] = rng.choice(corpus.models)
    return files, ["check", "--plan", "m.onnx", "-r", "r.toml", *_form(rng, "json")]


def _record(rng: random.Random, corpus: Corpus) -> _Made:
    html = ["--html", "r.html"] if rng.random() < 0.5 else []
    files = {"run.json": mutated_json(rng, parent(rng, corpus.records))}
    return files, ["report", "run.json", *html, *_form(rng, "json")]


def _bisection(rng: random.Random, corpus: Corpus) -> _Made:
    """The record of a bisection, which has a view of its own."""
    html = ["--html", "r.html"] if rng.random() < 0.7 else []
    return {"run.json": mutated_json(rng, corpus.bisection)}, ["report", "run.json", *html, *_form(rng, "json")]


def _memory(rng: random.Random, corpus: Corpus) -> _Made:
    """How much memory of a device there is, said in many ways, and models whose sizes are no sizes."""
    known = (*VRAM, rng.choice(TEXTS)[:400], str(integer(rng, 80)))
    vram = ["--vram", rng.choice(("1MB", "4GB") if rng.random() < 0.5 else known)]
    if rng.random() < 0.7:
        return _model(rng, corpus), ["check", "m.onnx", *vram, *_form(rng, "json", "sarif")]
    return _model(rng, corpus), ["prepare", "m.onnx", "-o", "out", *_UNPROVED, *vram, *_pins(rng)]


def _fleet(rng: random.Random, corpus: Corpus) -> _Made:
    """A fleet of two small models; most are only planned."""
    planned = rng.random() < 0.7
    files = {
        "dmlprep.toml": fleet_file(rng, few=not planned),
        "m/a.onnx": rng.choice(corpus.models[:20]),
        "m/b.onnx": mutated(rng, parent(rng, corpus.models), rng.choice(corpus.models)),
        "r.toml": rng.choice(corpus.recipes),
    }
    options = ["--only", rng.choice((*TEXTS, "a", "b/*", "[", "m/a.onnx"))[:400]] if rng.random() < 0.1 else []
    options += ["--shard", rng.choice((*TEXTS, "1/2", "2/2", "1/1", "3/2", "0/0"))[:400]] if rng.random() < 0.1 else []
    if planned:
        return files, ["fleet", "--dry-run", *options, *_form(rng, "json")]
    # -o, as the file may name any folder of this machine.
    return files, ["fleet", "-o", "out", "--jobs", "1", *options, *_form(rng, "json")]


def _kit(rng: random.Random, corpus: Corpus) -> _Made:
    kit = rng.choice(corpus.kits)
    result = rng.choice(corpus.results or corpus.kits)
    files = {"result.zip": mutated_archive(rng, result), "kit.zip": kit}
    if rng.random() < 0.5:
        files = {"kit.zip": mutated_archive(rng, kit), "result.zip": result}
    return files, ["kit", "verify", "result.zip", "--kit", "kit.zip", *_form(rng, "json")]


def _feeds(rng: random.Random, corpus: Corpus) -> _Made:
    files = {"f.npz": mutated_archive(rng, parent(rng, corpus.feeds)), "m.onnx": rng.choice(corpus.models)}
    return files, ["compare", "m.onnx", "m.onnx", *_LIMIT, "--feeds", "f.npz"]


def _options(rng: random.Random, corpus: Corpus) -> _Made:
    """A good model and bad options."""
    files = {"m.onnx": rng.choice(corpus.models)}
    word = rng.choice(("check", "check --plan", "prepare"))
    value = rng.choice((text(rng)[:2000], str(integer(rng, 80)), "nan", "[" * 2000, "9" * 5000, "{}", "[1]"))
    fields = (
        "parity.seeds",
        "parity.time_limit",
        "parity.sizes",
        "step.opset.version",
        "step.pin.sizes",
        "step.fp16.x",
        text(rng)[:99],
    )
    given = {
        "check": ["--target", value],
        "check --plan": rng.choice((["--set", f"{rng.choice(fields)}={value}"], ["--pin", value], ["-r", value])),
        "prepare": [
            "-o",
            rng.choice(("out", value, "m.onnx", "out.onnx")),
            *_UNPROVED,
            "--set",
            f"{rng.choice(fields)}={value}",
        ],
    }
    limit = rng.choice(("onnx_seconds", "onnx_bytes", "made_bytes", "made_nodes"))
    most = rng.choice((value, "inf", str(integer(rng, 80)), "16", "0.5"))
    before = ["--limit", f"{limit}={most}"] if rng.random() < 0.3 else []
    return files, [*before, *word.split(), "m.onnx", *given[word]]


def _explain(rng: random.Random, corpus: Corpus) -> _Made:
    node = rng.choice((rng.choice(TEXTS)[:300], "Conv", "n0"))
    return _model(rng, corpus), ["check", "m.onnx", "--node", node]


def _framed(rng: random.Random, corpus: Corpus) -> _Made:
    model = next((m for m in rng.choices(corpus.models, k=8) if takes_pictures(m)), corpus.models[0])
    recipe = framed_recipe(rng, model)
    model = mutated(rng, model, rng.choice(corpus.models)) if rng.random() < 0.3 else model
    files = {"r.toml": recipe, "m.onnx": model, "p.json": preprocessor(rng)}
    # Now and then the CPU proves it, with the pictures that the proof makes.
    proof = _UNPROVED if rng.random() < 0.85 else ("--device", "cpu", "--set", "parity.time_limit=3")
    return files, ["prepare", "m.onnx", "-o", "out", "-r", "r.toml", *proof]


def _run_folder(rng: random.Random, corpus: Corpus) -> _Made:
    """A run's folder that is to be packaged."""
    files = {"run/run.json": mutated_json(rng, parent(rng, corpus.records)), "run/model.onnx": corpus.result}
    if rng.random() < 0.3:
        files = {"run/model.onnx": spoiled(rng, corpus.result), "run/run.json": corpus.records[0]}
    language = rng.choice(("python", "cpp", "csharp", "node"))
    return files, ["package", "pack", "run", "-o", "out", "--for", language, "--unproven", *_form(rng, "json")]


def _package(rng: random.Random, corpus: Corpus) -> _Made:
    """A package of which one file is another, looked at as a package or as an app's folder."""
    name = rng.choice((rng.choice(sorted(corpus.package)), "app/model.json"))
    data = corpus.package[name]
    changed = mutated_json(rng, data) if name.endswith(".json") else spoiled(rng, data)
    files = {name: changed, **{other: held for other, held in corpus.package.items() if other != name}}
    word = ["package", "verify", "app"] if rng.random() < 0.6 else ["doctor", "--app", "app"]
    return files, [*word, *_form(rng, "json")]


def _genai(rng: random.Random, corpus: Corpus) -> _Made:
    """A folder of a language model: mostly checked, now and then prepared, seldom held against a good one."""
    kind = rng.random()
    if kind < 0.04:
        files = {**hostile_folder(rng, corpus.models, corpus.configs, full=True), **good_folder("g")}
        sides = rng.choice((("f", "g"), ("g", "f")))
        prompt = ["--prompt", text(rng)[:400]] if rng.random() < 0.2 else []
        return files, ["genai", "compare", *sides, "--steps", "2", *_LIMIT, "--no-genai", *prompt, *_form(rng, "json")]
    files = hostile_folder(rng, corpus.models, corpus.configs)
    if kind < 0.7:
        vram = ["--vram", rng.choice(("1MB", "4GB", *VRAM))] if rng.random() < 0.3 else []
        return files, ["genai", "check", "f", *vram, *_form(rng, "json", "sarif")]
    options = ["--fallback", "cpu"] if rng.random() < 0.2 else []
    if rng.random() < 0.3:
        options += ["--precision", "int4", *rng.choice(([], ["--set", "step.weights.least=1"]))]
    options += [rng.choice(("--graph-capture", "--no-graph-capture"))] if rng.random() < 0.2 else []
    options += ["--device-index", str(rng.choice((0, 1, 9)))] if rng.random() < 0.1 else []
    return files, ["genai", "prepare", "f", "-o", "out", "--no-proof", "-q", *options, *_form(rng, "json")]


def _force(rng: random.Random, corpus: Corpus) -> _Made:
    """A package that is to replace another one, of which the contract was written by somebody else."""
    files, own = hostile_package(rng, corpus.package)
    files |= {"run/run.json": corpus.records[0], "run/model.onnx": corpus.result}
    links = linked(rng, "app", ["model.onnx", "model.json"]) if rng.random() < 0.2 else {}
    files = {name: held for name, held in files.items() if name not in links}
    if links:
        files["outside/secret.txt"] = SECRET
    word = ["package", "pack", "run", "-o", "app", "--for", "python", "--unproven", "--force"]
    if rng.random() < 0.2:
        word = ["package", "nupkg", "app", "-o", "mine", "--id", "A.B", "--version", "1.0.0"]
    return files, [*word, *_form(rng, "json")], links, own


def _media(rng: random.Random, corpus: Corpus) -> _Made:
    """Pictures, sound, text and arrays for ``dmlprep feeds``."""
    kind = rng.choice(MEDIA)
    files, sources = media(rng, kind, corpus.feeds[0])
    size = (
        ["--size", f"{rng.choice(('samples', 'sequence'))}={rng.choice((1, 16, 400, 2**31))}"]
        if rng.random() < 0.3
        else []
    )
    return {**files, "m.onnx": reader_model(kind)}, ["feeds", "m.onnx", *sources, "-o", "out", "--count", "1", *size]


def _project(rng: random.Random, corpus: Corpus) -> _Made:
    """A project file that lies beside the model."""
    files = {
        "dmlprep.toml": project_file(rng),
        "m.onnx": rng.choice(corpus.models[:20]),
        "measure.py": metric_file(),
        "r.toml": rng.choice(corpus.recipes),
    }
    system = rng.choice(("cmake", "msbuild", "hatch", "github", "pre-commit"))
    commands = (
        ["prepare", "m.onnx", *_UNPROVED],
        ["prepare", "m.onnx", "-q", "--set", "parity.fp16_emulation=off"],
        ["prepare", "-q"],
        ["check", "m.onnx"],
        ["init", "m.onnx", "--yes", "-o", "made.toml", "--for", system],
        ["fleet", "--dry-run"],
    )
    return files, list(rng.choice(commands))


def _links(rng: random.Random, corpus: Corpus) -> _Made:
    """Folders with links, in commands that copy or read all that is in a folder."""
    kind = rng.choice((0, 1, 1, 1, 2, 2, 3))
    if kind == 0:
        files = {**good_folder("f"), "outside/secret.txt": SECRET}
        links = linked(rng, "f", [name.partition("/")[2] for name in files if name.startswith("f/")])
        command = ["genai", "prepare", "f", "-o", "out", "--no-proof", "-q"]
    elif kind == 1:
        files = {"run/run.json": corpus.records[0], "run/model.onnx": corpus.result, "outside/secret.txt": SECRET}
        links = linked(rng, "run", ["run.json", "model.onnx"])
        command = rng.choice(
            (
                ["package", "pack", "run", "-o", "out", "--for", "cpp", "--unproven"],
                ["kit", "run/model.onnx", "-o", "k.zip"],
            )
        )
    elif kind == 2:
        files = {"m.onnx": reader_model("picture"), "p/a.png": b"", "outside/secret.txt": SECRET}
        links = linked(rng, "p", ["a.png", "b.png"])
        command = ["feeds", "m.onnx", "p", "-o", "out", "--count", "1"]
    else:
        files = {"dmlprep.toml": b'device = "cpu"\nsettings = ["parity.cpu=false"]\n[models."m/*.onnx"]\n'}
        files |= {"m/a.onnx": rng.choice(corpus.models[:20]), "outside/secret.txt": SECRET}
        links = linked(rng, "out", ["a", "a/model.onnx", "fleet.json"])
        command = ["fleet", "-o", "out", "--jobs", "1"]
    return {name: held for name, held in files.items() if name not in links}, command, links


def _names(rng: random.Random, corpus: Corpus) -> _Made:
    """A good model whose file has the name that a stranger chose."""
    name = f"{stem(rng)}.onnx"
    held = corpus.models[rng.randrange(min(20, len(corpus.models)))]
    if rng.random() < 0.05:
        table = b'device = "cpu"\nsettings = ["parity.cpu=false"]\n[models."m/*.onnx"]\n'
        files = {"dmlprep.toml": table, f"m/{rng.choice((name, chr(0xDCFF) + '.onnx'))}": held}
        return files, ["fleet", "-o", "out", "--jobs", "1", *_form(rng, "json")]
    place = f"./{name}"
    commands = (
        ["check", place, *_form(rng, "json", "sarif")],
        ["check", "--plan", place, "-r", "@static-fp32"],
        ["prepare", place, "-o", "out", "-r", "@denote-only", *_UNPROVED],
        ["prepare", place, "-o", f"out/{name}", "-r", "@denote-only", *_UNPROVED],
        ["init", place, "--yes", "-o", "made.toml", "--for", rng.choice(("cmake", "msbuild", "github"))],
        ["check", place, "--node", "n0"],
    )
    return {name: held}, list(rng.choice(commands))


def _weights(rng: random.Random, corpus: Corpus) -> _Made:
    """Weights of few bits, of models that have some."""
    model = next((m for m in rng.choices(corpus.models, k=8) if any(op in m for op in _WEIGHTED)), corpus.models[0])
    settings = {
        "bits": rng.choice(("4", "8")),
        "block_size": rng.choice(("16", "32", "64", "256")),
        "symmetric": rng.choice(("true", "false")),
        "last_layer": rng.choice(('"keep"', '"same"', '"8"')),
        "embeddings": rng.choice(("keep", "int8")),
        "keep_nodes": rng.choice(("[]", '["n0"]', json.dumps([rng.choice(TEXTS)[:300]]))),
        "keep_patterns": rng.choice(('[".*"]', '[".*_0"]', "[]", '["(a+)+$"]', '["("]')),
    }
    chosen = rng.sample(sorted(settings), rng.choice((1, 2, 3, 4)))
    # A mutated model is small, and the step leaves small weights alone unless it is told otherwise.
    least = ["--set", f"step.weights.least={rng.choice((1, 1, 1, 64))}"] if rng.random() < 0.9 else []
    options = [part for name in chosen for part in ("--set", f"step.weights.{name}={settings[name]}")]
    command = ["prepare", "m.onnx", "-o", "out", "-r", "@llm-int4", *_UNPROVED, *least, *options]
    files = {"m.onnx": mutated(rng, model, rng.choice(corpus.models))}
    # No pins: the recipe has no step for them.
    return files, [*command, "--set", "step.fp16.islands=off"]


_KINDS: dict[str, tuple[float, Callable[[random.Random, Corpus], _Made]]] = {
    "check": (34, _check),
    "plan": (14, _plan),
    "steps": (20, _steps),
    "fp16": (12, _half),
    "proved": (2, _proved),
    "compare": (1, _compared),
    "recipe": (5, _recipe),
    "record": (4, _record),
    "bisection": (1, _bisection),
    "memory": (4, _memory),
    "fleet": (4, _fleet),
    "kit": (3, _kit),
    "feeds": (1, _feeds),
    "options": (3, _options),
    "explain": (1, _explain),
    "frame": (8, _framed),
    "folder": (2, _run_folder),
    "package": (3, _package),
    "genai": (6, _genai),
    "weights": (4, _weights),
    "force": (3, _force),
    "media": (3, _media),
    "project": (2, _project),
    "links": (2, _links),
    "names": (3, _names),
}

KINDS = tuple(_KINDS)
"""What may be tried."""
