"""FP16 converters side by side on models of yours.

Usage: python tests/benchmarks/fp16.py FOLDER [NAME ...] [--feeds feeds.py] [--io keep|half]

For each FOLDER/NAME.onnx: dmlprep's converter, alone and with the recipes' search for islands,
onnxconverter-common (explicit limits), and onnxruntime.transformers.float16 (its file alone, without torch).
A row is clean when the file passes onnx.checker with full_check, loads at ONNX Runtime's default optimisation,
runs, and is in bounds element by element (max|d|/max|ref| <= 0.02 and cosine >= 0.999 against FP32 on the CPU).
``true`` is the same error in the FP16 emulation, which the CPU provider cannot see. Seconds cover load,
conversion and save.

``feeds.py`` may define ``make(name, inputs) -> dict`` (inputs: [(name, type, dims)]) and ``DIMS``; without it,
feeds are normal numbers and ones, with every named dimension 1. Each conversion and each session runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TIME_LIMIT = 900.0
_BOUND, _COSINE = 0.02, 0.999
_KINDS = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(double)": np.float64}


def _own(source: str, target: str, keep_io: bool, sizes: dict[str, int]) -> None:
    from dmlprep.model import Model
    from dmlprep.passes import Context, make_pass
    from dmlprep.targets import find_target

    model = Model.open(source)
    make_pass("fp16", {"keep_io": keep_io, "allow": ["little-gain"]}).run(model, Context(find_target()))
    model.save(target, force=True)


def _searched(source: str, target: str, keep_io: bool, sizes: dict[str, int]) -> None:
    """As the recipes do it: with a search for islands, on seeded feeds of its own."""
    from dmlprep.model import Model
    from dmlprep.parity import make_feeds
    from dmlprep.passes import Context, make_pass
    from dmlprep.pipeline.runner import CpuRunner
    from dmlprep.targets import find_target

    model = Model.open(source)
    with CpuRunner(lambda one, count: make_feeds(one, sizes, count, rough=True)) as runner:
        options = {"keep_io": keep_io, "islands": "auto", "tolerance": 0.015, "allow": ["little-gain"]}
        make_pass("fp16", options).run(model, Context(find_target(), runner=runner))
    model.save(target, force=True)


def _common(source: str, target: str, keep_io: bool, sizes: dict[str, int]) -> None:
    import onnx
    from onnxconverter_common import float16

    model = onnx.load(source)
    done = float16.convert_float_to_float16(
        model, min_positive_val=5.96e-8, max_finite_val=65504.0, keep_io_types=keep_io
    )
    onnx.save(done, target)


def _transformers(source: str, target: str, keep_io: bool, sizes: dict[str, int]) -> None:
    import onnx

    # the file itself: the package around it may want torch
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "transformers" / "float16.py"
    sys.path.insert(0, str(path.parent))
    module_spec = importlib.util.spec_from_file_location("float16", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    done = module.convert_float_to_float16(onnx.load(source), keep_io_types=keep_io)
    onnx.save(done, target)


CONVERTERS = {
    "dmlprep": _own,
    "dmlprep, islands": _searched,
    "onnxconverter-common": _common,
    "ort.transformers": _transformers,
}


def _session(path: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _user_file(name: str, feeds_file: str) -> Any:
    spec = importlib.util.spec_from_file_location("feeds", feeds_file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DIMS.setdefault(name, {"batch": 2})
    return module


def _feeds(name: str, session: Any, feeds_file: str) -> dict[str, Any]:
    inputs = [(i.name, i.type, list(i.shape)) for i in session.get_inputs()]
    if feeds_file:
        found: dict[str, Any] = _user_file(name, feeds_file).make(name, inputs)
        return found
    rng = np.random.default_rng(0)
    made = {}
    for key, kind, dims in inputs:
        shape = [d if isinstance(d, int) and d > 0 else 1 for d in dims]
        made[key] = rng.standard_normal(shape).astype(_KINDS[kind]) if kind in _KINDS else np.ones(shape, kind[7:-1])
    return made


def _run(path: str, feeds: dict[str, Any]) -> dict[str, Any]:
    session = _session(path)
    given = {i.name: feeds[i.name].astype(_KINDS.get(i.type, feeds[i.name].dtype)) for i in session.get_inputs()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def _errors(want: Any, got: Any) -> tuple[float, float]:
    worst, cosine = 0.0, 1.0
    for key in want:
        a, b = np.asarray(want[key], np.float64), np.asarray(got[key], np.float64)
        if a.shape != b.shape or not np.isfinite(b[np.isfinite(a)]).all():
            return float("inf"), 0.0
        a, b = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(a), b, 0)
        scale = np.abs(a).max(initial=0.0)
        worst = max(worst, float(np.abs(a - b).max(initial=0.0) / (scale + 1e-12)))
        norms = np.linalg.norm(a) * np.linalg.norm(b)
        cosine = min(cosine, float((a * b).sum() / norms) if norms else 1.0)
    return worst, cosine


def _work(job: dict[str, Any]) -> dict[str, Any]:
    """What a child process does: ``truth``, ``convert`` or ``check``."""
    if job["do"] == "convert":
        for module in ("dmlprep.passes.fp16", "dmlprep.targets", "onnx", "onnxconverter_common"):
            importlib.import_module(module)  # imports are not what is compared
        sizes = _user_file(job["name"], job["feeds"]).DIMS[job["name"]] if job["feeds"] else {}
        started = time.monotonic()
        CONVERTERS[job["converter"]](job["source"], job["target"], job["keep_io"], sizes)
        return {"seconds": time.monotonic() - started}
    if job["do"] == "truth":
        feeds = _feeds(job["name"], _session(job["source"]), job["feeds"])
        np.savez(job["inputs"], **feeds)
        np.savez(job["outputs"], **_run(job["source"], feeds))
        return {}
    feeds, want = dict(np.load(job["inputs"])), dict(np.load(job["outputs"]))
    if job["do"] == "checker":
        import onnx

        onnx.checker.check_model(job["target"], full_check=True)
        return {}
    if job["do"] == "true":
        from dmlprep.model import Model
        from dmlprep.precision import emulate

        shadow = str(Path(job["target"]).with_name("shadow.onnx"))
        emulate(Model.open(job["target"])).save(shadow, force=True)
        return dict(zip(("error", "cosine"), _errors(want, _run(shadow, feeds)), strict=True))
    return dict(zip(("error", "cosine"), _errors(want, _run(job["target"], feeds)), strict=True))


def _child(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in a process of its own; what goes wrong there is a row in the table."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--job", json.dumps(job)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": "time limit"}
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        return {"failed": f"crash, signal {-done.returncode}" if done.returncode < 0 else lines[-1][:90]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _row(name: str, converter: str, job: dict[str, Any]) -> bool:
    converted = _child({**job, "do": "convert", "converter": converter})
    if "failed" in converted:
        print(f"{name:<22} {converter:<21} no model: {converted['failed']}", flush=True)
        return False
    checker = _child({**job, "do": "checker"})
    ran = _child({**job, "do": "run"})
    true = _child({**job, "do": "true"})
    fault = "checker: " + checker["failed"] if "failed" in checker else ""
    fault = fault or ("run: " + ran["failed"] if "failed" in ran else "")
    if not fault and not (ran["error"] <= _BOUND and ran["cosine"] >= _COSINE):
        fault = "out of bounds"
    numbers = (
        f"cpu {ran['error']:8.1e} cos {ran['cosine']:.5f}" if "failed" not in ran else f"cpu {'-':>8} cos {'-':>7}"
    )
    real = f"true {true['error']:8.1e}" if "failed" not in true else f"true {'-':>8}"
    print(
        f"{name:<22} {converter:<21} {'clean' if not fault else 'FAULT'}  {numbers}  {real}  "
        f"{converted['seconds']:6.2f} s  {fault}",
        flush=True,
    )
    return not fault


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--feeds", default="")
    parser.add_argument("--io", choices=("keep", "half"), default="keep")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.job:
        print(json.dumps(_work(json.loads(arguments.job))))
        return
    folder = Path(arguments.folder)
    names = arguments.names or sorted(p.stem for p in folder.glob("*.onnx"))
    clean = dict.fromkeys(CONVERTERS, 0)
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            job = {
                "name": name,
                "source": str(folder / f"{name}.onnx"),
                "target": f"{scratch}/model.onnx",
                "inputs": f"{scratch}/inputs.npz",
                "outputs": f"{scratch}/outputs.npz",
                "feeds": arguments.feeds,
                "keep_io": arguments.io == "keep",
            }
            truth = _child({**job, "do": "truth"})
            if "failed" in truth:
                print(f"{name:<22} the FP32 model does not run: {truth['failed']}", flush=True)
                continue
            for converter in CONVERTERS:
                clean[converter] += _row(name, converter, job)
                for file in Path(scratch).glob("model.onnx*"):
                    file.unlink()
    print("clean: " + ", ".join(f"{converter} {count} of {len(names)}" for converter, count in clean.items()))


if __name__ == "__main__":
    main()
