"""Debian's indexes: versions, relations, signatures, unpacking."""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from pathlib import Path

import pytest

from dmlprep.errors import CheckNotRun, UsageError
from dmlprep.runtime.linux.archive import Archive, Unmet, compare_versions, parse_release, resolve
from dmlprep.runtime.linux.mirror import Mirror, mirror_of_this_system, verify_release
from dmlprep.runtime.linux.unpack import BadPackage, unpack

linux = pytest.mark.skipif(sys.platform == "win32", reason="the runtime is for Linux")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("10.0~repack-6", "10.0-1"),
        ("10.0~", "10.0~repack-6"),
        ("2.41-12+deb13u4", "2.43-7"),
        ("25.0.7-2", "25.0.7-2+deb13u1"),
        ("9.9", "1:0.1"),
        ("1.2-15", "2.1+ds-1"),
        ("1.0a", "1.0+"),
        ("1.0-1", "1.0-1.1"),
    ],
)
def test_versions_sort_as_debian_says(older: str, newer: str) -> None:
    assert compare_versions(older, newer) == -1
    assert compare_versions(newer, older) == 1
    assert compare_versions(newer, newer) == 0


def stanza(name: str, version: str = "1.0", **fields: str) -> str:
    lines = [f"Package: {name}", f"Version: {version}", f"Filename: pool/{name}.deb", "Size: 10", f"SHA256: {'0' * 64}"]
    return "\n".join([*lines, *(f"{key.replace('_', '-')}: {value}" for key, value in fields.items())])


def archive(suite: str, *stanzas: str) -> Archive:
    return Archive(suite, "\n\n".join(stanzas) + "\n\n")


def test_resolve_prefers_the_first_suite_and_goes_on_where_it_must() -> None:
    stable = archive(
        "stable",
        stanza("program", Depends="libc (>= 1.0), libnew (>= 2.0) | libold, virtual, sound"),
        stanza("libc", "1.5"),
        stanza("libnew", "1.0"),
        stanza("headers", Depends="libc (= 1.5)"),
        stanza("real", Provides="virtual (= 3), other"),
        stanza("sound", Depends="music"),
    )
    testing = archive(
        "testing", stanza("libnew", "2.1", Depends="libc (>= 2.0)"), stanza("libc", "2.2"), stanza("program")
    )
    found = resolve([stable, testing], ["program", "headers"], without=frozenset({"sound"}))
    assert {p.name: (p.version, p.suite) for p in found} == {
        "program": ("1.0", "stable"),
        "libc": ("2.2", "testing"),
        "libnew": ("2.1", "testing"),
        "real": ("1.0", "stable"),
        "headers": ("1.0", "stable"),
    }


def test_resolve_names_what_it_lacks() -> None:
    with pytest.raises(Unmet, match="music >= 3"):
        resolve([archive("stable", stanza("program", Depends="music (>= 3)"))], ["program"])


def test_release_file() -> None:
    text = "Origin: Debian\nMD5Sum:\n 00 1 x\nSHA256:\n abc 12 main/Packages.xz\n def 3 main/Contents\nOther: 1\n"
    assert parse_release(text) == {"main/Packages.xz": ("abc", 12), "main/Contents": ("def", 3)}


def test_a_forged_release_is_refused(tmp_path: Path) -> None:
    keyring = tmp_path / "keys.gpg"
    keyring.write_bytes(b"")
    raw = b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSHA256:\n aa 1 x\n-----BEGIN PGP SIGNATURE-----\n"
    with pytest.raises((UsageError, CheckNotRun)):
        verify_release(raw, keyring)
    with pytest.raises(CheckNotRun, match="--keyring"):
        verify_release(raw, tmp_path / "missing.gpg")
    text, how = verify_release(raw, None)
    assert parse_release(text) == {"x": ("aa", 1)}
    assert how == "not verified"


def test_a_file_with_the_wrong_digest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror("http://localhost/debian", None, lambda *_: None)
    monkeypatch.setattr(mirror, "_get", lambda _path: b"something else")
    package = archive("stable", stanza("program")).package("program")
    assert package is not None
    with pytest.raises(CheckNotRun, match="signed index"):
        mirror.fetch([package], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "sources.list",
            "deb [arch=amd64] http://mirror.example/debian bookworm main\n",
            "http://mirror.example/debian",
        ),
        (
            "sources.list.d/a.sources",
            "Types: deb\nURIs: https://mirror.example/debian/\n",
            "https://mirror.example/debian",
        ),
        ("sources.list.d/a.list", "deb http://mirror.example/ubuntu noble main\n", ""),
        ("sources.list", "# deb http://mirror.example/debian bookworm main\n", ""),
    ],
)
def test_the_mirror_of_this_system(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)
    assert mirror_of_this_system(tmp_path) == found


def deb(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], name: str = "data.tar.xz") -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    packed = lzma.compress(raw.getvalue())
    body = b"!<arch>\n"
    for member, data in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, packed)):
        body += (
            f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    path.write_bytes(body)
    return path


@linux
def test_unpack(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    program = tarfile.TarInfo("./usr/bin/tool")
    program.mode = 0o4755
    link = tarfile.TarInfo("./usr/bin/other")
    link.type, link.linkname = tarfile.SYMTYPE, "tool"
    package = deb(
        tmp_path / "a.deb",
        [
            (program, b"x"),
            (link, b""),
            (tarfile.TarInfo("./lib/libx.so"), b"y"),
            (tarfile.TarInfo("./usr/share/doc/a/b"), b"z"),
        ],
    )
    unpack(package, root, ("usr/share/doc/",))
    unpack(package, root, ("usr/share/doc/",))  # a second time, over the first
    assert (root / "usr/bin/other").read_bytes() == b"x"
    assert (root / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (root / "usr/lib/libx.so").read_bytes() == b"y"
    assert not (root / "usr/share").exists()


@linux
@pytest.mark.parametrize("name", ["./usr/../../evil", "/evil", "usr/out/evil"])
def test_unpack_stays_inside(tmp_path: Path, name: str) -> None:
    if name == "usr/out/evil":
        (tmp_path / "root/usr").mkdir(parents=True)
        (tmp_path / "root/usr/out").symlink_to(tmp_path)
    package = deb(tmp_path / "a.deb", [(tarfile.TarInfo(name), b"x")])
    with pytest.raises(BadPackage, match="leads out"):
        unpack(package, tmp_path / "root")
    assert not (tmp_path / "evil").exists()
    assert not Path("/evil").exists()


@pytest.mark.parametrize("raw", [b"", b"not an archive", b"!<arch>\nshort"])
def test_broken_packages(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.deb"
    path.write_bytes(raw)
    with pytest.raises(BadPackage):
        unpack(path, tmp_path / "root")
    with pytest.raises(BadPackage, match="cannot be read"):
        unpack(deb(tmp_path / "z.deb", [], "data.tar.zst"), tmp_path / "root")
