"""Signed packages: who signed, what is refused."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun, InputError, OutputError, UsageError
from tests.in_process import Run
from tests.system import WINDOWS, needs_links

pytest.importorskip("cryptography", reason="the extra sign is not installed")


@pytest.fixture
def signed(proved: Path, tmp_path: Path) -> Path:
    """``app``, signed with ``my.key``, which the first package makes."""
    made = dmlprep.package_model(
        proved, out=tmp_path / "app", language="python", unproven=True, sign=tmp_path / "my.key"
    )
    assert made.public_key == tmp_path / "my.key.pub"
    return tmp_path


def test_the_key_that_signed_is_accepted(signed: Path) -> None:
    found = dmlprep.verify_package(signed / "app", key=signed / "my.key.pub")
    assert (found.signature, found.others) == ("signed with this key", [])
    assert dmlprep.verify_package(signed / "app").signature == "signed: pass --key to check the signature"
    if not WINDOWS:
        assert stat.S_IMODE((signed / "my.key").stat().st_mode) == 0o600
    assert not list((signed / "app").glob("*.key*"))


def test_the_same_key_signs_the_next_package(proved: Path, signed: Path) -> None:
    before = (signed / "my.key").read_bytes()
    again = {"language": "python", "unproven": True, "sign": signed / "my.key"}
    dmlprep.package_model(proved, out=signed / "more", **again)  # type: ignore[arg-type]
    dmlprep.package_model(proved, out=signed / "app", force=True, **again)  # type: ignore[arg-type]
    assert (signed / "my.key").read_bytes() == before
    assert (signed / "more" / "model.json.sig").read_bytes() == (signed / "app" / "model.json.sig").read_bytes()
    assert dmlprep.verify_package(signed / "more", key=signed / "my.key.pub").others == []


def test_a_package_that_is_no_longer_signed_loses_its_signature(proved: Path, signed: Path) -> None:
    dmlprep.package_model(proved, out=signed / "app", language="python", unproven=True, force=True)
    assert not (signed / "app" / "model.json.sig").exists()
    assert dmlprep.verify_package(signed / "app").signature == "not signed"
    with pytest.raises(InputError, match="is not signed") as refused:
        dmlprep.verify_package(signed / "app", key=signed / "my.key.pub")
    assert refused.value.code == "DP823"


def test_a_forger_without_the_key(signed: Path, run: Run) -> None:
    """The contract says something else, where no text repeats it, and the digest is computed anew."""
    import hashlib

    app = signed / "app"
    contract = json.loads((app / "model.json").read_text(encoding="utf-8"))
    contract["session"]["runs"] = "as many at a time as you like"
    raw = json.dumps(contract).encode()
    (app / "model.json").write_bytes(raw)
    (app / "model.json.sha256").write_bytes(f"{hashlib.sha256(raw).hexdigest()}  model.json\n".encode())
    assert run("package", "verify", app).code == 0  # digests alone do not show it
    done = run("package", "verify", app, "--key", signed / "my.key.pub")
    assert done.code == InputError.exit_code
    assert "DP823" in done.err
    assert "model.json.sig" in done.err


@pytest.mark.parametrize("content", [b"", b"!!!", b"AAAA\n", b"A" * 10_000])
def test_a_signature_that_is_none(signed: Path, content: bytes) -> None:
    (signed / "app" / "model.json.sig").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.json\.sig"):
        dmlprep.verify_package(signed / "app", key=signed / "my.key.pub")


def test_another_s_key(proved: Path, signed: Path) -> None:
    other = dmlprep.package_model(
        proved, out=signed / "other", language="python", unproven=True, sign=signed / "other.key"
    )
    assert other.public_key is not None
    with pytest.raises(InputError, match="another key signed it"):
        dmlprep.verify_package(signed / "app", key=other.public_key)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_holds_no_key(proved: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my.key").write_bytes(content)
    with pytest.raises(InputError, match="contains no private key"):
        dmlprep.package_model(proved, out=tmp_path / "app", language="python", unproven=True, sign=tmp_path / "my.key")
    assert not (tmp_path / "app").exists()


def test_a_package_that_is_refused_leaves_no_new_key(proved: Path, tmp_path: Path) -> None:
    ways = {"language": "python", "out": tmp_path / "app", "sign": tmp_path / "my.key"}
    with pytest.raises(CheckNotRun):
        dmlprep.package_model(proved, **ways)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*"))

    def another(_share: float, _text: str) -> None:
        (tmp_path / "my.key").write_bytes(b"another run's")

    with pytest.raises(OutputError, match="another run created this key at the same time"):
        dmlprep.package_model(proved, unproven=True, progress=another, **ways)  # type: ignore[arg-type]
    assert (tmp_path / "my.key").read_bytes() == b"another run's"
    assert not (tmp_path / "app").exists()


def test_a_key_in_the_package_would_be_handed_on(proved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="would be in the package"):
        dmlprep.package_model(
            proved, out=tmp_path / "app", language="python", unproven=True, sign=tmp_path / "app" / "my.key"
        )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_openssl_takes_it_and_makes_keys(proved: Path, tmp_path: Path) -> None:
    def openssl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    if openssl("version").stdout.split()[1].split(".")[0] < "3":
        pytest.skip("openssl is older than 3")
    assert openssl("genpkey", "-algorithm", "ed25519", "-out", "my.key").returncode == 0
    assert openssl("pkey", "-in", "my.key", "-pubout", "-out", "my.key.pub").returncode == 0
    dmlprep.package_model(proved, out=tmp_path / "app", language="python", unproven=True, sign=tmp_path / "my.key")
    assert dmlprep.verify_package(tmp_path / "app", key=tmp_path / "my.key.pub").signature == "signed with this key"
    assert openssl("base64", "-d", "-in", "app/model.json.sig", "-out", "sig").returncode == 0
    verify = [
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "my.key.pub",
        "-rawin",
        "-in",
        "app/model.json",
        "-sigfile",
        "sig",
    ]
    assert openssl(*verify).returncode == 0
    (tmp_path / "app" / "model.json").write_text("{}")
    assert openssl(*verify).returncode != 0
    assert openssl("genpkey", "-algorithm", "ed448", "-out", "other.key").returncode == 0
    with pytest.raises(InputError, match=r"not an Ed25519"):
        dmlprep.package_model(proved, out=tmp_path / "b", language="python", unproven=True, sign=tmp_path / "other.key")


@needs_links
def test_a_link_to_nothing_in_the_place_of_the_public_key_is_not_written_through(proved: Path, tmp_path: Path) -> None:
    (tmp_path / "my.key.pub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="not a regular file"):
        dmlprep.package_model(proved, out=tmp_path / "app", language="python", unproven=True, sign=tmp_path / "my.key")
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "my.key").exists()
    assert not (tmp_path / "app").exists()
