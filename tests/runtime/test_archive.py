"""Debian's indexes: versions, relations, what apt is set up to use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmlprep.runtime.linux.archive import Archive, BadIndex, Unmet, compare_versions, parse_release, resolve
from dmlprep.runtime.linux.source import mirror_of_this_system


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


@pytest.mark.parametrize("line", [" abc x main/Packages.xz", " abc 12", " abc 12 a b"])
def test_a_release_file_whose_list_is_broken(line: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|int"):
        parse_release(f"Origin: Debian\nSHA256:\n{line}\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"Filename": "../../etc/passwd.deb"},
        {"Filename": "pool/../../a.deb"},
        {"Filename": "/etc/a.deb"},
        {"Filename": "http://elsewhere/a.deb?x"},
        {"Size": "-1"},
        {"Size": "1e3"},
        {"Size": str(1 << 40)},
        {"SHA256": "../x"},
        {"SHA256": ""},
        {"Version": "a b"},
        {"Version": "x:1"},
    ],
)
def test_an_index_that_says_what_no_archive_says(fields: dict[str, str]) -> None:
    rows = {"Package": "a", "Version": "1", "Filename": "pool/a.deb", "Size": "10", "SHA256": "0" * 64, **fields}
    index = "".join(f"{key}: {value}\n" for key, value in rows.items())
    with pytest.raises(BadIndex):
        Archive("stable", index).package("a")


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
        (
            "sources.list",
            "deb [check-valid-until=no] https://snapshot.debian.org/archive/debian/20261030T000000Z/ forky main\n",
            "https://snapshot.debian.org/archive/debian/20261030T000000Z",
        ),
        ("sources.list.d/a.list", "deb http://mirror.example/ubuntu noble main\n", ""),
        ("sources.list", "# deb http://mirror.example/debian bookworm main\n", ""),
    ],
)
def test_the_mirror_of_this_system(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)
    assert mirror_of_this_system(tmp_path).url == found


@pytest.mark.parametrize(
    ("name", "text", "of_apt", "lenient"),
    [
        ("sources.list", "deb [check-valid-until=no] http://m/debian a main", "true", "source list"),
        ("sources.list", "deb [arch=amd64 check-valid-until=yes] http://m/debian a main", "false", ""),
        ("sources.list", "deb http://m/debian a main", "false", "Acquire::Check-Valid-Until"),
        ("sources.list", "deb http://m/debian a main", "", ""),
        ("sources.list.d/a.sources", "URIs: http://m/debian\nCheck-Valid-Until: no\n", "", "source list"),
        (
            "sources.list.d/a.sources",
            "URIs: http://m/debian\n\nURIs: http://other/debian\nCheck-Valid-Until: no\n",
            "",
            "",
        ),
    ],
)
def test_what_apt_is_told_of_a_mirror_that_is_a_copy_holds_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, of_apt: str, lenient: str
) -> None:
    def config(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, f"{of_apt}\n", "")

    monkeypatch.setattr("dmlprep.runtime.linux.source.run_tool", config)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)
    found = mirror_of_this_system(tmp_path)
    assert found.url == "http://m/debian"
    assert lenient in found.lenient
    assert bool(lenient) == bool(found.lenient)
