"""The page on models of others names the limits that hold."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from dmlprep.api import compare, pack_kit
from dmlprep.core.files.bounded_read import DOCUMENT_BYTES, MAX_DEPTH
from dmlprep.graph.analysis.shapes import CONSTANT_BYTES, FLOAT_BYTES
from dmlprep.graph.model import budget
from dmlprep.passes.simplify import SimplifyOptions
from dmlprep.pipeline.recipe import ParitySettings
from dmlprep.pipeline.recipe.recipe import RECIPE_BYTES
from dmlprep.portable import bounds
from dmlprep.portable.limits import SHARE
from dmlprep.process.allowance import PROCESSORS, allowance
from dmlprep.process.onnx_worker import door
from dmlprep.runtime import SessionOptions
from dmlprep.runtime.tools import onnxsim, reading, tokenizers

PAGE = Path(__file__).parents[1] / "docs" / "foreign-models.md"

MIB, GIB = 1 << 20, 1 << 30
_WORDS = {4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
_SIMPLIFY = SimplifyOptions()


def _rows(heading: str) -> dict[str, str]:
    """The table of a section: the second cell by the first."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]
    return {first: second for first, second, *_ in cells[2:]}


def _default(function: object, name: str) -> object:
    return inspect.signature(function).parameters[name].default  # type: ignore[arg-type]


def test_of_onnx_s_compiled_code() -> None:
    few, more = door.DEFAULT, door.DEFAULT.for_request(MIB)
    a_mib = "each MiB of the model without its weights"
    least = "a sixteenth" if door.DEFAULT.answer * 16 == door.DEFAULT.memory else "another share"
    assert _rows("onnx's compiled code") == {
        "CPU time": f"{few.seconds:g} s, plus {more.seconds - few.seconds:g} s for {a_mib}",
        "wall time": f"{_WORDS[door.PATIENCE]} times the CPU time",
        "memory": f"{few.memory // MIB} MiB, plus {(more.memory - few.memory) // MIB} MiB for {a_mib}",
        "size of the answer": f"{few.answer // MIB} MiB, plus {(more.answer - few.answer) // MIB} times the model "
        f"without its weights; with `onnx_bytes`, at least {least} of that",
    }


def test_of_what_is_made_of_a_model() -> None:
    rows = _rows("What is made of a model")
    assert rows == {
        "`made_bytes`": f"{budget.BYTES // MIB} MiB, plus {budget.BYTES_PER_BYTE} bytes for each byte of the model's "
        "files",
        "`made_nodes`": f"{budget.NODES:,}, plus {budget.NODES_PER_NODE} for each node of the file",
        "`folded_elements`": f"{budget.ELEMENTS:,}",
    }
    of_runs = {"run_bytes", "run_seconds"}
    assert {name.strip("`") for name in rows} == set(budget.Limits.__struct_fields__) - of_runs
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"up to {CONSTANT_BYTES // MIB} MiB of integers or {FLOAT_BYTES >> 10} KiB of floats" in text


def test_of_models_that_run() -> None:
    few, more = allowance(0), allowance(MIB)
    size = "of the model's files and inputs"
    assert _rows("What one run may take") == {
        "memory of the worker": f"{few.nbytes // MIB} MiB, plus {(more.nbytes - few.nbytes) // MIB} bytes for each "
        f"byte {size}",
        f"CPU time, on at most {PROCESSORS} processors": f"{few.seconds:g} s, plus "
        f"{more.seconds - few.seconds:g} s for each MiB {size}",
    }
    small = allowance(100_000 + 640 * 640 * 3 * 4)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"may use {small.nbytes / GIB:.2g} GiB and {small.seconds:.0f} s of CPU time" in text
    assert f"A model of 100 MB may use {allowance(10**8).nbytes / GIB:.0f} GiB" in text


def test_all_limits() -> None:
    sim, onnx = onnxsim, door.DEFAULT
    assert _rows("All limits") == {
        "time of one load or run": f"{SessionOptions().time_limit:g} s",
        "memory and CPU time of one load or run on the CPU": f"{allowance(0).nbytes // MIB} MiB and "
        f"{allowance(0).seconds:g} s, plus more for large models and inputs",
        "memory of a worker and its child processes": f"{100 * SHARE:g} % of the memory of the system or the container",
        "onnxsim": f"{_SIMPLIFY.time_limit:g} s; {sim.MEMORY // GIB} GiB plus {sim.MEMORY_A_BYTE} times the model "
        "without its weights, at most the limit of a worker",
        "onnx's compiled code": f"{onnx.seconds:g} s and {onnx.memory // GIB} GiB, plus more for large models",
        "constants and nodes that dmlprep creates from a model": (
            f"{budget.BYTES // MIB} MiB and {budget.NODES:,} nodes, plus more for large models"
        ),
        "a picture, a sound or a tokenizer that `feeds` and `genai` read": (
            f"{reading.SECONDS:g} s; {reading.MEMORY / GIB:g} GiB plus {tokenizers.MEMORY_A_BYTE} times the size of a "
            "tokenizer"
        ),
        "a kit on the other machine": f"{_default(pack_kit, 'time_limit'):g} s",
        "recipes; records, contracts and configs": (
            f"{RECIPE_BYTES // MIB} MiB; {DOCUMENT_BYTES // MIB} MiB; {MAX_DEPTH} levels deep"
        ),
        "numbers of options and recipes": f"{bounds.MOST_FEEDS:,} feeds, 2^31 - 1 elements in one dimension",
    }
    assert bounds.MOST_SIZE == 2**31 - 1


def test_one_time_limit_holds_wherever_a_model_runs() -> None:
    """Ten minutes of a load, a run or onnxsim, by whichever way they are asked for."""
    limits = {
        "session": SessionOptions().time_limit,
        "recipe": ParitySettings().time_limit,
        "compare": _default(compare, "time_limit"),
        "onnxsim": _default(onnxsim.simplify, "time_limit"),
        "simplify": _SIMPLIFY.time_limit,
    }
    assert limits == dict.fromkeys(limits, 600.0)
