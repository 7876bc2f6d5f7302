"""Write the digests of packages of ONNX Runtime to ``dmlprep/runtime/linux/packages.toml``.

    python scripts/pin_packages.py 1.24.4 1.30.0     query pip's and npm's index for the packages of these releases
    python scripts/pin_packages.py onnxruntime-windowsml==1.28.0.202607272323     one package

A digest that differs from the saved one is an error, and nothing is written: find out why first. A package that a
target was read from needs no row here. Exit codes: 0 good, 1 a digest differs, 3 not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from dmlprep.runtime.linux.pins import PINS, known_digests, packages
from dmlprep.runtime.linux.wheel import FIRST_WHEEL, numbers, python_for

HEAD = """# Digests of the packages that hold a release of ONNX Runtime with DirectML, by file name. Written by
# scripts/pin_packages.py: sha256 as pip's index had them, sha512 as npm's (its "integrity").

[packages]
"""


class NotRun(Exception):
    """The index has no answer."""


def of_pip(requirement: str) -> tuple[str, str]:
    """Return file name and digest of a wheel for win_amd64, without installing it."""
    version = requirement.partition("==")[2]
    with tempfile.TemporaryDirectory() as folder:
        line = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"),
            *("--only-binary=:all:", "--platform", "win_amd64", "--python-version", python_for(version)),
            *("--target", folder, "--report", "-", requirement),
        ]
        result = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", check=False)
    if result.returncode:
        raise NotRun(f"pip has no {requirement}")
    info = json.loads(result.stdout)["install"][0]["download_info"]
    return info["url"].rpartition("/")[2], f"sha256-{info['archive_info']['hashes']['sha256']}"


def of_npm(version: str) -> tuple[str, str]:
    """Return file name and digest of npm's package."""
    line = ["npm", "view", f"onnxruntime-node@{version}", "dist.integrity", "--json"]
    result = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", check=False)
    digest = json.loads(result.stdout or '""') if result.returncode == 0 else ""
    if not isinstance(digest, str) or not digest.startswith("sha512-"):
        raise NotRun(f"npm has no onnxruntime-node {version}")
    return f"onnxruntime-node-{version}.tgz", digest


def of_release(asked: str) -> list[tuple[str, str]]:
    """Return the packages of one release, or the package with the given name and version."""
    pins = []
    if "==" in asked:
        return [of_pip(asked)]
    wheels = [(of_pip, f"onnxruntime-directml=={asked}"), (of_pip, f"onnxruntime-windowsml=={asked}.*")]
    for ask, what in [*(wheels if numbers(asked) >= FIRST_WHEEL else []), (of_npm, asked)]:
        try:
            pins.append(ask(what))
        except NotRun as error:
            print(error)
    if not pins:
        raise NotRun(f"no package has {asked}")
    return pins


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="+", metavar="RELEASE|NAME==VERSION")
    asked = parser.parse_args(list(arguments))
    known = dict(known_digests())
    try:
        digests = dict(row for release in asked.releases for row in of_release(release))
    except NotRun as error:
        print(f"pin_packages: NOT RUN ({error})", file=sys.stderr)
        return 3
    differ = [
        name
        for name, digest in digests.items()
        if name in known and known[name].partition("-")[0] == digest.partition("-")[0] and known[name] != digest
    ]
    if differ:
        print(f"pin_packages: the index has other digests than are written down: {differ}", file=sys.stderr)
        return 1
    rows = sorted({**packages(), **digests}.items())
    PINS.write_text(HEAD + "".join(f'"{name}" = "{digest}"\n' for name, digest in rows), encoding="utf-8")
    print(f"{len(rows)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
