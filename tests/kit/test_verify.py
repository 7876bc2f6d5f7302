"""Verdicts from what came back; what was tampered with, mixed up or is hostile is refused."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlprep import api
from dmlprep.cli.main import cli
from dmlprep.core.errors import InputError, OutputError
from dmlprep.package.building import not_proved
from dmlprep.portable import integrity
from dmlprep.record import Check, RunRecord, Verdict
from dmlprep.record.run_record import headline
from tests.kit.box import CPU, extract, rewritten, run_kit, sealed, stand_in


def _refused(result: Path, kit: Path, **more: Path) -> InputError:
    with pytest.raises(InputError) as refused:
        api.verify_kit(result, kit=kit, **more)  # type: ignore[arg-type]
    return refused.value


def test_the_cpu_in_place_of_directml_is_never_a_verdict_on_directml(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    verdict, record = api.verify_kit(made / "result.zip", kit=made / "kit.zip", model=tmp_path / "out" / "model.onnx")
    assert (str(verdict.check), verdict.outcome) == ("parity on cpu (kit)", "passed")
    assert verdict.device is not None
    assert verdict.device.name == "cpu"
    assert record == tmp_path / "out" / "run.json"
    merged = RunRecord.from_json(record.read_bytes())
    assert merged.verdicts[-1] == verdict
    assert merged.exit_code == 0
    api.verify_kit(made / "result.zip", kit=made / "kit.zip", model=tmp_path / "out" / "model.onnx")
    assert len(RunRecord.from_json(record.read_bytes()).verdicts) == len(merged.verdicts)


def test_a_way_there_and_back_on_a_stand_in(made: Path, box: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    model = tmp_path / "out" / "model.onnx"
    here = RunRecord.read(tmp_path / "out" / "run.json")
    here.verdicts.append(Verdict(Check("parity", "dml"), "not-run", "no DirectML here"))
    (tmp_path / "out" / "run.json").write_bytes(here.to_json())
    for mode, outcome, code in (("idle", "not-run", 0), ("wrong", "failed", 1), ("good", "passed", 0)):
        run_kit(box, "--force", "--device-id", "1", environment=stand_in(tmp_path / "site", mode))
        verdict, record = api.verify_kit(box / "result.zip", kit=made / "kit.zip", model=model)
        assert (str(verdict.check), verdict.outcome) == ("parity on dml (kit: Radeon ™ 1)", outcome)
        assert record is not None
        merged = RunRecord.from_json(record.read_bytes())
        assert [v.outcome for v in merged.verdicts if v.check.kit and v.check.provider == "dml"] == [outcome]
        assert merged.exit_code == code
        # The report, the line of -q and the package ask the same question.
        passed = outcome == "passed"
        assert "not tried on DirectML" not in headline(merged).text
        assert headline(merged).text.startswith("ready: ") is passed
        assert not_proved(merged) == [] if passed else not_proved(merged)
    assert verdict.device is not None
    text = str(verdict.device)
    assert text.startswith("dml on windows: Radeon ™ 1, DirectML 1.15.4.0, ONNX Runtime")
    assert "driver 31.0.1.2" in text
    assert "device_id 1 set by hand" in text


def test_a_failure_comes_home_with_its_hresult(made: Path, box: Path, tmp_path: Path) -> None:
    run_kit(box, environment=stand_in(tmp_path / "site", "removed"))
    verdict, _ = api.verify_kit(box / "result.zip", kit=made / "kit.zip")
    assert verdict.outcome == "failed"
    assert "887A0005 DXGI_ERROR_DEVICE_REMOVED" in verdict.reason
    said, origin = verdict.findings
    assert (said.code, origin.code) == ("DP704", "DP815")
    assert "disable_metacommands" in said.remedy


def test_the_runner_s_word_is_not_taken(made: Path, tmp_path: Path) -> None:
    """Outputs that are wrong are wrong, whatever result.json says of them, seal and all."""

    def change(members: dict[str, bytes]) -> None:
        with io.BytesIO() as file:
            np.save(file, np.load(io.BytesIO(members["outputs/0-0.npy"])) + np.float32(1))
            members["outputs/0-0.npy"] = file.getvalue()
        path = tmp_path / "o.npy"
        path.write_bytes(members["outputs/0-0.npy"])
        size, digest = integrity.file_digest(path)
        files = json.loads(members["result.json"])["files"]
        sealed(members, files={**files, "outputs/0-0.npy": {"bytes": size, "sha256": digest}})

    verdict, _ = api.verify_kit(rewritten(made / "result.zip", tmp_path / "r.zip", change), kit=made / "kit.zip")
    assert verdict.outcome == "failed"
    assert verdict.findings[0].code == "DP701"


def test_directml_without_its_provider_is_not_run(made: Path, tmp_path: Path) -> None:
    changed = rewritten(made / "result.zip", tmp_path / "r.zip", lambda m: sealed(m, provider="DmlExecutionProvider"))
    verdict, _ = api.verify_kit(changed, kit=made / "kit.zip")
    assert (str(verdict.check), verdict.outcome) == ("parity on dml (kit)", "not-run")
    assert verdict.findings[0].code == "DP812"


def test_feeds_that_were_left_out_are_not_run(made: Path, tmp_path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        result = json.loads(members["result.json"])
        del members["outputs/1-0.npy"]
        sealed(members, feeds=result["feeds"][:1], files={"outputs/0-0.npy": result["files"]["outputs/0-0.npy"]})

    verdict, _ = api.verify_kit(rewritten(made / "result.zip", tmp_path / "r.zip", change), kit=made / "kit.zip")
    assert (verdict.outcome, verdict.reason) == ("not-run", "1 of 2 feeds ran")


def test_a_result_that_was_extracted_or_packed_anew(made: Path, tmp_path: Path) -> None:
    folder = extract(made / "result.zip", tmp_path / "result")
    assert api.verify_kit(folder / "result.json", kit=made / "kit.zip")[0].outcome == "passed"
    assert api.verify_kit(folder, kit=extract(made / "kit.zip", tmp_path / "kit"))[0].outcome == "passed"
    anew = rewritten(made / "result.zip", tmp_path / "anew.zip", lambda members: None)
    assert api.verify_kit(anew, kit=made / "kit.zip")[0].outcome == "passed"
    (folder / "outputs" / "0-0.npy").unlink()
    assert "missing" in str(_refused(folder / "result.json", made / "kit.zip"))


def test_every_file_of_a_kit_is_checked(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / "kit.zip") as archive:
        names = [n for n in archive.namelist() if n != "kit.json"]
    for name in names:
        edited = rewritten(made / "kit.zip", tmp_path / "k.zip", lambda m, n=name: m.update({n: m[n][:-1] + b"~"}))  # type: ignore[misc]
        error = _refused(made / "result.zip", edited)
        assert (error.code, name in str(error)) == ("DP810", True)
    looser = (b"0.00001", b"0.50000")
    manifest = rewritten(
        made / "kit.zip", tmp_path / "k.zip", lambda m: m.update({"kit.json": m["kit.json"].replace(*looser)})
    )
    assert _refused(made / "result.zip", manifest).code == "DP811"


def _with_more(kit: Path, target: Path, more: bytes) -> Path:
    return rewritten(kit, target, lambda m: m.update({"kit.json": more + m["kit.json"][1:]}))


def test_edits_of_a_result_are_refused(made: Path, tmp_path: Path) -> None:
    def edited(change: Callable[[dict[str, bytes]], None]) -> str:
        error = _refused(rewritten(made / "result.zip", tmp_path / "r.zip", change), made / "kit.zip")
        assert error.exit_code == 2
        return str(error)

    swap = (b"CPUExecutionProvider", b"DmlExecutionProvider")
    assert "seal" in edited(lambda m: m.update({"result.json": m["result.json"].replace(*swap)}))
    assert "was changed" in edited(lambda m: m.update({"outputs/1-0.npy": m["outputs/0-0.npy"]}))
    assert "bytes" in edited(lambda m: m.update({"outputs/1-0.npy": m["outputs/1-0.npy"] + b"x"}))
    assert "missing" in edited(lambda m: m.pop("outputs/1-0.npy"))
    assert "which result.json does not list" in edited(lambda m: m.update({"extra.txt": b""}))
    assert "no result.json" in edited(lambda m: m.pop("result.json"))
    assert "not the result" in edited(lambda m: m.update({"result.json": b"[" * 100_000}))
    for held in (b'"\xff"', b"9" * 5000, b"[" * 50_000 + b"]" * 50_000):
        with_more = b'{"more": ' + held + b","
        error = edited(lambda m, w=with_more: m.update({"result.json": w + m["result.json"][1:]}))  # type: ignore[misc]
        assert "not the result" in error or "seal" in error
        kit = _with_more(made / "kit.zip", tmp_path / "k.zip", with_more)
        assert _refused(made / "result.zip", kit).code in ("DP810", "DP811")


def test_another_kit_model_or_record(made: Path, tmp_path: Path) -> None:
    other = api.pack_kit(made / "original.onnx", out=tmp_path / "other.zip", sizes={"batch": 1})
    error = _refused(made / "result.zip", tmp_path / "other.zip")
    assert (error.code, error.exit_code) == ("DP811", 2)
    assert other.name[:12] in str(error)
    assert _refused(made / "result.zip", made / "kit.zip", model=made / "original.onnx").code == "DP811"
    shutil.copyfile(made / "out" / "run.json", tmp_path / "run.json")
    record = json.loads((tmp_path / "run.json").read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({**record, "output_sha256": "1" * 64}))
    assert _refused(made / "result.zip", made / "kit.zip", record=tmp_path / "run.json").code == "DP811"
    assert _refused(made / "result.zip", made / "kit.zip", record=made / "kit.zip").exit_code == 2


@pytest.mark.parametrize("name", ["../evil.npy", "/etc/evil", "a\\..\\evil", "C:/evil", "outputs/../../evil"])
def test_names_that_lead_elsewhere(made: Path, tmp_path: Path, name: str) -> None:
    assert "unsafe file name" in str(
        _refused(rewritten(made / "result.zip", tmp_path / "r.zip", lambda m: m.update({name: b"1"})), made / "kit.zip")
    )

    def listed(members: dict[str, bytes]) -> None:
        result = json.loads(members["result.json"])
        entry = result["files"].pop("outputs/0-0.npy")
        feeds = result["feeds"]
        feeds[0]["outputs"] = dict.fromkeys(feeds[0]["outputs"], name)
        sealed(members, files={**result["files"], name: entry}, feeds=feeds)

    folder = extract(rewritten(made / "result.zip", tmp_path / "l.zip", listed), tmp_path / "folder")
    assert "unsafe file name" in str(_refused(folder / "result.json", made / "kit.zip"))


def test_bombs_and_lies_about_sizes(made: Path, tmp_path: Path) -> None:
    def claims(size: int) -> Callable[[dict[str, bytes]], None]:
        def change(members: dict[str, bytes]) -> None:
            members["outputs/0-0.npy"] = bytes(1 << 20)
            files = json.loads(members["result.json"])["files"]
            sealed(members, files={**files, "outputs/0-0.npy": {"bytes": size, "sha256": "0" * 64}})

        return change

    bomb = rewritten(made / "result.zip", tmp_path / "r.zip", claims(1 << 40))
    assert "at most" in str(_refused(bomb, made / "kit.zip"))
    lie = rewritten(made / "result.zip", tmp_path / "r.zip", claims(100))
    assert "has 1048576 bytes" in str(_refused(lie, made / "kit.zip"))

    def header(members: dict[str, bytes]) -> None:
        with io.BytesIO() as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)})
            members["outputs/0-0.npy"] = file.getvalue()
        (tmp_path / "h.npy").write_bytes(members["outputs/0-0.npy"])
        size, digest = integrity.file_digest(tmp_path / "h.npy")
        files = json.loads(members["result.json"])["files"]
        sealed(members, files={**files, "outputs/0-0.npy": {"bytes": size, "sha256": digest}})

    huge = rewritten(made / "result.zip", tmp_path / "r.zip", header)
    assert "not a plain array" in str(_refused(huge, made / "kit.zip"))


def test_what_is_no_zip(made: Path, tmp_path: Path) -> None:
    whole = (made / "result.zip").read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], bytes(1000)):
        (tmp_path / "r.zip").write_bytes(content)
        assert _refused(tmp_path / "r.zip", made / "kit.zip").code == "DP810"
        assert _refused(made / "result.zip", tmp_path / "r.zip").code == "DP810"
    assert "no such file" in str(_refused(tmp_path / "none.zip", made / "kit.zip"))
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        archive.writestr("result.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("result.json", b"{}")
    assert "twice" in str(_refused(tmp_path / "r.zip", made / "kit.zip"))


def test_as_a_user_types_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kit(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        code = cli(["kit", *map(str, arguments)], standalone_mode=False)
        return int(code), capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "out", "out")
    shutil.copyfile(made / "original.onnx", "original.onnx")
    code, said = kit("-o", "my kit.zip", "out/model.onnx", "--reference", "original.onnx")
    assert (code, "python run.py" in said) == (0, True)
    with pytest.raises(OutputError, match="exists"):
        kit("out/model.onnx", "-o", "my kit.zip")
    box = extract(tmp_path / "my kit.zip", tmp_path / "box é")
    assert run_kit(box, *CPU).returncode == 0
    judged, said = kit("verify", "box é/result.zip", "--kit", "my kit.zip", "--model", "out/model.onnx")
    assert judged == 0
    assert "parity on cpu (kit): passed" in said
    assert "run.json" in said
    assert kit("verify", "box é/result.zip", "--kit", "my kit.zip", "--require-dml")[0] == 3
    with pytest.raises(InputError, match="DP811"):
        kit("verify", "box é/result.zip", "--kit", made / "kit.zip")
    assert json.loads(kit("verify", "box é/result.zip", "--kit", "my kit.zip", "--format", "json")[1])["feeds"] == 2
