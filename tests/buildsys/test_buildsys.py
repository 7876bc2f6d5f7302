"""Where the files for build systems are."""

from __future__ import annotations

import sys
from pathlib import Path

from dmlprep.buildsys import folder
from tests.buildsys.tools import run


def test_the_folder_is_printed(tmp_path: Path) -> None:
    for system in ("cmake", "msbuild"):
        done = run(sys.executable, "-m", "dmlprep.buildsys", system, cwd=tmp_path)
        assert Path(done.out.strip()) == folder(system)
    for wrong in (["scons"], ["nuget"], []):
        assert run(sys.executable, "-m", "dmlprep.buildsys", *wrong, cwd=tmp_path).code == 1
    done = run(sys.executable, "-m", "dmlprep.buildsys", "nuget", tmp_path / "nowhere", cwd=tmp_path)
    assert done.code == 1
    assert done.out.startswith("error: ")
