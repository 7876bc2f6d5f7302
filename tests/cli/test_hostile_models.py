"""Small files that ask for much: each command ends with a documented exit code, and leaves no half of a result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from fixtures import hostile
from tests.in_process import Done, Run
from tests.kept_workers import kept_workers
from tests.system import not_on_windows

__all__ = ["kept_workers"]

pytestmark = not_on_windows("a hundred commands, each with workers of its own, take minutes under Wine")

_SMALLER: dict[str, Callable[[], onnx.ModelProto]] = {
    "many_folds": lambda: hostile.many_folds(count=1000),
    "generators_range": lambda: hostile.generators("Range", 300),
    "generators_fill": lambda: hostile.generators("ConstantOfShape", 300),
    "generators_expand": lambda: hostile.generators("Expand", 300),
    "generators_tile": lambda: hostile.generators("Tile", 300),
    "bfloat16_casts": lambda: hostile.bfloat16_casts(60),
    "chain_20000": lambda: hostile.chain(1000),
    "chain_on_cpu": lambda: hostile.chain_on_cpu(300),
    "chain_of_casts": lambda: hostile.chain_on_cpu(300, "Cast"),
    "diamonds": lambda: hostile.diamonds(200),
    "shape_diamonds": lambda: hostile.shape_diamonds(100),
    "polynomials": lambda: hostile.polynomials(100),
    "many_inputs": lambda: hostile.many_inputs(1000),
    "many_readers": lambda: hostile.many_readers(1000),
    "many_parts": lambda: hostile.many_parts(2000),
    "many_branches": lambda: hostile.many_branches(100),
    "many_branches_constant": lambda: hostile.many_branches(100, constant=True),
    "long_name": lambda: hostile.long_name(200_000, 3),
    "same_names": lambda: hostile.same_names(200),
}
"""Here the size decides the time alone, a tenth of a millisecond to one for each node and step, and these are enough:
2**200 paths, numbers of 2**100, hundreds of constants of a megabyte."""

_REFUSED = {
    "sparse_10": "--limit made_bytes=",
    "doubling_14": "--limit made_nodes=",
    "doubling_40": "--limit made_nodes=",
    "self_call": "in a cycle",
    "nested_if_32": "nested too deep",
    "nested_loop_32": "nested too deep",
}
"""What the refusal of some says."""

_TAKEN = ("nested_if_30", "nested_if_31", "nested_loop_30", "nested_loop_31", "powers", "running_sum")
"""Those near the limits, which no command refuses."""

_TIGHT = ("--limit", f"onnx_bytes={128 << 20}")
_WORKERS = "600M"
"""What fills the memory until a limit stops it, onnx's inference or onnxsim, is stopped sooner than at 1 GiB."""

_UNPROVED = ("-r", "@static-fp32", "--set", "parity.cpu=false", "--device", "cpu")
"""The proof would run what these models ask for, and a session's own limits end that."""


def _written(name: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_SMALLER.get(name, hostile.MODELS[name])().SerializeToString())
    return path


def _left(folder: Path) -> set[str]:
    """What lies in a folder, hidden files too, besides the model."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {"model.onnx"}


def _ended_well(done: Done, name: str) -> None:
    """It is no bug of ours, and a refusal says how to fix it."""
    said = done.out + done.err
    assert done.code in ((0,) if name in _TAKEN else (1, 2) if name in _REFUSED else (0, 1, 2)), said
    assert "Traceback" not in said
    assert done.code == 0 or "fix: " in said
    assert _REFUSED.get(name, "") in said


_LONG = {
    *("bfloat16_casts", "many_branches", "many_folds", "many_readers", "polynomials", "same_names", "nested_loop_30"),
    *("nested_loop_31", "deep_functions", "generators_expand", "generators_range", "generators_fill", "many_inputs"),
    *("chain_20000", "chain_on_cpu", "diamonds", "long_name", "many_parts"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in _LONG)) for one in hostile.MODELS]
)
def test_check_and_prepare_come_to_an_end(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLPREP_MEMORY_LIMIT", _WORKERS)
    path = _written(name, tmp_path)
    _ended_well(run(*_TIGHT, "check", path), name)
    assert _left(tmp_path) == set()
    done = run(*_TIGHT, "prepare", path, "-o", tmp_path / "out", *_UNPROVED)
    _ended_well(done, name)
    assert _left(tmp_path) == ({"out", "out/model.onnx", "out/run.json"} if done.code == 0 else set())


@pytest.mark.slow
def test_a_chain_of_many_nodes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(hostile.chain(30_000).SerializeToString())
    done = run("check", path)
    assert done.code == 0, done.err
    assert "30,000 of 30,000 nodes on DirectML" in done.out


_SPARSE = 40_000_000
"""Bytes of one weight of ten million numbers, dense: less than any model may make."""


@pytest.mark.parametrize(
    ("make", "option", "enough"),
    [(lambda: hostile.sparse(1, _SPARSE // 4), "made_bytes", _SPARSE), (lambda: hostile.doubling(5), "made_nodes", 16)],
    ids=["made_bytes", "made_nodes"],
)
def test_limits_of_what_is_made_of_a_model(
    make: Callable[[], onnx.ModelProto], option: str, enough: int, run: Run, tmp_path: Path
) -> None:
    """One less than the model needs refuses it, as an option, in a recipe and as a setting; what it needs is enough."""
    path, recipe, out = tmp_path / "model.onnx", tmp_path / "recipe.toml", tmp_path / "out"
    path.write_bytes(make().SerializeToString())
    for limit, code in ((enough - 1, 1), (enough, 0)):
        recipe.write_text(
            f'doc = "Little."\n[step.pin]\n[parity]\ncpu = false\ndml = "off"\n[limits]\n{option} = {limit}\n'
        )
        setting = (
            "-r",
            "@check-only",
            "--set",
            "parity.cpu=false",
            "--device",
            "cpu",
            "--set",
            f"limits.{option}={limit}",
        )
        for line in (
            ("--limit", f"{option}={limit}", "check", path),
            ("--limit", f"{option}={limit}", "prepare", path, "-o", out, *_UNPROVED),
            ("prepare", path, "-o", out, "-r", recipe),
            ("prepare", path, "-o", out, *setting),
        ):
            done = run(*line)
            assert done.code == code, done.out + done.err
            assert ("DP014" in done.out + done.err) == bool(code)
            assert out.exists() == (code == 0 and "check" not in line)
            if out.exists():
                shutil.rmtree(out)
