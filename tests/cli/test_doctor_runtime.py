"""doctor and runtime on the command line: what they say, where, and their exit codes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dmlprep.cli.doctor import command as doctor
from dmlprep.cli.runtime import command as runtime
from dmlprep.core.errors import CheckNotRun
from dmlprep.runtime import DmlStatus
from dmlprep.runtime.catalog import catalog_lines
from dmlprep.runtime.environment import installed_versions, requirement_findings, runtime_findings


def site(folder: Path, **packages: str) -> list[str]:
    """A folder with the metadata of these packages."""
    for name, version in packages.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    return [str(folder)]


def test_two_packages_clash_and_the_line_that_mends_it_is_printed(tmp_path: Path) -> None:
    path = site(tmp_path, onnxruntime="1.24.4", onnxruntime_directml="1.20.1")
    (found,) = runtime_findings(path, "win32")
    assert (found.code, found.severity) == ("DP801", "error")
    assert found.message == "onnxruntime 1.24.4 and onnxruntime-directml 1.20.1 overwrite each other"
    assert found.remedy.endswith("pip install onnxruntime-directml==1.20.1")
    assert "uninstall -y onnxruntime onnxruntime-directml" in found.remedy
    (found,) = runtime_findings(path, "linux")
    assert found.remedy.endswith("pip install onnxruntime==1.24.4")


@pytest.mark.parametrize(
    ("packages", "system", "code"),
    [
        ({}, "linux", "DP805"),
        ({"onnxruntime": "1.24.4"}, "win32", "DP803"),
        ({"onnxruntime_gpu": "1.20"}, "linux", ""),
        ({"onnxruntime": "1.24.4"}, "linux", ""),
        ({"onnxruntime_directml": "1.24.4"}, "win32", ""),
    ],
)
def test_one_package_or_none(tmp_path: Path, packages: dict[str, str], system: str, code: str) -> None:
    found = runtime_findings(site(tmp_path, **packages), system)
    assert [one.code for one in found] == ([code] if code else [])


_CATALOG = """
from types import SimpleNamespace as Row
class EpCatalog:
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: None
    def find_all_providers(self):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "return [Row(name='QNN', version='2.1', ready_state=Row(name='NotPresent'))]",
            ["QNN 2.1: can be downloaded"],
        ),
        ("return []", ["no providers for this machine"]),
        ("raise OSError('no catalog service')", ["does not answer: OSError: no catalog service"]),
        ("import os; os._exit(5)", ["does not answer: exit code 5"]),
    ],
)
def test_the_catalog_of_windows_ml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, lines: list[str]
) -> None:
    (tmp_path / "windowsml.py").write_text(_CATALOG.format(body=body))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert catalog_lines("win32") == lines
    assert catalog_lines("linux") == []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no program"))
    assert catalog_lines("win32")[0].startswith("does not answer: ")


def test_versions_without_imports(tmp_path: Path) -> None:
    assert installed_versions(("onnx-ir", "numpy"), site(tmp_path, onnx_ir="1.1.0")) == {"onnx-ir": "1.1.0"}


def test_doctor_in_this_environment() -> None:
    result = CliRunner().invoke(doctor, ["--no-dml", "--format", "json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["findings"] == []
    assert record["dml"] is None
    assert "onnx" in record["libraries"]
    kept = record["cpu_worker"]
    assert bool(kept["lacking"]) == (kept["landlock"] == 0 or not kept["seccomp"])
    shown = CliRunner().invoke(doctor, ["--no-dml"]).stdout
    assert ("CPU worker: not fully confined: " if kept["lacking"] else "CPU worker: confined by Landlock") in shown


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is Linux's")
def test_without_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = CliRunner().invoke(doctor, [])
    assert result.exit_code == 0, result.output
    assert (
        "DirectML is not available: the runtime is not installed; run dmlprep runtime install [DP803]" in result.stdout
    )
    result = CliRunner().invoke(runtime, ["status"])
    assert isinstance(result.exception, CheckNotRun)
    assert result.exception.exit_code == 3
    result = CliRunner().invoke(runtime, ["remove"])
    assert result.stdout == "nothing is installed\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is Linux's")
@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ("pinned", ""),
        ("unpinned", "note: w.whl is unpinned: this dmlprep has no digest for it: SHA-256 12ab"),
        ("another", "note: w.whl is different from the file of this name that this dmlprep knows: SHA-256 12ab"),
    ],
)
def test_install_says_what_no_digest_vouches_for(pin: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"file": "w.whl", "sha256": "12ab", "pin": pin}
    monkeypatch.setattr("dmlprep.runtime.linux.install.check_machine", lambda: None)
    monkeypatch.setattr("dmlprep.runtime.linux.install.install", lambda *_: "1.99.0")
    monkeypatch.setattr("dmlprep.runtime.linux.install.package_of", lambda *_: package)
    monkeypatch.setattr("dmlprep.runtime.dml_status", lambda _: DmlStatus(available=True))
    result = CliRunner().invoke(runtime, ["install"])
    assert result.exit_code == 0, result.output
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
    assert notes == ([said] if said else [])


def test_packages_older_than_dmlprep_needs(tmp_path: Path) -> None:
    path = site(tmp_path, dmlprep="0.1.0", numpy="1.26.4", onnx="1.23.2", onnxruntime="1.20.0")
    needs = [
        "numpy>=2.0",
        "onnx>=1.23",
        "absent>=3",
        "onnxruntime>=1.24.4; sys_platform != 'win32'",
        "ruff>=9; extra == 'dev'",
    ]
    (metadata,) = tmp_path.rglob("dmlprep-*/METADATA")
    with metadata.open("a") as file:
        file.writelines(f"Requires-Dist: {one}\n" for one in needs)
    found = requirement_findings(path, "linux")
    assert [(one.code, one.message.split(" is")[0]) for one in found] == [
        ("DP806", "numpy 1.26.4"),
        ("DP806", "onnxruntime 1.20.0"),
    ]
    assert found[0].remedy.endswith('-m pip install "numpy>=2.0"')
    assert [one.message.split()[0] for one in requirement_findings(path, "win32")] == ["numpy"]


def test_the_packages_here_are_new_enough() -> None:
    assert requirement_findings() == []
