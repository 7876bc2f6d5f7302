"""Sessions on the CPU, in a real worker."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.core.errors import InputError, OutputError
from dmlprep.runtime import SessionFailure, SessionOptions, ValueInfo, cpu_host, open_cpu
from dmlprep.runtime.types import NodePlacement
from tests.living import gone_within
from tests.runtime.conftest import save

ONES = np.ones((2, 3), np.float32)


def test_one_worker_serves_models_and_runs(add_relu: Path, tmp_path: Path) -> None:
    with cpu_host() as host:
        pid = host.worker().pid
        session = host.open(add_relu, SessionOptions(profile=True, record_placement=True))
        assert session.inputs == (ValueInfo("x", "float32", ("N", 3)), ValueInfo("y", "float32", ("N", 3)))
        assert str(session.device).startswith("cpu, ONNX Runtime ")
        for scale in (1.0, 3.0):
            out = session.run({"x": ONES, "y": np.float32(-scale) * ONES})
            np.testing.assert_array_equal(out["z"], ONES * np.float32(1 - scale))
        assert list(session.run({"x": ONES, "y": ONES}, ["r"])) == ["r"]
        assert session.placement() == (
            NodePlacement("add", "Add", "", "CPUExecutionProvider"),
            NodePlacement("relu", "Relu", "", "CPUExecutionProvider"),
        )
        assert {(t.name, t.calls) for t in session.timings()} == {("add", 3), ("relu", 3)}
        second = host.open(add_relu)
        assert second.run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        session.close()
        assert second.run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        assert host.worker().pid == pid
        exchange = host.worker().exchange
    assert not exchange.exists()


def test_a_worker_that_was_begun_is_the_one_that_serves(add_relu: Path) -> None:
    with cpu_host() as host:
        host.begin()
        host.begin()
        begun = host.begun
        assert begun is not None
        assert host.open(add_relu).run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        assert host.worker() is begun
        host.begin()
        assert host.worker() is begun
    assert not begun.exchange.exists()


def test_a_worker_that_was_begun_and_is_gone_is_replaced(add_relu: Path) -> None:
    with cpu_host() as host:
        host.begin()
        begun = host.begun
        assert begun is not None
        begun.kill()
        assert host.open(add_relu).run({"x": ONES, "y": ONES})["r"][0, 0] == 2


def test_a_worker_that_was_begun_for_nothing_ends_with_its_host() -> None:
    with cpu_host() as host:
        host.begin()
        begun = host.begun
        assert begun is not None
        assert begun.alive
    assert gone_within(begun.pid, 5.0)
    assert not begun.exchange.exists()


def test_a_refusal_leaves_the_worker_alive(add_relu: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07not a model")
    with cpu_host() as host:
        with pytest.raises(SessionFailure, match="broken") as caught:
            host.open(broken)
        assert caught.value.kind == "load"
        session = host.open(add_relu)
        with pytest.raises(SessionFailure, match="y") as caught:
            session.run({"x": ONES})
        assert caught.value.kind == "run"
        assert session.run({"x": ONES, "y": ONES})["r"][0, 0] == 2


def test_denotations(add_relu: Path) -> None:
    model = onnx.load(add_relu)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    onnx.save(model, add_relu)
    with open_cpu(add_relu, SessionOptions(denotations={"DATA_BATCH": 4})) as session:
        assert session.inputs[0].shape == (4, 3)


def test_free_dimensions(add_relu: Path) -> None:
    with open_cpu(add_relu, SessionOptions(free_dimensions={"N": 2})) as session:
        assert session.inputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (TensorProto.FLOAT16, np.array([[1.5, 65504, 6e-8]], np.float16)),
        (TensorProto.BFLOAT16, np.array([[1.5, 3e38, -2]], ml_dtypes.bfloat16)),
        (TensorProto.DOUBLE, np.array([[1e300, 1, 2]], np.float64)),
        (TensorProto.INT64, np.array([[-(2**62), 1, 2]], np.int64)),
        (TensorProto.UINT8, np.array([[255, 1, 2]], np.uint8)),
        (TensorProto.BOOL, np.array([[True, False, True]])),
        (TensorProto.STRING, np.array([["a", "", "žluť"]], dtype=object)),
        (TensorProto.FLOAT, np.zeros((0, 3), np.float32)),
    ],
)
def test_every_type_survives(tmp_path: Path, kind: int, array: np.ndarray) -> None:
    info = helper.make_tensor_value_info
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [info("x", kind, ["N", 3])],
        [info("y", kind, ["N", 3])],
    )
    with open_cpu(model) as session:
        out = session.run({"x": array})["y"]
    assert out.shape == array.shape
    assert out.dtype == array.dtype
    np.testing.assert_array_equal(out, array)


def test_scalars_and_sequences(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0), helper.make_node("SequenceLength", ["t"], ["n"])],
        [info("x", TensorProto.FLOAT, [2, 3]), helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None)],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), info("n", TensorProto.INT64, [])],
    )
    with open_cpu(model) as session:
        out = session.run_any({"x": ONES, "t": [ONES, ONES[:1]]})
        parts = out["s"]
        assert isinstance(parts, list)
        assert [part.shape for part in parts] == [(1, 3), (1, 3)]
        assert np.asarray(out["n"]).shape == ()
        assert out["n"] == 2
        with pytest.raises(SessionFailure, match="sequence"):
            session.run({"x": ONES, "t": [ONES]})  # type: ignore[dict-item]


def test_feeds_of_the_other_byte_order(add_relu: Path) -> None:
    with open_cpu(add_relu) as session:
        out = session.run({"x": (3 * ONES).astype(">f4"), "y": ONES.astype("<f4")})
        np.testing.assert_array_equal(out["z"], 4 * ONES)


def test_a_feed_that_cannot_be_read_gets_one_answer(add_relu: Path) -> None:
    with open_cpu(add_relu) as session:
        with pytest.raises(SessionFailure, match="FileNotFoundError"):
            session.child.ask([["feed", "x", "float32", "feeds/none", "2", "3"], ["run", "1"]], limit=20.0)
        assert session.run({"x": ONES, "y": ONES})["r"][0, 0] == 2


def test_text_that_no_session_can_read_names_its_input(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = save(
        tmp_path / "m.onnx", nodes, [value("x", TensorProto.STRING, [1])], [value("y", TensorProto.STRING, [1])]
    )
    with open_cpu(model) as session:
        for text in ("a\0b", "\udc80"):
            with pytest.raises(InputError, match="input 'x'"):
                session.run({"x": np.array([text], object)})
        assert session.run({"x": np.array(["a"], object)})["y"].tolist() == ["a"]


def test_external_data(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    weight = np.arange(3 * 3, dtype=np.float32).reshape(3, 3)
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [info("x", TensorProto.FLOAT, [2, 3])],
        [info("y", TensorProto.FLOAT, [2, 3])],
        initializer=[onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(onnx.load(model), model, save_as_external_data=True, size_threshold=0, location="m.data")
    with open_cpu(model) as session:
        np.testing.assert_array_equal(session.run({"x": ONES})["y"], ONES @ weight)


def test_a_worker_outlives_the_thread_that_started_it(add_relu: Path) -> None:
    hosts = []
    thread = threading.Thread(target=lambda: hosts.append(cpu_host()) or hosts[0].worker())
    thread.start()
    thread.join()
    with hosts[0] as host:
        pid = host.worker().pid
        assert host.open(add_relu).run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        assert host.worker().pid == pid


def test_memory_limit(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    model = save(
        tmp_path / "m.onnx",
        [
            helper.make_node("Expand", ["x", "s"], ["y"]),
            helper.make_node("Exp", ["y"], ["z"]),
            helper.make_node("ReduceSum", ["z"], ["r"]),
        ],
        [info("x", TensorProto.FLOAT, [1]), info("s", TensorProto.INT64, [1])],
        [info("r", TensorProto.FLOAT, None)],
    )
    with cpu_host() as host:
        session = host.open(model, SessionOptions(memory_limit=400 << 20))
        with pytest.raises(SessionFailure, match="limit is 400 MiB") as caught:
            session.run({"x": np.ones(1, np.float32), "s": np.array([1 << 29])})
        assert caught.value.kind == "memory"
        with pytest.raises(SessionFailure, match="has ended"):
            session.run({"x": np.ones(1, np.float32), "s": np.array([4])})
        assert host.open(model).run({"x": np.ones(1, np.float32), "s": np.array([4])})


def test_an_output_cut_short_by_a_full_disk_is_no_fault_of_the_worker(
    add_relu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmlprep.runtime import served

    def short(*_: object, **__: object) -> np.ndarray:
        raise ValueError("out1 holds 8 bytes, float32[2, 3] needs 24")

    with open_cpu(add_relu) as session:
        monkeypatch.setattr(served, "read_tensor", short)
        with pytest.raises(SessionFailure, match="holds 8 bytes"):
            session.run({"x": ONES, "y": ONES})
        usage = shutil.disk_usage(add_relu.parent)
        monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage._replace(free=0))
        with pytest.raises(OutputError, match="No space left"):
            session.run({"x": ONES, "y": ONES})


def test_feeds_that_do_not_fit_on_the_disk(add_relu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlprep.runtime import served

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_cpu(add_relu) as session:
        monkeypatch.setattr(served, "write_tensor", full)
        with pytest.raises(OutputError, match="set TMPDIR"):
            session.run({"x": ONES, "y": ONES})


def test_outputs_that_are_read_in_place(tmp_path: Path) -> None:
    """128 MiB come back whole, twice, and their files go: Windows removes no file that is mapped."""
    info = helper.make_tensor_value_info
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Expand", ["x", "s"], ["y"])],
        [info("x", TensorProto.FLOAT, [1]), info("s", TensorProto.INT64, [1])],
        [info("y", TensorProto.FLOAT, None)],
    )
    with cpu_host() as host, host.open(model) as session:
        count = 1 << 25
        for value in (3.0, 4.0):
            found = session.run({"x": np.full(1, value, np.float32), "s": np.array([count])})["y"]
            assert found.shape == (count,)
            assert found[0] == found[-1] == value
            assert not list(host.worker().exchange.glob("out*"))


@pytest.mark.parametrize("name", ["модель.onnx", "日本 モデル.onnx", "mod\u00e8le.onnx"])
def test_a_model_whose_path_is_beyond_the_code_page(tmp_path: Path, name: str) -> None:
    """With external data: it is found beside the model, wherever the bytes of the model came from."""
    folder = tmp_path / "папка 日本"
    folder.mkdir()
    weights = np.arange(4096, dtype=np.float32)
    proto = helper.make_graph(
        [helper.make_node("Add", ["вход", "w"], ["出力"])],
        "g",
        [helper.make_tensor_value_info("вход", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("出力", TensorProto.FLOAT, [4096])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = folder / name
    made = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(path), save_as_external_data=True, location="веса.data", size_threshold=0)
    with open_cpu(path) as session:
        found = session.run({"вход": np.ones(4096, np.float32)})["出力"]
    assert np.array_equal(found, weights + 1)


def test_bound_feeds_are_timed_inside_the_worker(add_relu: Path) -> None:
    with open_cpu(add_relu) as session:
        assert session.load_seconds is not None
        with pytest.raises(SessionFailure):
            session.time(1, 0.0)  # nothing is bound
        session.bind({"x": ONES, "y": ONES})
        assert session.run({"x": 2 * ONES, "y": ONES})["z"][0, 0] == 3  # feeds of its own
        assert len(session.time(5, 60.0)) == 5
        assert len(session.time(1000, 0.0)) == 1
        assert all(took > 0 for took in session.time(3, 60.0))
        with pytest.raises(SessionFailure, match="CPU"):
            session.time(1, 0.0, on_device=True)
        session.bind({"x": ONES, "y": ONES}, ["r"])
        assert len(session.time(2, 60.0)) == 2
        session.bind({"x": ONES})
        with pytest.raises(SessionFailure, match="y"):
            session.time(1, 0.0)


def test_a_worker_says_what_it_holds() -> None:
    with cpu_host() as host:
        before = host.memory().peak
        assert before is None or before > 1 << 20
        assert host.memory().device is None
