"""Files below a folder, made by several threads at the same time."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmlprep.runtime.linux.safe_fs import Beneath

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the runtime is made on Linux")


def test_two_packages_that_hold_the_same_paths(tmp_path: Path) -> None:
    """As two threads unpack them: none fails, and what stays is the file, the link or the other name of one of them."""
    folder = tmp_path / "root"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "first").write_bytes(b"first")

    def one(content: bytes) -> None:
        with Beneath(folder) as below:
            for _ in range(300):
                with below.create("lib/file") as out:
                    out.write(content)
                below.link("lib/link", content.decode())
                below.hardlink("lib/other", "lib/first")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, (b"one", b"two")))
    assert (folder / "lib" / "file").read_bytes() in (b"one", b"two")
    assert (folder / "lib" / "link").readlink() in (Path("one"), Path("two"))
    assert (folder / "lib" / "other").read_bytes() == b"first"
