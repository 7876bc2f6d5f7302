"""Where the files for build systems are."""

from __future__ import annotations

import sys
from pathlib import Path

from dmlprep.cli.buildsys import folder
from tests.cli.buildsys.tools import run
from tests.hostile_names import nothing_acts
from tests.system import not_on_windows


def test_the_folder_is_printed(tmp_path: Path) -> None:
    for system in ("cmake", "msbuild"):
        done = run(sys.executable, "-m", "dmlprep.cli.buildsys", system, cwd=tmp_path)
        assert Path(done.out.strip()) == folder(system)
    for wrong in (["scons"], ["nuget"], []):
        assert run(sys.executable, "-m", "dmlprep.cli.buildsys", *wrong, cwd=tmp_path).code == 1
    done = run(sys.executable, "-m", "dmlprep.cli.buildsys", "nuget", tmp_path / "nowhere", cwd=tmp_path)
    assert done.code == 2
    assert done.out.startswith("error: ")


@not_on_windows("Windows has no such name of a folder")
def test_an_error_with_a_name_is_no_command_to_a_ci_machine(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "dmlprep.cli.buildsys", "nuget", "\x1b[2Ja\n::error::b##vso[x]", cwd=tmp_path)
    assert done.code == 2
    nothing_acts(done.out)
