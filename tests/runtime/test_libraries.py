"""Packages of ONNX Runtime: fetched by digest, and their libraries taken out whatever else they hold."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from dmlprep.core.errors import CheckNotRun, InputError, UsageError
from dmlprep.runtime.linux import libraries, pins
from dmlprep.runtime.linux import wheel as fetching
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.libraries import unpack_libraries
from dmlprep.runtime.linux.wheel import fetch_release

linux = pytest.mark.skipif(sys.platform == "win32", reason="the runtime is for Linux")


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_libraries_of_a_wheel(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for version in ("1.19.2", "1.24.4", "1.9.0"):
        file = wheel(
            tmp_path / f"onnxruntime_directml-{version}-cp311-cp311-win_amd64.whl",
            "onnxruntime/capi/onnxruntime.dll",
            "onnxruntime/capi/DirectML.dll",
            "onnxruntime/capi/onnxruntime_pybind11_state.pyd",
            "onnxruntime/LICENSE",
        )
        assert unpack_libraries(file, layout.releases) == version
    assert layout.installed() == ["1.24.4", "1.19.2", "1.9.0"]
    assert sorted(p.name for p in layout.release("1.24.4").iterdir()) == [
        "DirectML.dll",
        "LICENSE",
        "onnxruntime.dll",
        "piece.json",
    ]
    piece = json.loads((layout.release("1.24.4") / "piece.json").read_text())
    assert set(piece["libraries"]) == {"onnxruntime.dll", "DirectML.dll"}


def test_a_wheel_of_windows_ml_is_its_release_without_the_time_of_its_build(tmp_path: Path) -> None:
    file = wheel(
        tmp_path / "onnxruntime_windowsml-1.30.0.202609102321-cp311-cp311-win_amd64.whl",
        "onnxruntime/capi/onnxruntime.dll",
        "onnxruntime/capi/DirectML.dll",
    )
    assert unpack_libraries(file, tmp_path / "releases") == "1.30.0"
    piece = json.loads((tmp_path / "releases" / "1.30.0" / "piece.json").read_text())
    assert piece["package"]["file"] == file.name


def index(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str]) -> list[str]:
    """Put these packages (requirement -> file) in place of pip's and npm's index; what is asked for is noted."""
    asked: list[str] = []

    def fetch(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        wanted = command[-1]
        asked.append(wanted)
        folder = Path(command[command.index("--pack-destination" if "npm" in command else "--dest") + 1])
        if wanted not in packages:
            return subprocess.CompletedProcess(command, 1, "", f"ERROR: No matching distribution found for {wanted}")
        (folder / packages[wanted]).write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("dmlprep.runtime.linux.wheel.run_tool", fetch)
    return asked


@pytest.mark.parametrize(
    ("version", "wanted", "file"),
    [
        ("1.24.4", "onnxruntime-directml==1.24.4", "onnxruntime_directml-1.24.4-cp311-cp311-win_amd64.whl"),
        ("1.23.2", "onnxruntime-windowsml==1.23.2.*", "onnxruntime_windowsml-1.23.2.2025-cp311-cp311-win_amd64.whl"),
        ("1.30.0", "onnxruntime-windowsml==1.30.0.*", "onnxruntime_windowsml-1.30.0.2026-cp311-cp311-win_amd64.whl"),
        ("1.30.0.2026", "onnxruntime-windowsml==1.30.0.2026", "onnxruntime_windowsml-1.30.0.2026-cp3-win_amd64.whl"),
        ("1.29.0", "onnxruntime-node@1.29.0", "onnxruntime-node-1.29.0.tgz"),
        ("1.18.0", "onnxruntime-node@1.18.0", "onnxruntime-node-1.18.0.tgz"),
    ],
)
def test_the_package_that_has_a_release_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str, file: str
) -> None:
    asked = index(monkeypatch, {wanted: file})
    monkeypatch.setattr(pins, "known_digests", dict)
    assert fetch_release(version, tmp_path, lambda *_: None) == tmp_path / file
    assert asked[-1] == wanted


NOTHING = "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""Of a file without any bytes, which is what ``index`` gives."""

KNOWN = {
    "onnxruntime_directml-1.24.4-cp313-cp313-win_amd64.whl": NOTHING,
    "onnxruntime_windowsml-1.24.4.2026-cp313-cp313-win_amd64.whl": NOTHING,
    "onnxruntime_directml-1.19.2-cp311-cp311-win_amd64.whl": NOTHING,
    "onnxruntime_windowsml-1.30.0.2026-cp313-cp313-win_amd64.whl": NOTHING,
    "onnxruntime_windowsml-1.30.0.2025-cp313-cp313-win_amd64.whl": NOTHING,
    "onnxruntime-node-1.30.0.tgz": "sha512-"
    "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
}


@pytest.mark.parametrize(
    ("version", "wanted", "file"),
    [
        ("1.24.4", "onnxruntime-directml==1.24.4", "onnxruntime_directml-1.24.4-cp313-cp313-win_amd64.whl"),
        ("1.24.4", "onnxruntime-windowsml==1.24.4.2026", "onnxruntime_windowsml-1.24.4.2026-cp313-cp313-win_amd64.whl"),
        ("1.19.2", "onnxruntime-directml==1.19.2", "onnxruntime_directml-1.19.2-cp311-cp311-win_amd64.whl"),
        ("1.30.0", "onnxruntime-windowsml==1.30.0.2026", "onnxruntime_windowsml-1.30.0.2026-cp313-cp313-win_amd64.whl"),
        ("1.30.0", "onnxruntime-node@1.30.0", "onnxruntime-node-1.30.0.tgz"),
    ],
)
def test_of_a_release_that_is_known_this_very_file_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str, file: str
) -> None:
    asked = index(monkeypatch, {wanted: file})
    monkeypatch.setattr(pins, "known_digests", lambda: KNOWN)
    assert fetch_release(version, tmp_path, lambda *_: None) == tmp_path / file
    assert asked[-1] == wanted
    assert not any(line.endswith(".*") for line in asked)


@pytest.mark.parametrize("file", [*KNOWN][-2:])
def test_a_package_with_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    index(monkeypatch, {"onnxruntime-windowsml==1.30.0.2025": file, "onnxruntime-node@1.30.0": file})
    monkeypatch.setattr(pins, "known_digests", lambda: {file: "sha512-0" if file.endswith("tgz") else "sha256-0"})
    with pytest.raises(CheckNotRun, match="other content: SHA-256 e3b0c44298fc1c14"):
        fetch_release("1.30.0", tmp_path, lambda *_: None)
    assert not (tmp_path / file).exists()


def test_another_build_of_a_release_that_is_known_does_not_pass_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip takes the file with the highest build number; its name is not known, so no digest would be."""
    index(monkeypatch, {"onnxruntime-directml==1.24.4": "onnxruntime_directml-1.24.4-9-cp313-cp313-win_amd64.whl"})
    monkeypatch.setattr(pins, "known_digests", lambda: {next(iter(KNOWN)): NOTHING})
    with pytest.raises(CheckNotRun, match=r"pip cannot fetch onnxruntime-directml 1\.24\.4"):
        fetch_release("1.24.4", tmp_path, lambda *_: None)


def test_every_release_of_a_target_is_known() -> None:
    known = pins.known_digests()
    for version in ("1.21.1", "1.22.0", "1.23.0", "1.24.4", "1.25.2", "1.26.0", "1.27.1", "1.28.3", "1.29.0", "1.30.0"):
        assert pins.pinned_files(version), version
    for name, digest in known.items():
        kind, _, value = digest.partition("-")
        assert (kind, len(value)) in (("sha256", 64), ("sha512", 88)), name
        assert pins.package_release(name), name
    # Where both lists name a package, they agree.
    for name, digest in pins.packages().items():
        if digest.startswith("sha256-"):
            assert known[name] == digest


@linux
def test_a_package_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = ("sh", "-c", f"head -c 9000000 /dev/zero >{tmp_path}/x.whl; echo ERROR: too large >&2; exit 1")
    monkeypatch.setattr(fetching, "offers", lambda *_: [fetching.Offer("endless 1", endless, "*.whl")])
    monkeypatch.setattr(fetching, "_LIMIT", 1 << 20)
    with pytest.raises(CheckNotRun, match="cannot fetch endless 1"):
        fetch_release("1.99.0", tmp_path, lambda *_: None)
    assert (tmp_path / "x.whl").stat().st_size <= 1 << 20


def test_a_release_that_no_package_has_names_all_that_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(monkeypatch, {})
    with pytest.raises(CheckNotRun, match=r"onnxruntime-windowsml 1\.99\.0.*onnxruntime-node 1\.99\.0") as caught:
        fetch_release("1.99.0", tmp_path, lambda *_: None)
    assert "--wheel FILE" in str(caught.value)


def test_libraries_of_an_npm_package(tmp_path: Path) -> None:
    file = tmp_path / "onnxruntime-node-1.18.0.tgz"
    with tarfile.open(file, "w:gz") as tar:
        for name in ("win32/x64/onnxruntime.dll", "win32/x64/DirectML.dll", "win32/arm64/onnxruntime.dll"):
            tar.addfile(tarfile.TarInfo(f"package/bin/napi-v3/{name}"), io.BytesIO())
    assert unpack_libraries(file, tmp_path / "releases") == "1.18.0"


@pytest.mark.parametrize(
    ("name", "files", "text"),
    [
        ("onnxruntime-1.24.4-win_amd64.whl", ["onnxruntime/capi/onnxruntime.dll"], "not a package"),
        ("onnxruntime_directml-1.18.1-x-win_amd64.whl", ["onnxruntime/capi/DirectML.dll"], "no onnxruntime.dll"),
        ("onnxruntime_directml-1.24.4-x-win_amd64.whl", None, "cannot be read"),
        ("onnxruntime-node-1.24.3.tgz", None, "cannot be read"),
    ],
)
def test_packages_that_are_refused(tmp_path: Path, name: str, files: list[str] | None, text: str) -> None:
    path = tmp_path / name
    if files is None:
        path.write_bytes(b"no archive")
    else:
        wheel(path, *files)
    with pytest.raises(InputError, match=text):
        unpack_libraries(path, tmp_path / "releases")
    assert not list((tmp_path / "releases").glob("*"))


@pytest.mark.parametrize("version", ["latest", "1.24.4; rm", "1.15.1"])
def test_releases_that_cannot_be_had(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError):
        fetch_release(version, tmp_path, lambda *_: None)


# ---- hostile packages ----------------------------------------------------------------------------------------------

CAPI = "onnxruntime/capi/"
WHEEL = "onnxruntime_directml-1.99.0-cp313-cp313-win_amd64.whl"
NPM = "onnxruntime-node-1.99.0.tgz"
X64 = "package/bin/napi-v6/win32/x64/"


def refused(path: Path, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        unpack_libraries(path, path.parent / "releases")
    assert not list((path.parent / "releases").glob("*"))


def zipped(path: Path, *more: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of one name: Windows writes \\ as /
        for name in ("onnxruntime.dll", "DirectML.dll"):
            archive.writestr(CAPI + name, name)
        for name_or_info, data in more:
            archive.writestr(name_or_info, data)
    return path


def tgz(path: Path, *more: tuple[tarfile.TarInfo, bytes]) -> Path:
    both = [(tarfile.TarInfo(X64 + name), name.encode()) for name in ("onnxruntime.dll", "DirectML.dll")]
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for info, data in [*both, *more]:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_paths_of_a_wheel_lead_nowhere(tmp_path: Path) -> None:
    paths = ["../evil.dll", f"../../{CAPI}evil.dll", f"/{CAPI}evil.dll", f"{CAPI}../evil.dll", f"{CAPI}..\\evil.dll"]
    file = zipped(tmp_path / WHEEL, *[(path, b"evil") for path in paths])
    assert unpack_libraries(file, tmp_path / "releases") == "1.99.0"
    assert names(tmp_path / "releases/1.99.0") == ["DirectML.dll", "onnxruntime.dll", "piece.json"]
    assert names(tmp_path) == [WHEEL, "releases"]


@linux
def test_links_in_packages_are_not_made(tmp_path: Path) -> None:
    info = zipfile.ZipInfo(f"{CAPI}link.dll")
    info.external_attr = 0o120777 << 16
    file = zipped(tmp_path / WHEEL, (info, b"/etc/passwd"))
    unpack_libraries(file, tmp_path / "releases")
    assert (tmp_path / "releases/1.99.0/link.dll").read_bytes() == b"/etc/passwd", "a file that holds the path"
    assert not (tmp_path / "releases/1.99.0/link.dll").is_symlink()
    soft, hard = tarfile.TarInfo(f"{X64}soft.dll"), tarfile.TarInfo(f"{X64}hard.dll")
    soft.type, soft.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, f"{X64}onnxruntime.dll"
    unpack_libraries(tgz(tmp_path / NPM, (soft, b""), (hard, b"")), tmp_path / "releases")
    assert names(tmp_path / "releases/1.99.0") == ["DirectML.dll", "onnxruntime.dll", "piece.json"]


def test_bombs_in_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_LIMIT", 1 << 20)
    refused(zipped(tmp_path / WHEEL, (f"{CAPI}big.dll", bytes(8 << 20))), "makes more than 1 MiB")
    refused(tgz(tmp_path / NPM, (tarfile.TarInfo("package/any"), bytes(8 << 20))), "makes more than 1 MiB")


def test_a_list_of_files_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_DIRECTORY", 1 << 12)
    refused(zipped(tmp_path / WHEEL, *[(f"file{number}", b"") for number in range(100)]), "list of files is too long")


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    refused(zipped(tmp_path / WHEEL, (f"{CAPI}directml.DLL".replace("DLL", "dll"), b"other")), "directml.dll twice")
    refused(tgz(tmp_path / NPM, (tarfile.TarInfo("package/bin/napi-v3/win32/x64/DirectML.dll"), b"x")), "twice")


def test_packages_that_zipfile_and_tarfile_stumble_over(tmp_path: Path) -> None:
    file = zipped(tmp_path / WHEEL)
    raw = bytearray(file.read_bytes())
    start, central = raw.index(b"PK\3\4"), raw.index(b"PK\1\2")
    for at, value, reason in ((6, 1, "encrypted"), (8, 99, "compression")):
        odd = bytearray(raw)
        odd[start + at] = odd[central + at + 2] = value
        file.write_bytes(odd)
        refused(file, reason)
    file.write_bytes(raw[: len(raw) // 2])
    refused(file, "cannot be read")
    packed = tgz(tmp_path / NPM)
    packed.write_bytes(packed.read_bytes()[:-20])
    refused(packed, "cannot be read")


def test_what_is_known_of_a_package_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = zipped(tmp_path / WHEEL)
    for known, verdict in (({}, "unpinned"), ({WHEEL: "sha256-0"}, "another")):
        monkeypatch.setattr(pins, "known_digests", lambda known=known: known)
        unpack_libraries(file, tmp_path / "releases")
        package = json.loads((tmp_path / "releases/1.99.0/piece.json").read_text(encoding="utf-8"))["package"]
        assert (package["file"], package["pin"]) == (WHEEL, verdict)
    monkeypatch.setattr(pins, "known_digests", lambda: {WHEEL: f"sha256-{package['sha256']}"})
    unpack_libraries(file, tmp_path / "releases", package["sha256"])
    assert '"pin": "pinned"' in (tmp_path / "releases/1.99.0/piece.json").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=f"SHA-256 {package['sha256']}, but the installed file .* has 0000"):
        unpack_libraries(file, tmp_path / "releases", "0000")
    assert (tmp_path / "releases/1.99.0/piece.json").is_file(), "the one that stands there stays"
