"""A mirror that lies: what a root file system is made of is what Debian's archive has today, or nothing."""

from __future__ import annotations

import hashlib
import lzma
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dmlprep.core.errors import CheckNotRun, OutputError, UsageError
from dmlprep.runtime.linux import base, first_use, mirror, rootfs
from dmlprep.runtime.linux import install as installation
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.source import AptMirror, Source
from tests.runtime.debian import (
    GPG,
    FakeMirror,
    Keys,
    answer,
    date,
    deb,
    link,
    made_keys,
    member,
    release_text,
    serving,
    without_end,
)

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the runtime is for Linux"), GPG]

ZLIB = "usr/x86_64-w64-mingw32/lib/zlib1.dll"
PLACE = f"{rootfs.WINE}/x86_64-windows"
WINE = deb(member(f"./{ZLIB}", bytes(range(128))), member(f"./{PLACE}/d3d12.dll", b"Wine's own"))


@pytest.fixture(scope="module")
def keys() -> Iterator[Keys]:
    with made_keys() as made:
        yield made


@pytest.fixture
def fake(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMirror]:
    """A mirror with one suite, stable, whose package wine needs the package tool."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(base, "SUITES", ("stable",))
    monkeypatch.setattr(base, "ROOTS", ("wine", "tool"))
    monkeypatch.setattr(base, "PREFER", {})
    monkeypatch.setattr(base, "OLDEST", {})
    monkeypatch.setattr(rootfs, "mirror_of_this_system", AptMirror)
    with serving(FakeMirror(keys)) as made:
        made.add_suite("stable", {"wine": WINE, "tool": deb(member("./usr/bin/tool", b"tool", mode=0o6755))})
        yield made


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "runtime")
    made.home.mkdir()
    return made


def make(layout: Layout, fake: FakeMirror, **source: object) -> dict[str, object]:
    assert fake.keys is not None
    asked = replace(Source(fake.url, fake.keys.keyring), **source)  # type: ignore[arg-type]
    return rootfs.make_root(layout, asked, lambda *_: None)


def refused(layout: Layout, fake: FakeMirror, reason: str, **source: object) -> str:
    """How to mend it; nothing was put in place, and nothing half fetched is left."""
    with pytest.raises((CheckNotRun, UsageError), match=reason) as caught:
        make(layout, fake, **source)
    assert not layout.root.exists()
    assert not list(layout.home.glob("downloads/*.part"))
    return caught.value.fix


def test_a_mirror_that_tells_the_truth(layout: Layout, fake: FakeMirror) -> None:
    made = make(layout, fake)
    assert (layout.root / "usr/bin/tool").read_bytes() == b"tool"
    assert (layout.root / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    marked = (layout.root / PLACE / "zlib1.dll").read_bytes()
    assert marked == bytes(range(64)) + b"Wine builtin DLL" + bytes(16) + bytes(range(96, 128))
    assert not (layout.root / PLACE / "d3d12.dll").exists()
    signatures = made["signatures"]
    assert isinstance(signatures, dict)
    assert signatures["stable"].startswith("signed by ")
    assert [row["name"] for row in made["packages"]] == ["wine", "tool"]  # type: ignore[attr-defined]
    # A second time fetches no package again.
    fake.asked.clear()
    make(layout, fake)
    assert not [path for path in fake.asked if path.startswith("pool")]


@pytest.mark.parametrize(
    ("key", "fields", "reason"),
    [
        ("expired", {}, "has expired"),
        ("revoked", {}, "was revoked"),
        ("good", {"Valid_Until": date(days=-1)}, "has expired on"),
        ("good", {"Codename": "unstable"}, "'unstable'"),
        ("good", {"Date": date(days=3)}, "from the future"),
        # All of them at once, which was taken once.
        ("revoked", {"Valid_Until": "Fri, 01 Jan 1999 00:00:00 UTC", "Codename": "sarge"}, "was revoked"),
    ],
)
def test_replays(layout: Layout, fake: FakeMirror, key: str, fields: dict[str, str], reason: str) -> None:
    fake.add_release("stable", release_text("stable", {}, **fields), key)
    refused(layout, fake, reason)
    assert fake.asked == ["dists/stable/InRelease"]
    assert first_use.suites_seen(layout) == {}


def test_an_older_release_than_was_seen_is_refused(layout: Layout, fake: FakeMirror) -> None:
    packages = {"wine": WINE, "tool": deb(member("./usr/bin/tool", b"older"))}
    make(layout, fake)
    fake.add_suite("stable", packages, Date=date(days=-1))
    with pytest.raises(CheckNotRun, match="goes back in time"):
        make(layout, fake)
    assert (layout.root / "usr/bin/tool").read_bytes() == b"tool"
    fake.add_suite("stable", packages, Date=date(hours=1))
    make(layout, fake)
    assert (layout.root / "usr/bin/tool").read_bytes() == b"older"
    assert first_use.suites_seen(layout)["stable"] > datetime.now(UTC)


def test_a_mirror_that_is_a_copy_of_one_day(layout: Layout, fake: FakeMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add_suite("stable", {"wine": WINE, "tool": deb()}, Date=date(days=-60), Valid_Until=date(days=-53))
    assert "check-valid-until=no" in refused(layout, fake, "has expired on")
    # The mirror that apt uses here, as apt takes it; another one not.
    monkeypatch.setattr(rootfs, "mirror_of_this_system", lambda: AptMirror(fake.url, "apt is told so"))
    assert "because apt is told so" in str(make(layout, fake, mirror="")["signatures"])
    monkeypatch.setattr(rootfs, "mirror_of_this_system", lambda: AptMirror("http://elsewhere/debian", "apt is told so"))
    with pytest.raises(CheckNotRun, match="has expired on"):
        make(layout, fake)


@pytest.mark.parametrize(
    "path", ["dists/stable/InRelease", "dists/stable/main/binary-amd64/Packages.xz", "pool/tool.deb"]
)
def test_an_answer_without_end(layout: Layout, fake: FakeMirror, path: str) -> None:
    fake.files[path] = without_end
    refused(layout, fake, r"longer than the requested file: \d+ bytes and more")
    assert fake.asked.count(path) == 1


def test_an_answer_that_says_it_is_longer_is_not_read(layout: Layout, fake: FakeMirror) -> None:
    fake.files["pool/tool.deb"] = lambda handler: answer(handler, b"", 1 << 50)
    refused(layout, fake, f"{1 << 50} bytes and more")


@pytest.mark.parametrize("told", [None, 400], ids=["says so", "says it is whole"])
@pytest.mark.parametrize("path", ["dists/stable/main/binary-amd64/Packages.xz", "pool/tool.deb"])
def test_an_answer_that_is_cut_short(layout: Layout, fake: FakeMirror, path: str, told: int | None) -> None:
    whole = fake.files[path]
    assert isinstance(whole, bytes)
    length = told and len(whole)
    fake.files[path] = lambda handler: answer(handler, whole[:100], length)
    assert "run it again" in refused(layout, fake, f"ended after 100 of {len(whole)} bytes")
    assert fake.asked.count(path) == 3, "it may be by chance"


def test_a_release_file_that_is_cut_short(layout: Layout, fake: FakeMirror) -> None:
    whole = fake.files["dists/stable/InRelease"]
    assert isinstance(whole, bytes)
    fake.files["dists/stable/InRelease"] = whole[:200]
    refused(layout, fake, "not a signed release file|no signature")


def test_an_answer_that_never_ends_for_it_is_slow(
    layout: Layout, fake: FakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(mirror.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(mirror, "CHUNK", 1)
    refused(layout, fake, "too slow")


@pytest.mark.parametrize("path", ["dists/stable/main/binary-amd64/Packages.xz", "pool/wine.deb"])
def test_a_file_with_another_digest(layout: Layout, fake: FakeMirror, path: str) -> None:
    whole = fake.files[path]
    assert isinstance(whole, bytes)
    fake.files[path] = whole[:-1] + b"!"
    assert "use another mirror" in refused(layout, fake, "does not match the signed index")


def test_an_index_that_unpacks_to_more_than_it_says(layout: Layout, fake: FakeMirror) -> None:
    bomb = lzma.compress(bytes(64 << 20), preset=0)
    rows = {
        "main/binary-amd64/Packages": ("0" * 64, 1 << 20),
        "main/binary-amd64/Packages.xz": (hashlib.sha256(bomb).hexdigest(), len(bomb)),
    }
    fake.files["dists/stable/main/binary-amd64/Packages.xz"] = bomb
    fake.add_release("stable", release_text("stable", rows))
    refused(layout, fake, "makes more than 1 MiB")


@pytest.mark.parametrize("size", [0, 1 << 40])
def test_an_index_of_a_size_that_none_has(layout: Layout, fake: FakeMirror, size: int) -> None:
    rows = {"main/binary-amd64/Packages.xz": ("0" * 64, size)}
    fake.add_release("stable", release_text("stable", rows))
    refused(layout, fake, "invalid index of .* bytes")


@pytest.mark.parametrize(
    ("stanza", "reason"),
    [
        ("Package: wine\nVersion: 1\nFilename: pool/../../x.deb\nSize: 1\n", "index is broken: Filename"),
        ("Package: wine\nVersion: 1\n", "index is broken"),
        ("Package: other\n", "lacks wine"),
        ("", "lacks wine"),
    ],
)
def test_an_index_that_is_broken(layout: Layout, fake: FakeMirror, stanza: str, reason: str) -> None:
    fake.add_index("stable", f"{stanza}SHA256: {'0' * 64}\n\n".encode())
    refused(layout, fake, reason)


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        # A link where install would write, or would read, or in a folder on the way.
        ([link(f"./{PLACE}/zlib1.dll", "{outside}/file")], ""),
        ([link("./usr/bin/g++", "{outside}/file")], ""),
        ([link(f"./{PLACE}/d3d12.dll", "{outside}/file")], ""),
        ([link(f"./{rootfs.WINE}", "{outside}")], "is outside|is a folder|is duplicated"),
        ([link("./usr/x86_64-w64-mingw32", "{outside}")], "is outside|is a folder|is duplicated"),
        ([link("./usr/lib/x86_64-linux-gnu", "{outside}")], "is outside|is a folder|is duplicated"),
        ([link("./exchange", "{outside}")], "is a folder"),
        ([link("./usr/bin", "{outside}"), member("./usr/bin/x", b"x")], "is a folder"),
        ([link("./a", "{outside}"), member("./a/x", b"x")], "is outside"),
        ([link("./a", "{outside}/file"), member("./a", b"x")], "is duplicated"),
        ([link("./a", "{outside}/new"), member("./a", b"x")], "is duplicated"),
        ([member("./a/../../x", b"x")], "is outside"),
        ([member("./lib/../../../x", b"x")], "is outside"),
        ([member("/usr/bin/x", b"x")], "is outside"),
        ([member("./dev/x", type=b"3", devmajor=1, devminor=1)], "not an ordinary file"),
        ([member("./pipe", type=b"6")], "not an ordinary file"),
        ([member("./h", type=b"1", linkname="../../file")], "is outside"),
        ([link("./l", "{outside}/file"), member("./h", type=b"1", linkname="./l")], "is not a file"),
    ],
)
def test_a_package_that_plants_links(
    layout: Layout, fake: FakeMirror, tmp_path: Path, planted: list[object], reason: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine" * 64)
    for info, _ in planted:  # type: ignore[misc]
        info.linkname = info.linkname.replace("{outside}", str(outside))
    fake.add_suite("stable", {"wine": deb(*planted), "tool": WINE})  # type: ignore[arg-type]
    if reason:
        with pytest.raises((CheckNotRun, installation.LeadsOut), match=reason):
            make(layout, fake)
        assert not layout.root.exists()
    else:
        make(layout, fake)
        assert not (layout.root / PLACE / "zlib1.dll").is_symlink()
        assert not os.path.lexists(layout.root / PLACE / "d3d12.dll")
    assert sorted(path.name for path in outside.iterdir()) == ["file"]
    assert (outside / "file").read_bytes() == b"mine" * 64


def test_a_root_file_system_that_install_would_read_from_outside(
    layout: Layout, fake: FakeMirror, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret" * 64)
    fake.add_suite("stable", {"wine": deb(link(f"./{ZLIB}", str(tmp_path / "secret"))), "tool": deb()})
    with pytest.raises(CheckNotRun, match=r"dmlprep refuses the downloaded packages: .* is a link"):
        installation.install(layout, Source(fake.url, fake.keys and fake.keys.keyring), lambda *_: None)  # type: ignore[arg-type]
    assert not layout.root.exists()


def test_a_full_disk_is_not_the_mirror_s_fault(
    layout: Layout, fake: FakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mirror, "copy_body", full)
    assert fake.keys is not None
    with pytest.raises(OutputError, match="No space left"):
        installation.install(layout, Source(fake.url, fake.keys.keyring), lambda *_: None)
    assert len(fake.asked) == 1
