"""Packages that others import for what is hardly ever asked of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "bert_encoder.onnx"


def said(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_model_with_names_of_sizes_is_read_without_sympy() -> None:
    code = f"""
import sys
from pathlib import Path
from dmlprep.pipeline import prepare
import dmlprep
dmlprep.plan_model({str(MODEL)!r}, pins={{"batch": 1}})
print("sympy.core" in sys.modules)
"""
    assert said(code) == "False"


@pytest.mark.parametrize(
    "use",
    [
        "import sympy; print(sympy.Symbol('n') + 1)",
        pytest.param("from sympy import Symbol; print(Symbol('n') + 1)", marks=pytest.mark.slow),
        pytest.param("import sympy.core.symbol; print(sympy.core.symbol.Symbol('n') + 1)", marks=pytest.mark.slow),
        pytest.param("import onnx_ir; print(onnx_ir.SymbolicDim('n') + 1)", marks=pytest.mark.slow),
        "import onnx_ir, sympy; print(onnx_ir.SymbolicDim(sympy.Symbol('n')) + 1)",
    ],
)
def test_who_uses_it_has_it(use: str) -> None:
    assert said(f"import dmlprep; {use}") == "n + 1"


def test_what_was_loaded_before_stays() -> None:
    assert said("import sympy; before = sympy; import dmlprep, sys; print(sys.modules['sympy'] is before)") == "True"


def test_onnx_ir_is_found_as_ever() -> None:
    code = """
import sys
before = list(sys.meta_path)
import dmlprep, onnx_ir
from importlib.resources import files
print(sys.meta_path == before, files(onnx_ir).joinpath("_core.py").is_file(), [m for m in sys.modules if "sympy" in m])
"""
    assert said(code) == "True True []"


def test_who_asks_from_two_threads_has_one_package() -> None:
    code = """
import dmlprep, onnx_ir, sys, threading
found = []
threads = [threading.Thread(target=lambda: found.append(onnx_ir.SymbolicDim("n") + 1)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
import sympy.core.symbol
print(len(found), type(found[0]._expr.args[1]) is sympy.core.symbol.Symbol)
"""
    assert said(code) == "4 True"


def test_the_command_line_starts_without_what_commands_need() -> None:
    code = """
import sys
from dmlprep.cli.main import command_line
sys.argv = ["dmlprep", "--version"]
try:
    command_line()
except SystemExit:
    heavy = ("dmlprep.api", "dmlprep.record", "dmlprep.pipeline", "msgspec", "numpy", "onnx", "rich", "secrets")
    print([name for name in heavy if name in sys.modules])
"""
    assert said(code).splitlines()[-1] == "[]"


def test_a_room_is_imported_without_the_api() -> None:
    assert said("import sys; from dmlprep import core; print('dmlprep.api' in sys.modules)") == "False"


def test_the_package_lists_and_exports_the_api() -> None:
    code = """
import dmlprep
names = dir(dmlprep)
from dmlprep import *
from dmlprep import api
exported = set(api.__all__) <= {*names} & {*globals()}
print(exported, prepare is api.prepare, dmlprep.api is api, hasattr(dmlprep, "nothing"))
"""
    assert said(code) == "True True True False"
