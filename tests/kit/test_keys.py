"""Kits with a key: what is forged, changed, replayed or unsigned is refused, whoever computed its digests again."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep import api
from dmlprep.cli.main import cli
from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.portable import integrity, keys
from tests.kit.box import CPU, extract, run_kit, stand_in
from tests.system import WINDOWS

_DMLPREP = (sys.executable, "-m", "dmlprep")

Members = dict[str, bytes]


@dataclass(frozen=True)
class Signed:
    """A kit with a key, and its result as a run on DirectML made it."""

    folder: Path

    @property
    def kit(self) -> Path:
        return self.folder / "kit.zip"

    @property
    def key(self) -> Path:
        return self.folder / "my.key"

    @property
    def run_key(self) -> Path:
        return self.folder / "kit.run-key"

    @property
    def result(self) -> Path:
        return self.folder / "result.zip"


def _signed(made: Path, folder: Path, key: Path | None = None) -> Signed:
    signed = Signed(folder)
    folder.mkdir(exist_ok=True)
    if key is not None:
        shutil.copyfile(key, signed.key)
    api.pack_kit(made / "out" / "model.onnx", out=signed.kit, key=signed.key)
    box = extract(signed.kit, folder / "box")
    arguments = ("--key", signed.run_key, "-o", signed.result)
    done = run_kit(box, *arguments, environment=stand_in(folder / "site", "good"))
    assert done.returncode == 0, done.stdout + done.stderr
    return signed


@pytest.fixture(scope="module")
def signed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return _signed(made, tmp_path_factory.mktemp("kit signed"))


def _members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zip(members: Members, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _edited(members: Members, **fields: Any) -> None:
    """An edit by somebody who has no key, but computes every digest again."""
    result = {**json.loads(members["result.json"]), **fields}
    for name, entry in result["files"].items():
        entry.update(bytes=len(members[name]), sha256=hashlib.sha256(members[name]).hexdigest())
    result["seal"] = integrity.seal(result)
    members["result.json"] = json.dumps(result).encode()


def _refused(result: Path, kit: Path, key: Path) -> InputError:
    with pytest.raises(InputError) as refused:
        api.verify_kit(result, kit=kit, key=key)
    assert refused.value.exit_code == 2
    return refused.value


def test_a_signed_result_is_judged(signed: Signed) -> None:
    verdict, _ = api.verify_kit(signed.result, kit=signed.kit, key=signed.key)
    assert (str(verdict.check), verdict.outcome) == ("parity on dml (kit: Radeon ™ 0)", "passed")
    assert verdict.device is not None
    assert verdict.device.details[-1] == "signed with the run key of this kit"
    assert "DP815" not in [one.code for one in verdict.findings]
    folder = extract(signed.result, signed.folder / "extracted")
    assert api.verify_kit(folder / "result.json", kit=signed.kit, key=signed.key)[0].outcome == "passed"


def test_without_the_key_the_verdict_says_what_is_not_proved(signed: Signed, made: Path) -> None:
    for result, kit, why in (
        (signed.result, signed.kit, "it is signed: pass --key"),
        (made / "result.zip", made / "kit.zip", "it is not signed"),
    ):
        verdict, _ = api.verify_kit(result, kit=kit)
        assert verdict.outcome == "passed"
        (said,) = [one for one in verdict.findings if one.code == "DP815"]
        assert (said.severity, why in said.message) == ("note", True)
        assert verdict.device is not None
        assert verdict.device.details[-1] == "not signed, so nothing proves which machine ran it"


def _other_outputs(members: Members) -> None:
    with io.BytesIO() as file:
        np.save(file, np.load(io.BytesIO(members["outputs/0-0.npy"])) + np.float32(1e-7))
        members["outputs/0-0.npy"] = file.getvalue()
    _edited(members)


def _other_adapter(members: Members) -> None:
    device = json.loads(members["result.json"])["device"]
    _edited(members, device={**device, "adapter": "RTX 5090"})


def _other_times(members: Members) -> None:
    feeds = json.loads(members["result.json"])["feeds"]
    _edited(members, feeds=[{**feed, "seconds": [1e-6]} for feed in feeds])


def _resealed(secret: bytes) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        _edited(members)
        seal = keys.RunKey(json.loads(members["result.json"])["kit"], secret).seal(members["result.json"])
        members[keys.RESULT_SEAL] = seal

    return change


FORGERIES: dict[str, Callable[[Members], Any]] = {
    "outputs": _other_outputs,
    "adapter": _other_adapter,
    "provider": lambda m: _edited(m, provider="CPUExecutionProvider"),
    "verdict": lambda m: _edited(m, outcome="not-run", reason="no GPU"),
    "times": _other_times,
    "spelling": lambda m: m.update({"result.json": m["result.json"] + b"\n"}),
    "unsigned": lambda m: m.pop(keys.RESULT_SEAL),
    "empty seal": lambda m: m.update({keys.RESULT_SEAL: b""}),
    "short seal": lambda m: m.update({keys.RESULT_SEAL: m[keys.RESULT_SEAL][:40]}),
    "capital seal": lambda m: m.update({keys.RESULT_SEAL: m[keys.RESULT_SEAL].upper()}),
    "zero seal": lambda m: m.update({keys.RESULT_SEAL: b"0" * 64}),
    "digest as seal": lambda m: m.update({keys.RESULT_SEAL: hashlib.sha256(m["result.json"]).hexdigest().encode()}),
    "key of zeros": _resealed(bytes(32)),
    "empty key": _resealed(b""),
    "key of another": _resealed(b"k" * 32),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_and_changed_results_are_refused(signed: Signed, tmp_path: Path, forgery: str) -> None:
    members = _members(signed.result)
    FORGERIES[forgery](members)
    error = _refused(_zip(members, tmp_path / "r.zip"), signed.kit, signed.key)
    assert error.code == "DP814"


def test_a_forgery_that_verifies_without_the_key_fails_with_it(made: Path, signed: Signed, tmp_path: Path) -> None:
    """A CPU run, with a GPU written into it: every digest fits, and the outputs are right."""
    members = _members(signed.result)
    del members[keys.RESULT_SEAL]
    _other_adapter(members)
    forged = _zip(members, tmp_path / "forged.zip")
    verdict, _ = api.verify_kit(forged, kit=signed.kit)
    assert (str(verdict.check), verdict.outcome) == ("parity on dml (kit: RTX 5090)", "passed")
    assert "DP815" in [one.code for one in verdict.findings]
    assert "not signed" in str(_refused(forged, signed.kit, signed.key))


def test_results_of_other_kits_are_refused(made: Path, signed: Signed, tmp_path: Path) -> None:
    """Another kit of the same model with the same key: its result is signed, and is replayed."""
    other = _signed(made, tmp_path / "other", signed.key)
    assert other.kit.read_bytes() != signed.kit.read_bytes()
    assert _refused(signed.result, other.kit, signed.key).code == "DP811"
    members = _members(signed.result)
    name = hashlib.sha256(_members(other.kit)["kit.json"]).hexdigest()
    _edited(members, kit=name)
    assert _refused(_zip(members, tmp_path / "r.zip"), other.kit, signed.key).code == "DP814"
    old = keys.parse_run_key(signed.run_key.read_bytes())
    members[keys.RESULT_SEAL] = old.seal(members["result.json"])  # by the key of the earlier kit
    assert _refused(_zip(members, tmp_path / "r.zip"), other.kit, signed.key).code == "DP814"


def test_kits_that_were_changed_are_refused(made: Path, signed: Signed, tmp_path: Path) -> None:
    """Looser tolerance, with a result for it, signed by somebody who has the run key of the kit before."""
    kit, result = _members(signed.kit), _members(signed.result)
    manifest = json.loads(kit["kit.json"])
    manifest["tolerances"]["dml"]["max_rel"] = 0.5
    kit["kit.json"] = json.dumps(manifest).encode()
    name = hashlib.sha256(kit["kit.json"]).hexdigest()
    _edited(result, kit=name)
    mine = keys.parse_run_key(signed.run_key.read_bytes())
    result[keys.RESULT_SEAL] = keys.RunKey(name, mine.secret).seal(result["result.json"])
    answer = _zip(result, tmp_path / "r.zip")
    for seal in (kit[keys.KIT_SEAL], mine.seal(kit["kit.json"]), b"", None):
        if seal is None:
            del kit[keys.KIT_SEAL]
        else:
            kit[keys.KIT_SEAL] = seal
        changed = _zip(kit, tmp_path / "k.zip")
        assert _refused(answer, changed, signed.key).code == "DP814"
        assert api.verify_kit(answer, kit=changed)[0].outcome == "passed"  # what no key means
    for file in ("feeds/0-0.npy", "expected/0-0.npy", "model/model.onnx"):
        kit = _members(signed.kit)
        kit[file] = kit[file][:-1] + b"~"
        assert file in str(_refused(signed.result, _zip(kit, tmp_path / "k.zip"), signed.key))


def test_a_kit_without_a_key_is_refused_with_one(made: Path, signed: Signed) -> None:
    error = _refused(made / "result.zip", made / "kit.zip", signed.key)
    assert (error.code, "packed without a key" in str(error)) == ("DP814", True)


def test_a_result_that_was_cut_short_is_refused(signed: Signed, tmp_path: Path) -> None:
    whole = signed.result.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "r.zip").write_bytes(whole[:size])
        assert _refused(tmp_path / "r.zip", signed.kit, signed.key).code == "DP810"
    members = _members(signed.result)
    del members["outputs/1-0.npy"]
    assert "missing" in str(_refused(_zip(members, tmp_path / "r.zip"), signed.kit, signed.key))
    members = _members(signed.result)
    members[keys.RESULT_SEAL] += bytes(2000)
    assert "2065 bytes long" in str(_refused(_zip(members, tmp_path / "r.zip"), signed.kit, signed.key))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_change_of_a_byte_passes(signed: Signed, data: st.DataObject) -> None:
    """Any byte of the two documents or their seals, without the digests that somebody could compute again."""
    archive = data.draw(st.sampled_from(["kit", "result"]))
    members = _members(getattr(signed, archive))
    file = data.draw(st.sampled_from([f"{archive}.json", f"{archive}.hmac"]))
    held = bytearray(members[file])
    at = data.draw(st.integers(0, len(held.rstrip()) - 1))
    held[at] = data.draw(st.integers(0, 255).filter(lambda value: value != held[at]))
    members[file] = bytes(held)
    changed = _zip(members, signed.folder / f"changed-{archive}.zip")
    with pytest.raises(InputError):
        api.verify_kit(
            changed if archive == "result" else signed.result,
            kit=changed if archive == "kit" else signed.kit,
            key=signed.key,
        )


@given(secret=st.binary(min_size=32, max_size=32), document=st.binary(max_size=200), other=st.binary(max_size=200))
def test_seals_are_of_one_key_one_purpose_and_one_document(secret: bytes, document: bytes, other: bytes) -> None:
    packer = keys.PackerKey(secret)
    name = hashlib.sha256(document).hexdigest()
    run = packer.run_key(name)
    assert keys.parse_packer_key(packer.line().encode()) == packer
    assert keys.parse_run_key(run.line().encode()) == run
    assert keys.fits(run.seal(document) + b"\n", run.seal(document))
    assert not keys.fits(packer.seal(document), run.seal(document))
    assert not keys.fits(keys.RunKey(name, secret).seal(document), packer.seal(document))
    assert keys.fits(run.seal(other), run.seal(document)) == (other == document)
    assert run.secret != packer.run_key("0" * 64).secret
    assert secret.hex() not in repr(packer)
    assert run.secret.hex() not in repr(run)


def test_keys_are_private_and_nowhere_else(made: Path, signed: Signed, tmp_path: Path) -> None:
    secrets = [
        keys.parse_packer_key(signed.key.read_bytes()).secret,
        keys.parse_run_key(signed.run_key.read_bytes()).secret,
    ]
    done = run_kit(extract(signed.kit, tmp_path / "box"), *CPU, "--key", signed.run_key, "-o", tmp_path / "r.zip")
    verified = subprocess.run(
        [*_DMLPREP, "kit", "verify", tmp_path / "r.zip", "--kit", signed.kit, "--key", signed.key, "--format", "json"],
        capture_output=True,
        check=True,
    )
    for text in (done.stdout.encode(), done.stderr.encode(), verified.stdout, verified.stderr):
        assert not any(s in text or s.hex().encode() in text for s in secrets)
    for archive in (signed.kit, signed.result, tmp_path / "r.zip"):
        for content in _members(archive).values():
            assert not any(s in content or s.hex().encode() in content for s in secrets)
    if not WINDOWS:
        assert [stat.S_IMODE(p.stat().st_mode) for p in (signed.key, signed.run_key)] == [0o600, 0o600]


def test_keys_are_not_mixed_up(made: Path, signed: Signed, tmp_path: Path) -> None:
    model, out = made / "out" / "model.onnx", tmp_path / "kit.zip"
    assert "not the packer's" in str(_refused(signed.result, signed.kit, signed.run_key))
    assert "cannot be read" in str(_refused(signed.result, signed.kit, tmp_path / "none.key"))
    for content in (b"", b"\xff" * 99, bytes(5000), signed.key.read_bytes()[:-3]):
        (tmp_path / "odd.key").write_bytes(content)
        assert _refused(signed.result, signed.kit, tmp_path / "odd.key").code == "DP814"
        with pytest.raises(InputError):
            api.pack_kit(model, out=out, key=tmp_path / "odd.key")
        assert (tmp_path / "odd.key").read_bytes() == content
    with pytest.raises(UsageError, match="your own key"):
        api.pack_kit(model, out=out, key=tmp_path / "kit.run-key")
    (tmp_path / "kit.run-key").write_bytes(b"old")
    with pytest.raises(OutputError, match="exists"):
        api.pack_kit(model, out=out, key=tmp_path / "my.key")
    assert not out.exists()
    assert not (tmp_path / "my.key").exists()
    api.pack_kit(model, out=out, key=signed.key, force=True)
    mine = keys.parse_run_key((tmp_path / "kit.run-key").read_bytes())
    assert mine.kit == hashlib.sha256(_members(out)["kit.json"]).hexdigest()
    box = extract(out, tmp_path / "box")
    for key, said in (
        (signed.run_key, "this key belongs to kit"),
        (signed.key, "the packer's private key"),
        (tmp_path / "none", "error: --key:"),
        (tmp_path / "odd.key", "not a key of dmlprep kit"),
    ):
        done = run_kit(box, *CPU, "--key", key)
        assert (done.returncode, said in done.stdout) == (2, True), done.stdout
        assert not (box / "result.zip").exists()
    unsigned = run_kit(box, *CPU)
    assert (unsigned.returncode, "its result is not signed" in unsigned.stdout) == (0, True)


def test_as_a_user_types_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "out", "out")
    shutil.copyfile(made / "original.onnx", "original.onnx")
    pack = ["kit", "out/model.onnx", "--reference", "original.onnx", "--key", "my.key", "-o"]
    assert cli([*pack, "kit.zip"], standalone_mode=False) == 0
    said = capsys.readouterr().out
    assert "python run.py --key kit.run-key" in said
    assert f"--model {Path('out/model.onnx')} --key my.key" in said
    before = Path("my.key").read_bytes()
    assert cli([*pack, "more.zip", "--format", "json"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out)["run_key"] == "more.run-key"
    assert Path("my.key").read_bytes() == before
    box = extract(tmp_path / "kit.zip", tmp_path / "box")
    assert run_kit(box, *CPU, "--key", tmp_path / "kit.run-key").returncode == 0
    verify = ["kit", "verify", "box/result.zip", "--kit", "kit.zip", "--model", "out/model.onnx", "--key", "my.key"]
    assert cli(verify, standalone_mode=False) == 0
    assert "signed with the run key of this kit" in " ".join(capsys.readouterr().out.split())
