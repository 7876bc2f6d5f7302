"""The reading of a release: DirectML's table out of a DLL, and the table of all releases that it joins."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmlprep.directml.targets import find_target, target_names

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
TABLE = Path(__file__).resolve().parents[3] / "dmlprep" / "directml" / "targets" / "data" / "kernels.json"
BASE = 0x180000000
SECTION = 0x400
"""Where the one section of a made DLL begins in the file; its address is BASE + 0x1000."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import provider_table

    return provider_table


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    if sys.platform == "win32":
        pytest.skip("the script runs Windows Python in Wine, on Linux")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import read_release

    return read_release


def made_dll(records: list[tuple[str, int, int, tuple[int, ...], bool, int]]) -> bytes:
    """A DLL whose table has these records: name, version, mask of T, constant inputs, fuses, address of the query."""
    body = bytearray(8)

    def put(data: bytes) -> int:
        body.extend(bytes(-len(body) % 8) + data)
        return BASE + 0x1000 + len(body) - len(data)

    domain, label = put(b"\0"), put(b"T\0")
    labels = put(struct.pack("<Q", label))
    rows = [(put(name.encode() + b"\0"), put(struct.pack("<Q", mask)), *rest) for name, _, mask, *rest in records]
    body.extend(bytes(-len(body) % 8 + 160))
    for (name, types, const, fuses, query), (_, since, *_rest) in zip(rows, records, strict=True):
        record = struct.pack("<QQQ", name, since, domain).ljust(0x50, b"\0") + struct.pack("<QQQQ", 1, labels, 1, types)
        record += struct.pack("<I4Ii", not fuses, *const, *[0] * (4 - len(const)), len(const))
        record += struct.pack("<IIQQ", 2 if name == rows[0][0] else 0, name == rows[0][0], query, 0)
        body.extend(record)
    body.extend(bytes(160))
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 0xF0, 0)
    head += (struct.pack("<H", 0x20B).ljust(24, b"\0") + struct.pack("<Q", BASE)).ljust(0xF0, b"\0")
    head += b".rdata\0\0" + struct.pack("<IIII", len(body), 0x1000, len(body), SECTION)
    return head.ljust(SECTION, b"\0") + bytes(body)


def records() -> list[tuple[str, int, int, tuple[int, ...], bool, int]]:
    plain = [(f"Op{number}", 13, 0x1002, (), True, 0) for number in range(320)]
    return [
        ("Sum", 8, 0x2, (), True, 0),
        ("Pad", 21, 0x1F0, (1, 2, 3), True, 0),
        ("Slice", 10, (1 << 18) | (1 << 21), (), False, 0x180001000),
        ("DmlFusedConv", 1, 0x3C, (), True, 0),
        ("Shape", 1, (1 << 64) - 1, (), False, 0),
        *plain,
    ]


def test_the_table_is_read_whole_and_in_its_order(provider: Any) -> None:
    table = provider.provider_table(made_dll(records()))
    assert [(row.op, row.since) for row in table] == [(name, since) for name, since, *_ in records()]
    by_name = {row.op: row for row in table}
    assert by_name["Op0"].types == {"T": {"float", "float16"}}
    assert by_name["Sum"].fused_inputs == 2
    assert by_name["Pad"].const == (1, 2, 3)
    assert by_name["Slice"].types == {"T": {"seq(tensor(float))", "seq(tensor(uint8))"}}
    assert not by_name["Slice"].fuses
    assert by_name["Slice"].query == 0x180001000
    assert by_name["DmlFusedConv"].types == {"T": {"int4", "uint4", "uint8", "int8"}}
    assert {"double", "seq(tensor(bool))"} < by_name["Shape"].types["T"]
    assert "string" not in by_name["Shape"].types["T"]


def broken() -> Iterator[Any]:
    yield b"no DLL at all", "not a 64-bit DLL"
    whole = made_dll(records())
    yield whole.replace(b"DmlFusedConv", b"DmlFusedWonv"), "not found"
    yield made_dll(records()[:20]), "only 20 rows"
    yield whole.replace(struct.pack("<4Ii", 1, 2, 3, 0, 3), struct.pack("<4Ii", 1, 2, 3, 0, 99)), "another form, at Pad"


@pytest.mark.parametrize(("data", "text"), list(broken()))
def test_a_table_of_another_form_is_refused(provider: Any, data: bytes, text: str) -> None:
    with pytest.raises(provider.UnknownLayout, match=text):
        provider.provider_table(data)


def test_versions_and_options_of_a_library(provider: Any) -> None:
    info = struct.pack("<IIII", 0xFEEF04BD, 0x10000, (1 << 16) | 15, 4 << 16)
    assert provider.file_version(b"..." + info) == "1.15.4"
    with pytest.raises(provider.UnknownLayout):
        provider.file_version(b"nothing")
    text = b"\0ep.dml.disable_graph_fusion\0\0device_id\0my_device_id\0ep.dml.x.y\0"
    assert provider.option_names(text) == ["device_id", "ep.dml.disable_graph_fusion"]


@pytest.fixture
def known(release: Any) -> Any:
    """Gives what the table has of a release: ``known("ort-1.24")``."""
    releases, _ = release.read_table(TABLE)
    return {one.name: one for one in releases}.__getitem__


@pytest.mark.parametrize("name", target_names())
def test_the_opset_of_directml_follows_from_the_kernels(release: Any, name: str) -> None:
    target = find_target(name)
    assert release.directml_opset(target.tables.dml, target.max_opset) == target.dml_opset


def test_the_table_is_written_as_it_was_read(release: Any, tmp_path: Path) -> None:
    releases, sets = release.read_table(TABLE)
    assert [one.name for one in releases] == target_names()
    release.write_table(tmp_path / "kernels.json", releases, sets)
    assert (tmp_path / "kernels.json").read_bytes() == TABLE.read_bytes()


def test_a_new_release_leaves_the_others_as_they_are(release: Any, tmp_path: Path) -> None:
    """A kernel that is new, one that is gone, and one that changed and then returned."""
    releases, sets = release.read_table(TABLE)
    rows = dict(releases[-1].rows)
    rows["New", 1] = {"T": frozenset(["float", "never"])}, {}
    del rows["Conv", 11]
    middle = release.Release({**releases[-1].head, "ort_version": "1.31.0"}, rows, releases[-1].cpu)
    after = release.Release({**releases[-1].head, "ort_version": "1.32.0"}, releases[-1].rows, {})
    release.write_table(tmp_path / "kernels.json", [*releases, middle, after], sets)
    again, more = release.read_table(tmp_path / "kernels.json")
    assert again == [*releases, middle, after]
    assert more == [*sets, ["float", "never"]]


def answer(known: Any, **changes: Any) -> dict[str, Any]:
    """The answer of a release that has the kernels of a known one."""
    dml = {(op, since, 2**31 - 1): types for (op, since), (types, _) in known.rows.items()}
    kernels = []
    for provider, found in (("DmlExecutionProvider", dml), ("CPUExecutionProvider", known.cpu)):
        for (op, *versions), types in found.items():
            domain, _, name = op.rpartition("::")
            said = {label: [n if "(" in n else f"tensor({n})" for n in names] for label, names in types.items()}
            row = {"op": name, "domain": domain or "ai.onnx", "versions": versions, "provider": provider, "types": said}
            kernels.append(row)
    loaded = {"opset": {"loaded": list(range(7, 27))}, "ir": {"loaded": list(range(3, 14))}}
    return {"version": "1.30.0", "kernels": kernels, **loaded, **changes}


def table(release: Any, known: Any) -> list[Any]:
    """The provider's table that would give the rows of a known release."""
    addresses = {
        name: 4096 + i for i, name in enumerate(sorted({f["query"] for _, f in known.rows.values() if "query" in f}))
    }
    return [
        release.ProviderRow(
            op.rpartition("::")[2], op.rpartition("::")[0] or "ai.onnx", since, types, tuple(facts.get("const", ())),
            facts.get("fuses", True), facts.get("fused_inputs", 0), addresses.get(facts.get("query", ""), 0),
        )
        for (op, since), (types, facts) in known.rows.items()
        if facts.get("made_by", "dml") == "dml"
    ]  # fmt: skip


@pytest.fixture
def made(release: Any, known: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Reads a release that is made of ort-1.24's data: ``made(rows, answer)``."""
    known = known("ort-1.24")
    path = tmp_path / "onnxruntime_windowsml-1.30.0.2026-cp313-cp313-win_amd64.whl"
    path.write_bytes(b"")
    package = release.Package("onnxruntime-windowsml", "1.30.0.2026", path, b"", b"")
    monkeypatch.setattr(release, "file_version", lambda _: "1.15.4")

    def read(rows: list[Any], said: dict[str, Any], **given: Any) -> Any:
        monkeypatch.setattr(release, "provider_table", lambda _: rows)
        return release.read(
            package, said, "onnxruntime-windowsml 1.30.0.2026", known, {"query": {}, "feature_level": "", **given}
        )

    return read, known


def test_a_release_with_the_same_kernels_differs_in_its_numbers_only(release: Any, made: Any) -> None:
    read, known = made
    found = read(table(release, known), answer(known))
    assert found.rows == known.rows
    assert found.head["ort_version"] == "1.30.0"
    changed = {line.partition(":")[0] for line in found.differences(known)}
    assert changed == {"title", "package", "ort_version", "max_opset", "options"}


def test_a_kernel_that_the_table_lacks_is_refused(release: Any, made: Any) -> None:
    read, known = made
    said = answer(known)
    said["kernels"].append({"op": "Scan", "domain": "ai.onnx", "versions": [21, 2**31 - 1],
                            "provider": "DmlExecutionProvider", "types": {"V": ["tensor(float)"]}})  # fmt: skip
    with pytest.raises(release.MissingFact, match="Scan-21"):
        read(table(release, known), said)


def test_a_new_support_query_needs_its_name(release: Any, made: Any) -> None:
    read, known = made
    rows = [
        row if row.op != "Gemm" else release.ProviderRow(**{**vars(row), "query": 1}) for row in table(release, known)
    ]
    with pytest.raises(release.MissingFact, match=r"Gemm-\d+ is new.*queries\.py"):
        read(rows, answer(known))
    found = read(rows, answer(known), query={"Gemm": "QueryGemm"})
    assert found.rows["Gemm", 13][1]["query"] == "QueryGemm"


def test_a_range_that_was_too_short_is_refused(release: Any, made: Any) -> None:
    read, known = made
    with pytest.raises(release.MissingFact, match="raise the range"):
        read(table(release, known), answer(known, opset={"loaded": list(range(7, 41))}))
