"""Sessions on the real DirectML: on Windows with a GPU, or on Linux with the runtime installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.runtime import (
    DmlStatus,
    SessionFailure,
    SessionHost,
    SessionOptions,
    dml_host,
    dml_status,
    open_cpu,
    open_dml,
)
from tests.living import gone_within
from tests.runtime.conftest import save

pytestmark = pytest.mark.dml
info = helper.make_tensor_value_info

_LOADS = SessionOptions(optimization="basic")
"""At extended and all the Python package does not load ``add_relu`` (quirk output-before-activation)."""


@pytest.fixture(scope="module")
def status() -> DmlStatus:
    found = dml_status()
    if not found.available:
        pytest.skip(f"DirectML tests NOT RUN: {found.reason}")
    return found


@pytest.fixture(scope="module")
def host(status: DmlStatus) -> Iterator[SessionHost]:
    with dml_host() as made:
        yield made


def test_the_device_says_what_it_is(status: DmlStatus, host: SessionHost, add_relu: Path) -> None:
    with host.open(add_relu, _LOADS) as session:
        assert str(session.device) == str(status.device)
        assert session.device.name.startswith("dml on ")
        assert any(detail.startswith("DirectML 1.") for detail in session.device.details)


def test_placement_profile_and_overrides(host: SessionHost, add_relu: Path) -> None:
    options = SessionOptions(
        record_placement=True, profile=True, free_dimensions={"N": 2}, unfused=True, optimization="disabled"
    )
    with host.open(add_relu, options) as session:
        assert session.inputs[0].shape == (2, 3)
        x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
        out = session.run({"x": x, "y": x})
        np.testing.assert_array_equal(out["z"], 2 * x)
        np.testing.assert_array_equal(out["r"], np.maximum(2 * x, 0))
        assert {(p.name, p.provider) for p in session.placement()} == {
            ("add", "DmlExecutionProvider"),
            ("relu", "DmlExecutionProvider"),
        }
        assert {t.op_type for t in session.timings()} >= {"Add", "Relu"}


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "int32", "uint8", "bool", "string"])
def test_types_survive(host: SessionHost, tmp_path: Path, kind: str) -> None:
    array = np.array(["a", "", "žluť"], dtype=object) if kind == "string" else np.array([1, 0, 3]).astype(kind)
    element = TensorProto.STRING if kind == "string" else helper.np_dtype_to_tensor_dtype(array.dtype)
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [info("x", element, [3])],
        [info("y", element, [3])],
    )
    with host.open(model) as session:
        out = session.run({"x": array})["y"]
    assert out.dtype == array.dtype
    np.testing.assert_array_equal(out, array)


def test_sequences(host: SessionHost, tmp_path: Path) -> None:
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0), helper.make_node("SequenceAt", ["t", "i"], ["y"])],
        [
            info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None),
            info("i", TensorProto.INT64, []),
        ],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), info("y", TensorProto.FLOAT, None)],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with host.open(model) as session:
        out = session.run_any({"x": x, "t": [x, x[:1] + 1], "i": np.array(1)})
    assert isinstance(out["s"], list)
    np.testing.assert_array_equal(out["s"][1], x[1:])
    np.testing.assert_array_equal(np.asarray(out["y"]), x[:1] + 1)


def test_external_data_elsewhere(host: SessionHost, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", TensorProto.FLOAT, [2, 64])],
        [info("y", TensorProto.FLOAT, [2, 64])],
        initializer=[onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(onnx.load(model), model, save_as_external_data=True, size_threshold=0, location="sub.data")
    x = np.ones((2, 64), np.float32)
    with host.open(model) as session, open_cpu(model) as reference:
        np.testing.assert_allclose(session.run({"x": x})["y"], reference.run({"x": x})["y"], rtol=1e-5, atol=1e-5)


def test_data_outside_the_folder_is_refused(host: SessionHost, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../secret")
    model = save(
        folder / "m.onnx",
        [helper.make_node("Identity", ["w"], ["y"])],
        [],
        [info("y", TensorProto.FLOAT, [4])],
        initializer=[weight],
    )
    with pytest.raises(SessionFailure, match="outside"):
        host.open(model)


def test_a_refusal_is_explained_and_leaves_the_worker(host: SessionHost, add_relu: Path) -> None:
    pid = host.worker().pid
    with host.open(add_relu, _LOADS) as session:
        with pytest.raises(SessionFailure) as caught:
            session.run({"x": np.ones((2, 3), np.float64), "y": np.ones((2, 3), np.float32)})
        assert caught.value.kind == "run"
    assert host.worker().pid == pid


def test_without_fallback_a_cpu_node_is_refused(host: SessionHost, tmp_path: Path) -> None:
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Det", ["x"], ["y"])],
        [info("x", TensorProto.FLOAT, [2, 2])],
        [info("y", TensorProto.FLOAT, [])],
    )
    with pytest.raises(SessionFailure, match="fallback"):
        host.open(model, SessionOptions(cpu_fallback=False))


@pytest.mark.skipif(sys.platform != "linux", reason="the crash is one of onnxruntime.dll, seen on Linux")
def test_a_model_that_crashes_the_host(status: DmlStatus, tmp_path: Path, add_relu: Path) -> None:
    # Resize with axes and tf_crop_and_resize: onnxruntime.dll 1.24.4 reads past its region of interest.
    graph = helper.make_graph(
        [
            helper.make_node(
                "Resize",
                ["x", "roi", "", "sizes"],
                ["y"],
                mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize",
                axes=[2, 3],
            )
        ],
        "g",
        [
            info("x", TensorProto.FLOAT, [1, 1, 4, 4]),
            info("roi", TensorProto.FLOAT, [4]),
            info("sizes", TensorProto.INT64, [2]),
        ],
        [info("y", TensorProto.FLOAT, [1, 1, 3, 3])],
    )
    path = tmp_path / "crash.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    feeds = {
        "x": np.ones((1, 1, 4, 4), np.float32),
        "roi": np.array([0.4, 0.6, 0.6, 0.8], np.float32),
        "sizes": np.array([3, 3], np.int64),
    }
    with dml_host() as own:
        pid = own.worker().pid
        session = own.open(path)
        with pytest.raises(SessionFailure) as caught:
            session.run(feeds)
        assert caught.value.kind == "crash"
        assert caught.value.where == str(path)
        assert "C0000005 in onnxruntime.dll" in caught.value.message
        time.sleep(0.3)
        assert gone_within(pid, 2.0)
        # A fresh worker serves the next model.
        with own.open(add_relu) as next_session:
            assert (
                next_session.run({"x": np.ones((1, 3), np.float32), "y": np.ones((1, 3), np.float32)}, ["r"])["r"][0, 0]
                == 2
            )


def test_time_and_memory_limits(status: DmlStatus, tmp_path: Path) -> None:
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "x"], ["y"])],
        [info("x", TensorProto.FLOAT, [2048, 2048])],
        [info("y", TensorProto.FLOAT, [2048, 2048])],
    )
    x = np.ones((2048, 2048), np.float32)
    for options, kind in ((SessionOptions(memory_limit=64 << 20), "memory"),):
        start = time.monotonic()
        with pytest.raises(SessionFailure) as caught, open_dml(model, options) as session:
            session.run({"x": x})
        assert caught.value.kind == kind
        assert time.monotonic() - start < 60
    with dml_host() as own:
        own.worker()
        with pytest.raises(SessionFailure) as caught:
            own.open(model, SessionOptions(time_limit=0.001))
        assert caught.value.kind == "timeout"


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_the_sandbox_sees_no_network_and_no_home() -> None:
    import subprocess

    from dmlprep.runtime.linux import sandbox
    from dmlprep.runtime.linux.install import missing_piece
    from dmlprep.runtime.linux.layout import Layout

    layout = Layout.of_user()
    if reason := missing_piece(layout):
        pytest.skip(reason)
    script = "cat /proc/net/dev; ls -A /home /tmp; ls /proc | grep -c '^[0-9]'; touch /usr/x 2>&1; true"
    line = sandbox.command(layout.root, ["/usr/bin/sh", "-c", script.replace("grep -c '^[0-9]'", "cat")])
    out = subprocess.run(line, capture_output=True, text=True, timeout=30, check=True).stdout
    interfaces = [row.split(":")[0].strip() for row in out.splitlines() if ":" in row and "|" not in row][:3]
    assert interfaces[0] == "lo"
    assert "eth0" not in out
    assert "Read-only file system" in out


@pytest.mark.skipif(sys.platform == "win32", reason="the Linux runtime counts")
def test_the_runtime_counts_the_memory_that_directml_holds(status: DmlStatus, tmp_path: Path) -> None:
    """Of a product with 4 MiB of weights: what is kept of them, and a buffer each for input and output."""
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", TensorProto.FLOAT, [128, 1024])],
        [info("y", TensorProto.FLOAT, [128, 1024])],
        initializer=[numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")],
    )
    mib = 1 << 20
    with dml_host() as host:
        session = host.open(model)
        loaded = host.memory()
        assert (loaded.device_peak, loaded.shared_peak) == (4 * mib, 4 * mib)
        session.run({"x": np.ones((128, 1024), np.float32)})
        ran = host.memory()
        assert (ran.device_peak, ran.shared_peak) == (5 * mib, 6 * mib)
        assert ran.device == 11 * mib
        session.close()
        assert (host.memory().device or 0) < 11 * mib
    found = dmlprep.check(model).facts.memory
    assert found is not None
    assert (found.load, found.peak, found.shared_peak) == (4 * mib, 5 * mib, 6 * mib)
