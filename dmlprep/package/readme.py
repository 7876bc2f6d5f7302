"""Write the README of a package: this model's inputs and outputs, an example that fills them, and what to ship."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dmlprep.core.text.markdown import Markdown, code, table, text
from dmlprep.package.contract import CONTRACT, SCHEMA, Bucket, Contract, Proof, Tensor
from dmlprep.package.examples import SHOWN_OUTPUTS, code_sizes, code_text, fill_program
from dmlprep.package.languages import Language, find_language, read_part
from dmlprep.package.meanings import sentence
from dmlprep.portable.shares import percent

_SAMPLE = re.compile(r"[Ss]ample\.(py|cpp|cs|m?js)")
_LOADED = re.compile(r"dmlprep(?!.*\.d\.)")
"""Match the names of the sample, and of the loader's files without those that only describe its types."""

_LOADS_SOURCE = ("node", "python")
"""Languages whose programs load the loader's source."""

_DLLS = "If they are missing, Windows loads older files of these names from System32."
_NEEDED = {
    "cpp": f"Next to the program: `onnxruntime.dll` and `DirectML.dll`, both from one package. {_DLLS}",
    "csharp": "Next to the program: `onnxruntime.dll`, `DirectML.dll` and `Microsoft.ML.OnnxRuntime.dll`, all from one "
    f"package. {_DLLS}",
    "node": "In `node_modules`: `onnxruntime-node` and `onnxruntime-common`.",
    "python": "The packages in `requirements.txt`. They contain `onnxruntime.dll` and `DirectML.dll`.",
}
"""Other files that an app ships, by language."""


def readme(contract: Contract) -> str:
    """Return the README of a package, in Markdown. It has only the parts that apply to the package."""
    return "\n".join(_lines(find_language(contract.language), contract))


def _lines(language: Language, contract: Contract) -> Iterator[str]:
    named = f"{len(contract.buckets)} buckets of one model" if contract.buckets else contract.model.file
    yield f"# {text(named)} for {language.title}\n"
    yield f"Made by {text(contract.made_by)}. `{CONTRACT}` is the contract: the same facts and more, for programs."
    yield f"`{SCHEMA}` is its JSON Schema.\n"
    if contract.unproven:
        yield "**This model was packaged although its run did not prove it:**\n"
        yield from (f"- {text(reason)}" for reason in contract.unproven)
        yield ""
    if contract.buckets:
        yield from _buckets(contract)
    on_gpu = contract.language == "cpp" and all(one.gpu_bytes for one in (*contract.inputs, *contract.outputs))
    yield from _values(contract, on_gpu=on_gpu)
    parts = ["usage", *(["buckets"] if contract.buckets else []), *(["d3d12"] if on_gpu else [])]
    yield _filled("\n".join(read_part(f"{language.folder}/{name}.md") for name in parts), contract)
    yield from _sample(language, contract)
    yield from _shipped(language, contract)
    yield from _needs(contract)
    if contract.original is not None:
        yield read_part("vendors.md")
    yield read_part("rules.md")


def _filled(part: str, contract: Contract) -> str:
    """Return a part of the README with this model's names and sizes instead of the words between ``@``."""
    language, buckets = contract.language, contract.buckets
    named = {"INPUT": contract.inputs, "OUTPUT": contract.outputs}
    values = {word: code_text(tensors[0].name, language) for word, tensors in named.items() if tensors}
    if buckets:
        values["FIRST"], values["LAST"] = (code_sizes(buckets[place].sizes, language) for place in (0, -1))
    return re.sub("@([A-Z]+)@", lambda match: values.get(match[1], match[0]), fill_program(part, contract))


def _values(contract: Contract, *, on_gpu: bool) -> Iterator[str]:
    yield "## Inputs and outputs\n"
    values = [("in", one) for one in contract.inputs] + [("out", one) for one in contract.outputs]
    head = ["", "name", "type", "shape", "layout", "bytes", *(["bytes of a GPU buffer"] if on_gpu else [])]
    yield from table(head, (_value(kind, one)[: len(head)] for kind, one in values))
    yield ""
    items = [f"- {code(one.name)}: {about}." for _, one in values if (about := sentence(one))]
    if items:
        yield from (*items, "")
    if contract.fixed and not contract.buckets:
        fixed = ", ".join(f"{code(name)} = {size}" for name, size in contract.fixed.items())
        yield f"Fixed when the model was prepared: {fixed}. For other sizes, prepare the model again.\n"


def _value(kind: str, one: Tensor) -> list[Markdown]:
    sizes = ("" if size is None else size for size in (one.bytes, one.gpu_bytes))
    return [text(kind), code(one.name), *map(text, (one.type, _shape(one.shape), one.layout, *sizes))]


def _shape(sizes: Sequence[int | str]) -> str:
    return " x ".join(map(str, sizes)) or "scalar"


def _sample(language: Language, contract: Contract) -> Iterator[str]:
    yield "## What the sample prints\n"
    sample = next(name for name in language.files() if _SAMPLE.fullmatch(name))
    outputs = contract.sample
    if not outputs:
        yield f"`{sample}` does not compare its outputs: {text(contract.sample_missing)}.\n"
        return
    yield f"`{sample}` fills the inputs with fixed numbers. On the CPU, the outputs then begin with:\n"
    for one in outputs[:SHOWN_OUTPUTS]:
        numbers = ", ".join(f"{number:.6g}" for number in one.first) or "empty"
        differs = "not compared" if one.allowed is None else f"difference up to {one.allowed:g}"
        yield f"- {code(one.name)} ({_shape(one.shape)}): {numbers} ({differs})"
    if any(one.allowed is not None for one in outputs):
        yield "\nThe sample compares its numbers with these. It prints `as expected`, or ends with exit code 1.\n"
    else:
        yield "\nRounding can change these numbers a lot, so the sample does not compare them.\n"


def _shipped(language: Language, contract: Contract) -> Iterator[str]:
    yield "## What to ship\n"
    loaded = [name for name in language.files() if _LOADED.match(name)] if contract.language in _LOADS_SOURCE else []
    # A loader in a folder is shipped as a folder.
    loader = dict.fromkeys(folder + slash for folder, slash, _ in (name.partition("/") for name in loaded))
    yield f"- In one folder: {', '.join(map(code, (*contract.shipped_files, *loader)))}."
    yield f"- {_NEEDED[contract.language]}\n"


def _needs(contract: Contract) -> Iterator[str]:
    target = contract.target
    yield "## What it needs\n"
    yield f"- {text(target.lowest_windows)} or newer, and a GPU with Direct3D 12."
    yield f"- ONNX Runtime {target.lowest_onnxruntime} or newer with DirectML {target.lowest_directml} or newer."
    yield f"  It was made for {target.onnxruntime} with DirectML {target.directml} (level {target.feature_level})."
    if target.nodes:
        yield f"- By prediction, {target.nodes_on_directml} of {target.nodes} nodes run on DirectML."
    yield ""
    yield "## What was proved\n"
    for proof in contract.proof:
        reason = f": {text(proof.reason)}" if proof.reason else ""
        yield f"- {text(proof.check)}: {text(proof.outcome)}{reason}{_difference(proof)}"
        if proof.device:
            yield f"  ({text(proof.device)}; tolerance {text(proof.tolerance)})"
    yield ""
    if contract.removed:
        yield f"Removed after the proof: {text(contract.removed)}. The graph and the weights are the same.\n"


def _difference(proof: Proof) -> str:
    """Return a sentence about the largest difference from the original; empty without a measurement."""
    if proof.worst is None:
        return ""
    if proof.worst == 0:
        return ". Its numbers are equal to those of the original."
    allowed = "" if proof.allowed is None else f" (allowed: {_share(proof.allowed)})"
    return (
        f". The largest difference from the original was {_share(proof.worst)} of the output's largest number{allowed}."
    )


def _share(share: float) -> str:
    """Return a share in percent as text: ``0.06 %``, ``12 %``, ``less than 0.01 %``."""
    return percent(share, 0 if share >= 0.1 else 2) if share >= 1e-4 else "less than 0.01 %"


def _buckets(contract: Contract) -> Iterator[str]:
    yield "## Buckets\n"
    yield "Each is a model of fixed sizes; all read the same weights. The rest of this page describes the first one.\n"
    yield from table(("bucket", "file", "shapes of the inputs", "worst relative error"), map(_bucket, contract.buckets))
    yield ""


def _bucket(one: Bucket) -> list[Markdown]:
    shapes = Markdown(", ".join(f"{code(value.name)} {text(_shape(value.shape))}" for value in one.inputs))
    worst = max((proof.worst for proof in one.proof if proof.worst is not None), default=None)
    return [text(one.name), code(one.model.file), shapes, text("" if worst is None else f"{worst:.2g}")]
