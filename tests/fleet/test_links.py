"""A fleet writes into folders of its own: no link that somebody put there leads it elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.core.errors import InputError, OutputError
from dmlprep.fleet import STATE_FOLDER, FleetObserver, prune
from dmlprep.fleet.keys import feed_files
from tests.fleet.conftest import Fleet
from tests.system import needs_links

pytestmark = needs_links


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the user's, with files that are called as results are."""
    folder = tmp_path / "elsewhere"
    for name in ("model.onnx", "small/model.onnx", "records/x", "locks/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    return folder


def _seen(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("link", ["a", "a/small"])
@pytest.mark.parametrize("force", [False, True])
def test_a_linked_job_folder_is_refused_and_the_other_jobs_run(
    fleet: Fleet, elsewhere: Path, link: str, force: bool
) -> None:
    fleet.model("a")
    fleet.model("b")
    (fleet.out / link).parent.mkdir(parents=True)
    (fleet.out / link).symlink_to(elsewhere, target_is_directory=True)
    before = _seen(elsewhere)
    rows = {row.name: row for row in fleet.run(force=force).record.jobs}
    assert rows["a/small"].exit_code == OutputError.exit_code
    assert "is a link" in rows["a/small"].error
    assert {rows["b/small"].exit_code, rows["b/large"].exit_code} == {0}
    assert _seen(elsewhere) == before


@pytest.mark.parametrize("link", [STATE_FOLDER, f"{STATE_FOLDER}/records", f"{STATE_FOLDER}/locks"])
def test_a_link_in_the_place_of_the_fleet_s_own_folder_is_refused(fleet: Fleet, elsewhere: Path, link: str) -> None:
    fleet.model("a")
    (fleet.out / link).parent.mkdir(parents=True)
    (fleet.out / link).symlink_to(elsewhere, target_is_directory=True)
    before = _seen(elsewhere)
    if link.endswith("locks"):
        assert {row.exit_code for row in fleet.run().record.jobs} == {OutputError.exit_code}
    else:
        with pytest.raises(OutputError, match="is a link"):
            fleet.run()
    assert _seen(elsewhere) == before


def test_pruning_writes_through_no_link(fleet: Fleet, elsewhere: Path) -> None:
    fleet.model("a")
    fleet.run()
    (fleet.out / STATE_FOLDER).rename(fleet.out / "moved")
    (fleet.out / STATE_FOLDER).symlink_to(elsewhere, target_is_directory=True)
    before = _seen(elsewhere)
    with pytest.raises(OutputError, match="is a link"):
        prune(fleet.out, [], FleetObserver())
    assert _seen(elsewhere) == before


def test_a_link_that_leads_out_of_a_folder_of_feeds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds" / "a.npz").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="is a link to a place outside the folder"):
        list(feed_files((str(tmp_path / "feeds"),)))
