"""Links that lead out of a folder, which a command that copies would follow, and links where a command writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmlprep.core.errors import InputError, OutputError
from dmlprep.core.files.links import check_inside, check_no_links, is_plain_file
from tests.system import needs_links

pytestmark = needs_links


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    made = tmp_path / "folder"
    (made / "sub").mkdir(parents=True)
    (made / "plain").write_text("plain")
    return made


@pytest.mark.parametrize("target", ["../secret", "sub/../../secret", "/etc/hostname", "chain"])
def test_a_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    (folder / "chain").symlink_to(folder.parent / "secret")
    (folder / "link").symlink_to(target)
    with pytest.raises(InputError, match="is a link to a place outside the folder") as refused:
        check_inside([folder / "plain", folder / "link"], folder)
    assert refused.value.where == str(folder / "link")


def test_a_file_behind_a_linked_folder_is_refused(folder: Path) -> None:
    (folder / "out").symlink_to(folder.parent, target_is_directory=True)
    with pytest.raises(InputError):
        check_inside([folder / "out" / "secret"], folder)


def test_links_that_stay_inside_and_a_link_to_the_folder_itself_are_fine(folder: Path) -> None:
    (folder / "sub" / "link").symlink_to("../plain")
    (folder.parent / "alias").symlink_to(folder, target_is_directory=True)
    for top in (folder, folder.parent / "alias"):
        check_inside([top / "plain", top / "sub" / "link"], top)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot as Hugging Face's cache has it: links to the contents of the repository."""
    repository = tmp_path / "hub" / "models--org--name"
    made = repository / "snapshots" / "0123abc"
    (made / "onnx").mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, name in enumerate(("config.json", "onnx/model.onnx")):
        (repository / "blobs" / f"blob{number}").write_text(name)
        up = "../" * (2 + name.count("/"))
        (made / name).symlink_to(f"{up}blobs/blob{number}")
    return made


def test_a_snapshot_of_hugging_face_may_link_to_its_own_contents(snapshot: Path) -> None:
    check_inside([snapshot / "config.json", snapshot / "onnx" / "model.onnx"], snapshot)
    check_inside([snapshot / "onnx" / "model.onnx"], snapshot / "onnx")


@pytest.mark.parametrize(
    "target", ["../../refs/main", "../../../models--org--other/blobs/blob0", "../../../../secret", "../other/x"]
)
def test_a_snapshot_may_link_to_nothing_else(snapshot: Path, target: str) -> None:
    (snapshot / "link").symlink_to(target)
    place = Path(os.path.normpath(snapshot / target))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("secret")
    with pytest.raises(InputError):
        check_inside([snapshot / "link"], snapshot)


def test_a_content_that_is_a_link_itself_is_refused(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (snapshot.parent.parent / "blobs" / "blob9").symlink_to(tmp_path / "secret")
    (snapshot / "link").symlink_to("../../blobs/blob9")
    with pytest.raises(InputError):
        check_inside([snapshot / "link"], snapshot)


def test_a_folder_that_only_looks_like_a_snapshot_has_no_exception(tmp_path: Path) -> None:
    made = tmp_path / "mine" / "snapshots" / "1"
    made.mkdir(parents=True)
    (tmp_path / "mine" / "blobs").mkdir()
    (tmp_path / "mine" / "blobs" / "x").write_text("x")
    (made / "x").symlink_to("../../blobs/x")
    with pytest.raises(InputError):
        check_inside([made / "x"], made)


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_a_link_on_the_way_of_an_output_is_refused(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "b" / "c").mkdir(parents=True)
    top = tmp_path / "out"
    (top / link).parent.mkdir(parents=True)
    (top / link).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(OutputError, match="is a link") as refused:
        check_no_links(top, top / "a" / "b" / "c")
    assert refused.value.where == str(top / link)


def test_a_place_without_links_below_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "real", target_is_directory=True)
    check_no_links(tmp_path / "out", tmp_path / "out" / "a" / "new" / "folder")


def test_what_is_a_plain_file(folder: Path) -> None:
    (folder / "link").symlink_to("plain")
    found = {name: is_plain_file(folder / name) for name in ("plain", "link", "sub", "missing", "a\0b")}
    assert found == {"plain": True, "link": False, "sub": False, "missing": False, "a\0b": False}
