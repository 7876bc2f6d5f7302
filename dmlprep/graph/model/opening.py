"""Open a model file, and check it as untrusted input.

A file is refused here if it is not ONNX, is cut short, or describes tensors whose sizes do not match their bytes. It
may not name data files outside its folder (``..``, absolute, symbolic or hard links). Opening reads kilobytes of a 5 GB
model.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from dmlprep.core.errors import DmlprepError, InputError, ModelRefused
from dmlprep.core.files import FileSet, meant, unreadable
from dmlprep.core.files.links import leads_elsewhere
from dmlprep.core.files.outputs import windows_name_problem
from dmlprep.graph.model import protos
from dmlprep.graph.model.attribute_types import check_attributes
from dmlprep.graph.model.bounds import LESS_NESTED, MAX_NESTING, check_bounds, invalid, too_large
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.expansion import spend_on_functions
from dmlprep.graph.model.frozen import Frozen, freeze
from dmlprep.graph.model.repairs import describe_ends, drop_wrong_shapes, mend, own_operators, random_nodes
from dmlprep.graph.model.sparse import SpreadTensor, densify
from dmlprep.graph.model.tensors import MappedTensor
from dmlprep.graph.model.walk import map_tensors, nodes
from dmlprep.graph.model.wire import SELF, SPARSE, skeleton
from dmlprep.record import Finding

_NOT_ONNX = "pass a file that an ONNX exporter wrote"
_NO_STREAM = "save it to a file first: models are mapped, not read from a stream"


@dataclass(frozen=True)
class Opened:
    """A model that was read, with its frozen form, its budget, and findings about repairs and other peculiarities."""

    ir: ir.Model
    frozen: Frozen
    notes: list[Finding]
    budget: Budget


def read(path: Path) -> Opened:
    """Read, check and repair a model; its large tensors stay in their files, which are not changed.

    Raises:
        InputError: the file is missing, not ONNX, cut short or hostile.
        ModelRefused: the file is ONNX, but has no outputs, has content that dmlprep cannot preserve (training graphs,
            maps), or would grow beyond its limits.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    with paused_collector():
        try:
            return _read(path)
        except UnicodeError as error:  # protobuf returns text that is not UTF-8 as bytes, and does not accept it back
            raise invalid("the model is invalid: a name or text in it is not UTF-8", str(path)) from error


def _read(path: Path) -> Opened:
    proto, size = _parse(path)
    check_bounds(proto, str(path))
    check_attributes(proto, str(path))
    budget = Budget(file_bytes=size, file_nodes=sum(1 for _ in protos.nodes(proto)))
    spend_on_functions(proto, budget, str(path))
    spread = densify(proto, budget, str(path))
    try:
        notes = mend(proto)
    except InputError as error:
        error.where = str(path)
        raise
    _check_references(proto, path)
    try:
        model = ir.from_proto(proto)
    except (NotImplementedError, ir.serde.SerdeError, ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(_cause(error), NotImplementedError):
            what = f"the model uses an unsupported type: {_first_line(error).partition('.')[0]}"
            fix = "export the model without map types (zipmap=False) and sparse types"
            raise ModelRefused(what, where=str(path), code="DP004", fix=fix) from error
        raise invalid(f"the model is invalid: {_first_line(error)}", str(path)) from error
    _forget_undefined(model)
    budget.file_bytes = _map_external(model, path, spread) + size
    try:
        # Refuse content that cannot be written back (text that is not UTF-8, attributes without a type).
        frozen = freeze(model)
    except (ir.serde.SerdeError, ValueError, TypeError) as error:
        raise invalid(f"the model is invalid: {_first_line(error)}", str(path)) from error
    whole = all(value.type is not None and value.shape is not None for value in model.graph.outputs)
    notes += describe_ends(model)
    if not whole:  # the outputs may have new types
        frozen = freeze(model)
    if dropped := drop_wrong_shapes(model, frozen):
        notes += dropped
        frozen = freeze(model)
    return Opened(model, frozen, [*notes, *own_operators(model), *random_nodes(model)], budget)


def _forget_undefined(model: ir.Model) -> None:
    """Remove type and shape of values whose element type is UNDEFINED, in place; they become values without a type."""
    graph = model.graph
    for value in (*graph.inputs, *graph.outputs, *(v for node in nodes(model) for v in node.outputs)):
        if isinstance(value.type, ir.TensorType) and value.type.dtype == ir.DataType.UNDEFINED:
            value.type = None
            value.shape = None  # ONNX writes no shape without a type


def check_name(path: Path, error: type[DmlprepError]) -> None:
    """Raise ``error`` if a path is not UTF-8, which ONNX Runtime, the locations of data files and JSON need."""
    try:
        str(path.absolute()).encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise error(
            "the path is not UTF-8, which ONNX Runtime needs",
            where=str(path),
            fix="rename the file or its folder; under a locale that is not UTF-8, set PYTHONUTF8=1",
        ) from wrong


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    cause = _cause(error)
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)


def _skeleton(path: Path) -> tuple[bytes, int]:
    """Return the content of a model file as bytes without large tensors, and the size of the file in bytes.

    Raises:
        InputError: the file is missing, cannot be read, or is not ONNX.
    """
    where = str(path)
    check_name(path, InputError)
    try:
        if path.is_dir():
            raise InputError("this is a folder", where=where, code="DP001", fix="pass the .onnx file inside it")
        size = path.stat().st_size
        if path.is_fifo():
            raise InputError("this is a pipe", where=where, code="DP001", fix=_NO_STREAM)
        if size == 0:
            raise InputError("the file is empty", where=where, code="DP001", fix="export or copy the model again")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return skeleton(data), size
    except FileNotFoundError as error:
        fix = "check the path" if where != "-" else _NO_STREAM
        if FileSet(path.parent, path.name).aside.is_dir():
            fix = "a run was stopped while it replaced this file: run the same prepare again to restore the file"
        else:
            fix = meant(path, fix)
        raise InputError("no such file", where=where, code="DP001", fix=fix) from error
    except OSError as error:
        raise unreadable(error, path, code="DP001") from error
    except InputError as error:
        raise InputError(error.what, where=error.where or where, code=error.code, fix=error.fix) from None


def _parse(path: Path) -> tuple[onnx.ModelProto, int]:
    """Return the parsed model without its large tensors, and the size of the file in bytes.

    Raises:
        InputError: the file is missing, cannot be read, or is not ONNX.
        ModelRefused: it has no outputs, has training information, or nests graphs too deep.
    """
    where = str(path)
    light, size = _skeleton(path)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(light)
    except DecodeError as error:
        if "MaxDepth" in str(error):  # of protobuf's own parser (upb)
            what = f"graphs are nested too deeply: at most {MAX_NESTING} are allowed"
            raise too_large(what, where, LESS_NESTED) from error
        raise InputError("the file is not an ONNX model", where=where, code="DP001", fix=_NOT_ONNX) from error
    _demand_graph(proto, where)
    for entry in (entry for holder in (proto, *proto.functions) for entry in holder.opset_import):
        if entry.domain == "ai.onnx":
            entry.domain = ""  # two spellings of one domain; onnx-ir changes nodes to the short one, but not this
    return proto, size


def _demand_graph(proto: onnx.ModelProto, where: str) -> None:
    """Raise for a model without a graph, outputs or an opset, and for one with training information."""
    if not proto.HasField("graph") or not proto.ir_version or not (proto.graph.node or proto.graph.output):
        raise InputError("the file is not an ONNX model", where=where, code="DP001", fix=_NOT_ONNX)
    if not proto.graph.output:
        fix = "declare its results as outputs, and export it again"
        raise ModelRefused("the model has no outputs", where=where, code="DP017", fix=fix)
    if not proto.opset_import:
        raise invalid("the model has no opset, which ONNX Runtime needs", where)
    if proto.training_info:
        what = "the model has training information, which dmlprep does not support"
        raise ModelRefused(what, where=where, code="DP004", fix="export the inference model")


def _check_references(proto: onnx.ModelProto, path: Path) -> None:
    """Raise InputError if a reference to external data is malformed, or if nothing in the graph computes an output."""
    for tensor in protos.tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL and (wrong := _wrong_reference(tensor)):
            raise invalid(wrong, f"{path}: tensor {tensor.name!r}", "DP002")
    graph = proto.graph
    sources = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    sources.update(name for node in graph.node for name in node.output)
    missing = next((v.name for v in graph.output if v.name not in sources), None)
    if missing is not None:
        raise invalid(f"no node computes the output {missing!r}", str(path))


def _wrong_reference(tensor: onnx.TensorProto) -> str:
    """Return what is wrong with a tensor's reference to its data; empty where it is valid."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return "its strings are in a data file, which ONNX does not define"
    keys = [entry.key for entry in tensor.external_data]
    if keys.count("location") != 1 or keys.count("offset") > 1 or keys.count("length") > 1:
        return "the location of its data is missing or duplicated"
    for entry in tensor.external_data:
        number = entry.value
        if entry.key in ("offset", "length") and not (number.isascii() and number.isdigit() and len(number) < 20):
            shown = number if len(number) <= 40 else f"{number[:20]}... of {len(number)} characters"
            return f"the {entry.key} of its data is {shown!r}"
    return ""


def _map_external(model: ir.Model, path: Path, spread: Sequence[SpreadTensor]) -> int:
    """Replace references to data by tensors that read their file on demand, in place; check sizes and files first.

    ``spread`` are the tensors that were sparse in the file.

    Returns:
        the size of all external data files in bytes, without the model file.
    """
    folder = path.parent.resolve()
    checked: dict[str, tuple[Path, int]] = {}

    def mapped(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if not isinstance(tensor, ir.ExternalTensor):
            _check_size(tensor, path)
            return tensor
        location = str(tensor.location)
        if location == SPARSE:
            return spread[tensor.offset or 0]
        if location not in checked:
            checked[location] = (path, path.stat().st_size) if location == SELF else _data_file(location, folder, path)
        file, size = checked[location]
        needed, where = _nbytes(tensor, path), f"{path}: tensor {tensor.name!r}"
        offset, length = tensor.offset or 0, needed if tensor.length is None else tensor.length
        if offset < 0 or length < 0 or offset + length > size:
            what = f"its data (offset {offset}, {length} bytes) is outside {file.name} ({size} bytes)"
            raise InputError(what, where=where, code="DP002", fix="copy the data file again completely")
        if length != needed:
            raise invalid(f"shape and type need {needed} bytes, the file has {length}", where, "DP002")
        shape = ir.Shape(tensor.shape.numpy())
        return MappedTensor(file, offset, length, tensor.dtype, shape, tensor.name or "", tensor.doc_string)

    map_tensors(model, mapped)
    return sum(size for file, size in dict(checked.values()).items() if file != path)


def _nbytes(tensor: ir.TensorProtocol, path: Path) -> int:
    where = f"{path}: tensor {tensor.name!r}"
    if any(d < 0 for d in tensor.shape.numpy()):
        raise invalid("a tensor has a negative size", where)
    if tensor.dtype == ir.DataType.UNDEFINED:
        raise invalid("a tensor has no element type", where)
    return int(tensor.nbytes)


def _check_size(tensor: ir.TensorProtocol, path: Path) -> None:
    """Raise InputError if a small tensor does not have as many bytes or elements as its shape and type need."""
    proto = getattr(tensor, "raw", None)
    if isinstance(tensor, ir.StringTensor):
        needed, actual, unit = tensor.size, len(tensor.string_data()), "elements"
    elif not isinstance(proto, onnx.TensorProto):
        return
    elif proto.HasField("raw_data"):
        needed, actual, unit = _nbytes(tensor, path), len(proto.raw_data), "bytes"
    else:
        nbytes, unit = _nbytes(tensor, path), "elements"
        needed = nbytes if tensor.dtype.bitwidth in (2, 4) else tensor.size  # packed types: one number for each byte
        if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
            needed *= 2
        actual = len(getattr(proto, onnx.helper.tensor_dtype_to_field(proto.data_type)))
    if actual != needed:
        raise invalid(f"shape and type need {needed} {unit}, the file has {actual}", f"{path}: tensor {tensor.name!r}")


def leaves_folder(location: str) -> bool:
    """Return whether the location of a data file is empty or absolute, has a null character, or goes up with ``..``."""
    pure = location.replace("\\", "/")
    return not location or "\x00" in location or pure.startswith("/") or pure[1:2] == ":" or ".." in pure.split("/")


def _data_file(location: str, folder: Path, path: Path) -> tuple[Path, int]:
    """Return path and size in bytes of the data file of a location.

    Raises:
        InputError: DP002, the file is missing, or is not a plain file inside the model's folder.
    """
    where = f"{path}: external data {location!r}"

    def refuse(
        what: str, fix: str = "keep the data file itself, not a link, in the model's folder or below it"
    ) -> InputError:
        return InputError(what, where=where, code="DP002", fix=fix)

    pure = location.replace("\\", "/")
    if leaves_folder(location):
        raise refuse("the path is invalid, or outside the model's folder")
    if "\\" in location and sys.platform != "win32":
        # ONNX Runtime reads it as a part of the file's name here, so that no check would hold.
        raise refuse(
            "the path has a backslash, a folder separator only on Windows",
            "prepare the model on Windows, or save it with / in the locations of its data",
        )
    file, step = folder / pure, folder
    for part in Path(pure).parts:
        if sys.platform == "win32" and (wrong := windows_name_problem(part)):
            raise refuse(f"{part!r} {wrong}", "save the model with another name of its data file")
        step = step / part
        try:
            if leads_elsewhere(os.lstat(step)):
                raise refuse("the path goes through a symbolic link or a junction")
        except (FileNotFoundError, NotADirectoryError):
            break
        except OSError as error:
            raise unreadable(error, step, code="DP002") from error
    if not file.exists():
        raise refuse("the data file is missing", "copy it to this path, relative to the model's folder")
    if not file.is_file():
        raise refuse("the path is not a regular file")
    # Finally, compare the resolved path, which follows links of any kind.
    if not file.resolve().is_relative_to(folder):
        raise refuse("the path is outside the model's folder")
    status = os.stat(file)
    if status.st_nlink > 1:
        raise refuse("the file has more than one hard link")
    return file, status.st_size
