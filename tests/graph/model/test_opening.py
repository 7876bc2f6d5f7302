"""The door: what is read, and what is refused with one clear line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.core.files.links import leads_elsewhere
from dmlprep.graph.model import MappedTensor, Model
from dmlprep.graph.model.walk import nodes, tensors
from dmlprep.graph.model.wire import varint
from tests.graph.model.conftest import mlp


def _values(model: Model) -> dict[str, np.ndarray]:
    return {t.name or "": np.asarray(t.numpy()) for t in tensors(model.ir)}


def test_large_tensors_stay_in_the_file(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    mapped = [t for t in tensors(model.ir) if isinstance(t, MappedTensor)]
    assert {t.name for t in mapped} >= {"w", "w_in"}
    assert all(t.path == mlp_path for t in mapped)


@pytest.mark.parametrize("which", ["mlp_path", "external_path"])
def test_values_are_those_of_the_file(which: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(which)
    want = {t.name: onnx.numpy_helper.to_array(t) for t in mlp().graph.initializer}
    got = _values(Model.open(path))
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_opening_reads_no_weights(external_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_read(*_: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(MappedTensor, "map_bytes", no_read)
    model = Model.open(external_path)
    assert model.statistics().nodes == len(list(nodes(model.ir))) == 9
    assert model.statistics().nbytes > 64 * 64 * 4 * 2


def test_packed_float_data_is_mapped_as_well(tmp_path: Path) -> None:
    model = mlp()
    values = np.arange(4096, dtype=np.float32)
    model.graph.initializer.append(helper.make_tensor("old", TensorProto.FLOAT, [4096], values))
    onnx.save(model, tmp_path / "m.onnx")
    tensor = next(t for t in tensors(Model.open(tmp_path / "m.onnx").ir) if t.name == "old")
    assert isinstance(tensor, MappedTensor)
    np.testing.assert_array_equal(tensor.numpy(), values)


def _broken(path: Path, change: Callable[[Path], None]) -> str:
    change(path)
    with pytest.raises(InputError) as caught:
        Model.open(path)
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.fix
    return text


_TYPES = sorted(set(TensorProto.DataType.keys()) - {"UNDEFINED"})


@pytest.mark.parametrize("name", _TYPES)
def test_as_many_numbers_as_the_shape_says(name: str, tmp_path: Path) -> None:
    """In the fields that a type has beside raw_data: float_data, int32_data and so on."""
    data_type = TensorProto.DataType.Value(name)
    values = [b"a"] * 5 if name == "STRING" else [1] * 5
    tensor = helper.make_tensor("constant", data_type, [5], values)
    constant = helper.make_node("Constant", [], ["five"], value=tensor)
    model = mlp()
    model.graph.node.insert(0, constant)
    onnx.save(model, tmp_path / "m.onnx")
    assert Model.open(tmp_path / "m.onnx").statistics().nodes == 10

    field = getattr(constant.attribute[0].t, helper.tensor_dtype_to_field(data_type))
    for broken in (lambda: field.append(field[0]), lambda: field.__delitem__(slice(1, None)), field.clear):
        before = list(field)
        broken()
        model.graph.node[0].CopyFrom(constant)
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(InputError, match="elements, the file has"):
            Model.open(tmp_path / "m.onnx")
        field[:] = before


def test_no_such_file(tmp_path: Path) -> None:
    assert "no such file" in _broken(tmp_path / "x.onnx", lambda _: None)


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes among files")
def test_a_pipe(tmp_path: Path) -> None:
    assert "save it to a file first" in _broken(tmp_path / "pipe", os.mkfifo)
    assert "save it to a file first" in _broken(Path("-"), lambda _: None)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux only")
def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe8le.onnx"))
    assert "not UTF-8" in _broken(path, lambda p: onnx.save(mlp(), p))


def test_directory(tmp_path: Path) -> None:
    assert "directory" in _broken(tmp_path, lambda _: None)


def test_empty(tmp_path: Path) -> None:
    assert "empty" in _broken(tmp_path / "x.onnx", lambda p: p.write_bytes(b"") and None)


@pytest.mark.parametrize(
    "content", [b"hello, this is text\n" * 50, b"\x00" * 500, b"PK\x03\x04" + b"a" * 200, b"\xff" * 99]
)
def test_not_onnx(tmp_path: Path, content: bytes) -> None:
    assert "ONNX" in _broken(tmp_path / "x.onnx", lambda p: p.write_bytes(content) and None)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_truncated(mlp_path: Path, share: float) -> None:
    def cut(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    text = _broken(mlp_path, cut)
    assert "truncated" in text or "not an ONNX" in text or "not ONNX" in text


def _relocate(path: Path, location: str, **more: str) -> None:
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
                elif entry.key in more:
                    entry.value = more[entry.key]
    onnx.save(proto, path)


def test_missing_data_file(external_path: Path) -> None:
    assert "missing" in _broken(external_path, lambda p: (p.parent / "mlp.data").unlink())


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "a/../../secret",
        "/etc/passwd",
        "C:\\secret",
        "C:secret",
        "C:/secret",
        "\\secret",
        "\\\\server\\share\\secret",
        "\\\\?\\C:\\secret",
        "//server/share/secret",
        "..\\secret",
        "a\\..\\..\\secret",
        "",
        "\0self",  # what dmlprep itself once called weights inside the file
        "\0",
        "secret\0.bin",
    ],
)
def test_paths_that_leave_the_folder(external_path: Path, location: str) -> None:
    (external_path.parent.parent / "secret").write_bytes(b"\0" * 100_000)
    assert "outside" in _broken(external_path, lambda p: _relocate(p, location))


def _link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target, target_is_directory=target.is_dir())
    except OSError as error:
        pytest.skip(f"no symbolic links here: {error}")  # Windows asks for a right
    if not path.is_symlink():
        pytest.skip("no symbolic links here: Wine makes some that its own functions do not see")


def test_symbolic_link(external_path: Path) -> None:
    def link(path: Path) -> None:
        (path.parent / "mlp.data").rename(path.parent.parent / "elsewhere")
        _link(path.parent / "mlp.data", path.parent.parent / "elsewhere")

    assert "symbolic link" in _broken(external_path, link)


def test_folder_that_is_a_symbolic_link(external_path: Path) -> None:
    def link(path: Path) -> None:
        outside = path.parent.parent / "outside"
        outside.mkdir()
        (path.parent / "mlp.data").rename(outside / "mlp.data")
        _link(path.parent / "sub", outside)
        _relocate(path, "sub/mlp.data")

    assert "symbolic link" in _broken(external_path, link)


@pytest.mark.skipif(sys.platform == "win32", reason="a folder on Windows, as the exporter meant it")
def test_a_backslash_leads_nowhere_on_linux(external_path: Path) -> None:
    (external_path.parent / "sub").mkdir()
    (external_path.parent / "mlp.data").rename(external_path.parent / "sub" / "mlp.data")
    assert "backslash" in _broken(external_path, lambda p: _relocate(p, "sub\\mlp.data"))


@pytest.mark.skipif(sys.platform != "win32", reason="names of Windows")
def test_a_backslash_is_a_folder_on_windows(external_path: Path) -> None:
    (external_path.parent / "sub").mkdir()
    (external_path.parent / "sub" / "mlp.data").write_bytes((external_path.parent / "mlp.data").read_bytes())
    _relocate(external_path, "sub\\mlp.data")
    assert _values(Model.open(external_path))["w"].shape == (64, 64)


@pytest.mark.skipif(sys.platform != "win32", reason="names of Windows")
@pytest.mark.parametrize("location", ["mlp.data:stream", "mlp.data::$DATA", "NUL", "con", "sub/COM1.bin", "mlp.data."])
def test_streams_and_devices(external_path: Path, location: str) -> None:
    assert "external data" in _broken(external_path, lambda p: _relocate(p, location))


@pytest.mark.parametrize(
    ("tag", "elsewhere"),
    [
        (0, False),
        (0xA000_000C, True),  # IO_REPARSE_TAG_SYMLINK
        (0xA000_0003, True),  # IO_REPARSE_TAG_MOUNT_POINT: a junction
        (0x9000_001A, False),  # IO_REPARSE_TAG_CLOUD: a file that OneDrive keeps
        (0x8000_0013, False),  # IO_REPARSE_TAG_DEDUP
    ],
)
def test_which_reparse_points_lead_elsewhere(tag: int, elsewhere: bool) -> None:
    status = SimpleNamespace(st_mode=stat.S_IFDIR, st_reparse_tag=tag)
    assert leads_elsewhere(status) == elsewhere  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform != "win32", reason="junctions are Windows'")
@pytest.mark.parametrize("location", ["sub/mlp.data", "sub/below/mlp.data"])
def test_a_junction(external_path: Path, location: str) -> None:
    import _winapi

    outside = external_path.parent.parent / "outside"
    (outside / "below").mkdir(parents=True)
    data = external_path.parent / "mlp.data"
    for place in (outside, outside / "below"):
        (place / "mlp.data").write_bytes(data.read_bytes())
    try:
        _winapi.CreateJunction(str(outside), str(external_path.parent / "sub"))
    except OSError as error:
        pytest.skip(f"no junctions here: {error}")
    assert "junction" in _broken(external_path, lambda p: _relocate(p, location))


def test_hard_link(external_path: Path) -> None:
    data = external_path.parent / "mlp.data"
    assert "hard link" in _broken(external_path, lambda p: os.link(data, p.parent.parent / "other"))


def test_offset_outside_the_file(external_path: Path) -> None:
    assert "is outside" in _broken(external_path, lambda p: _relocate(p, "mlp.data", offset="999999999"))


def test_size_that_does_not_match(external_path: Path) -> None:
    assert "shape and type need" in _broken(external_path, lambda p: _relocate(p, "mlp.data", length="128"))


def test_huge_dimension(mlp_path: Path) -> None:
    def lie(path: Path) -> None:
        proto = onnx.load(path)
        proto.graph.initializer[0].dims[0] = 1 << 40
        onnx.save(proto, path)

    assert "shape and type need" in _broken(mlp_path, lie)


def test_deep_nesting_is_refused_not_a_crash(tmp_path: Path) -> None:
    def field(number: int, payload: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(payload)) + payload

    graph = field(10, b"x" * 2000)
    for _ in range(400):  # graph -> node -> attribute -> graph, far beyond what protobuf reads
        graph = field(1, field(5, field(6, graph)))
    path = tmp_path / "deep.onnx"
    path.write_bytes(varint(1 << 3) + varint(8) + field(7, graph))
    with pytest.raises(InputError, match="nested too deep"):
        Model.open(path)


def test_map_types_are_refused(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (float[2,2] x) => (seq(map(int64,float)) y) '
        "{ y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1]>(x) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelRefused, match="unsupported type"):
        Model.open(tmp_path / "m.onnx")


@pytest.mark.parametrize("value", ["-64", "1e3", "", "٣", "9" * 5000])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_of_external_data(external_path: Path, key: str, value: str) -> None:
    said = _broken(external_path, lambda p: _relocate(p, "mlp.data", **{key: value}))
    assert key in said
    assert len(said) < 600


def test_text_in_a_data_file(external_path: Path) -> None:
    def as_text(path: Path) -> None:
        proto = onnx.load(path, load_external_data=False)
        tensor = next(t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL)
        tensor.data_type = TensorProto.STRING
        onnx.save(proto, path)

    assert "its strings are in a data file" in _broken(external_path, as_text)


def test_an_output_that_nobody_makes(mlp_path: Path) -> None:
    def add(path: Path) -> None:
        proto = onnx.load(path)
        proto.graph.output.append(helper.make_tensor_value_info("ghost", TensorProto.FLOAT, [1]))
        onnx.save(proto, path)

    assert "ghost" in _broken(mlp_path, add)


def test_the_default_domain_has_one_spelling(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["ai.onnx" : 17]> g (float[2] x) => (float[2] y) { y = ai.onnx.Relu (x) }'
    )
    onnx.save(proto, tmp_path / "m.onnx")
    model = Model.open(tmp_path / "m.onnx")
    assert model.opset == 17
    assert dict(model.ir.opset_imports) == {"": 17}
