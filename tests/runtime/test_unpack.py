"""Packages that are hostile: what they hold lands below the root file system, or they are refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from dmlprep.runtime.linux.bounded import Budget, Forward, TooLarge, inflate
from dmlprep.runtime.linux.safe_fs import Beneath, LeadsOut
from dmlprep.runtime.linux.unpack import BadPackage, unpack
from tests.runtime.debian import deb, deb_of, link, member, tar_of

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the runtime is for Linux")


def put(content: bytes, folder: Path, limit: int = 1 << 24, skip: tuple[str, ...] = ()) -> Path:
    """Unpack a package into ``folder/root``."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    (folder / "a.deb").write_bytes(content)
    unpack(folder / "a.deb", root, skip, Budget(limit, "it"))
    return root


@linux
def test_unpack(tmp_path: Path) -> None:
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/lib").symlink_to("usr/lib")
    package = deb(
        member("./usr/bin/tool", b"x", mode=0o4755),
        link("./usr/bin/other", "tool"),
        member("./usr/bin/same", type=tarfile.LNKTYPE, linkname="./usr/bin/tool"),
        member("./lib/libx.so", b"y"),
        member("./usr/share/doc/a/b", b"z"),
        member("./var/empty", type=tarfile.DIRTYPE),
    )
    put(package, tmp_path, skip=("usr/share/doc/",))
    root = put(package, tmp_path, skip=("usr/share/doc/",))  # a second time, over the first
    assert (root / "usr/bin/other").read_bytes() == b"x"
    assert (root / "usr/bin/same").samefile(root / "usr/bin/tool")
    assert (root / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (root / "usr/lib/libx.so").read_bytes() == b"y"
    assert (root / "usr/lib/libx.so").stat().st_mode & 0o7777 == 0o644
    assert (root / "var/empty").is_dir()
    assert not (root / "usr/share").exists()


@linux
@pytest.mark.parametrize(
    "name", ["./usr/../../evil", "/evil", "usr/out/evil", "usr/out/deep/evil", "./usr/./evil", "./usr//evil"]
)
def test_unpack_stays_inside(tmp_path: Path, name: str) -> None:
    (tmp_path / "root/usr").mkdir(parents=True)
    (tmp_path / "root/usr/out").symlink_to(tmp_path)
    with pytest.raises(BadPackage, match="is outside"):
        put(deb(member(name, b"x")), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.deb", "root"]
    assert not Path("/evil").exists()


@linux
def test_a_link_that_comes_and_goes_while_others_are_unpacked(tmp_path: Path) -> None:
    """One package makes a link of a folder's name, again and again, while another one puts files into that folder."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for path in (root, outside):
        path.mkdir()
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):  # the folder is there
                os.symlink(outside, root / "shared")
                os.unlink(root / "shared")

    thread = threading.Thread(target=flip)
    thread.start()
    outcomes = set()
    try:
        for number in range(500):
            try:
                with Beneath(root) as below, below.create(f"shared/sub/{number}") as file:
                    file.write(b"x")
                os.rename(root / "shared", root / f"shared.{number}")
                outcomes.add("below")
            except (LeadsOut, OSError):
                outcomes.add("refused")
    finally:
        stop.set()
        thread.join()
    assert list(outside.iterdir()) == []
    assert "below" in outcomes


def header(name: bytes = b"x", size: bytes = b"00000000000", kind: bytes = b"0") -> bytes:
    """A header of a tar archive as bytes, with fields that ``tarfile`` would not write."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\00000"
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}".encode() + b"\0 "
    return bytes(block)


def pax(fields: bytes, kind: bytes = b"x") -> bytes:
    return header(b"pax", f"{len(fields):011o}".encode(), kind) + fields.ljust(-(-len(fields) // 512) * 512, b"\0")


END = bytes(1024)


@linux
@pytest.mark.parametrize(
    ("tar", "reason"),
    [
        (pax(b"12 comment=x\n", b"g") + header() + END, "header for all"),
        (header(b"p", b"77777777777", b"x") + END, "a header of"),
        (header(b"p", b"77777777777", b"L") + END, "a header of"),
        (pax(b"12 size=-99\n") + header() + END, "not an ordinary file"),
        (pax(b"14 size=-9999\n") + header(kind=b"7") + END, "backward offsets|not an ordinary file"),
        (header(size=b"\xff" * 12) + END, "not an ordinary file"),
        (header(size=b"77777777777") + END, "unexpected end"),
        (b"".join(pax(b"12 comment=x\n") for _ in range(2000)) + header() + END, "recursion"),
        (b"\xff" * 2048, "checksum|header"),
        (header() + b"\xff" * 2048, "truncated"),
        (tar_of([member("x", b"")])[:700], "truncated"),
        (tar_of([member("x", b"abc")])[:700], "unexpected end"),
    ],
    ids=[
        *("for all", "pax 8 GiB", "name 8 GiB", "size below 0", "back", "size below 0, binary", "short", "deep", "odd"),
        *("odd later", "cut", "cut in a file"),
    ],
)
def test_headers_that_lie(tmp_path: Path, tar: bytes, reason: str) -> None:
    with pytest.raises(BadPackage, match=reason):
        put(deb_of(tar), tmp_path)


@linux
def test_a_sparse_file_has_no_size_of_its_own(tmp_path: Path) -> None:
    fields = b"".join(
        f"{len(text) + 4} {text}\n".encode()
        for text in ("GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=9999999999999", "GNU.sparse.map=0,0")
    )
    with pytest.raises(BadPackage, match="not an ordinary file"):
        put(deb_of(pax(fields) + header() + END), tmp_path)


@linux
@pytest.mark.parametrize("name", ["data.tar.xz", "data.tar.gz", "data.tar"])
def test_a_bomb_ends_at_its_budget(tmp_path: Path, name: str) -> None:
    tar = tar_of([member("big", bytes(40 << 20))])
    if name.endswith(".gz"):
        tar = gzip.compress(tar, 1)
    with pytest.raises(BadPackage, match="it makes more than 16 MiB"):
        put(deb_of(tar, name), tmp_path)
    written = (tmp_path / "root/big").stat().st_size
    assert written <= 16 << 20


@linux
def test_one_budget_is_for_all_packages(tmp_path: Path) -> None:
    budget = Budget(3 << 20, "it")
    (tmp_path / "a.deb").write_bytes(deb(member("big", bytes(1 << 20))))
    (tmp_path / "root").mkdir()
    unpack(tmp_path / "a.deb", tmp_path / "root", (), budget)
    unpack(tmp_path / "a.deb", tmp_path / "root", (), budget)
    with pytest.raises(BadPackage, match="makes more than 3 MiB"):
        unpack(tmp_path / "a.deb", tmp_path / "root", (), budget)


@linux
def test_many_small_files_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlprep.runtime.linux.unpack._MEMBERS", 10)
    with pytest.raises(BadPackage, match="more than 10 files"):
        put(deb(*(member(f"f{number}") for number in range(11))), tmp_path)


def test_a_decoder_that_asks_for_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = lzma.compress(b"x", preset=9)
    assert b"".join(inflate(io.BytesIO(packed), "xz", Budget(10, "it"))) == b"x"
    monkeypatch.setattr("dmlprep.runtime.linux.bounded._DICTIONARY", 1 << 24)
    with pytest.raises(lzma.LZMAError, match=r"[Mm]emory"):
        list(inflate(io.BytesIO(packed), "xz", Budget(10, "it")))


@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_compressed_data_that_is_cut_short_or_odd(kind: str) -> None:
    whole = lzma.compress(bytes(1000)) if kind == "xz" else gzip.compress(bytes(1000))
    assert b"".join(inflate(io.BytesIO(whole), kind, Budget(1000, "it"))) == bytes(1000)
    with pytest.raises(EOFError):
        list(inflate(io.BytesIO(whole[:-5]), kind, Budget(1000, "it")))
    with pytest.raises(TooLarge):
        list(inflate(io.BytesIO(whole), kind, Budget(999, "it")))


def test_a_file_that_only_goes_forward() -> None:
    file = Forward(iter([b"abc", b"defg"]))
    assert file.read(2) == b"ab"
    file.seek(4)
    assert (file.tell(), file.read(100), file.tell()) == (4, b"efg", 7)
    for wrong in (lambda: file.seek(3), lambda: file.read(1 << 30), lambda: file.read(-1)):
        with pytest.raises(TooLarge):
            wrong()


@pytest.mark.parametrize("raw", [b"", b"not an archive", b"!<arch>\nshort"])
@linux
def test_broken_packages(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(BadPackage):
        put(raw, tmp_path)
    with pytest.raises(BadPackage, match="cannot be read"):
        put(deb_of(b"", "data.tar.zst"), tmp_path)


@linux
@pytest.mark.parametrize("size", ["-60", "", "1_0", "٣", "99999999999"])
def test_an_ar_archive_that_lies_about_sizes(tmp_path: Path, size: str) -> None:
    head = f"{'debian-binary':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}".encode()
    raw = b"!<arch>\n" + head + size.encode()[:10].ljust(10) + b"`\n" + bytes(60)
    with pytest.raises(BadPackage):
        put(raw, tmp_path)


# ---- files below a folder -------------------------------------------------------------------------------------------


@linux
def test_files_below_a_folder(tmp_path: Path) -> None:
    with Beneath(tmp_path) as below:
        with below.create("a/b/file", 0o755) as out:
            out.write(b"one")
        below.link("a/link", "b/file")
        below.hardlink("second/name", "a/b/file")
        assert (tmp_path / "second/name").samefile(tmp_path / "a/b/file")
        with below.read("a/b/file") as file:
            assert file.read() == b"one"
        assert sorted(below.files()) == ["a/b/file", "a/link", "second/name"]
        assert below.stat("a/none") is None
        assert below.stat("none/none") is None
        below.clear("a/link")
        assert not (tmp_path / "a/link").is_symlink()


@linux
def test_a_file_in_the_place_of_a_link_leaves_what_the_link_led_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/file").symlink_to(tmp_path / "mine")
    os.link(tmp_path / "mine", tmp_path / "in/second")
    with Beneath(tmp_path / "in") as below:
        for name in ("file", "second"):
            with below.create(name) as out:
                out.write(b"new")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "in/file").read_bytes() == (tmp_path / "in/second").read_bytes() == b"new"


@linux
@pytest.mark.parametrize("path", ["out/x", "file/x", "../x", "a/../x", "", "/x", "a\0b/x", "a\0b", ".", "a/."])
def test_paths_that_lead_out(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "out").symlink_to(tmp_path)
    (inside / "file").write_bytes(b"")
    with Beneath(inside) as below:
        for act in (
            lambda: below.create(path).__enter__(),
            lambda: below.read(path).__enter__(),
            lambda: below.link(path, "y"),
            lambda: below.hardlink(path, "file"),
            lambda: below.clear(path),
            lambda: below.stat(path),
        ):
            with pytest.raises(LeadsOut):
                act()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "in", "out"]


@linux
def test_what_is_read_is_a_file(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    os.mkfifo(inside / "pipe")
    (inside / "link").symlink_to("/dev/zero")
    (inside / "folder").mkdir()
    with Beneath(inside) as below:
        for name in ("pipe", "link", "folder"):
            with pytest.raises((LeadsOut, OSError)), below.read(name):
                pass
        with pytest.raises(LeadsOut, match="is a folder"):
            below.clear("folder")
    (tmp_path / "way").symlink_to(inside)
    with pytest.raises(LeadsOut):
        Beneath(tmp_path / "way")
