"""The sources of the runtime's pieces: options of the command line, and apt's configuration."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmlprep.process.tools import run_tool
from dmlprep.runtime.linux.layout import DEFAULT_RELEASE
from dmlprep.runtime.linux.release import DEFAULT_KEYRING

Say = Callable[[str, int, int], None]
"""Progress callback: (what, bytes done, bytes in all)."""


@dataclass(frozen=True)
class Source:
    """The sources of the pieces: a Debian mirror, the keys of its archive, a release of ONNX Runtime with DirectML.

    An empty ``mirror`` means apt's mirror. ``wheel`` is a local file that replaces the download by pip.
    """

    mirror: str = ""
    keyring: Path = DEFAULT_KEYRING
    release: str = DEFAULT_RELEASE
    wheel: Path | None = None


@dataclass(frozen=True)
class AptMirror:
    """A Debian mirror in apt's source lists; the address is empty if apt has none.

    ``lenient``: why its expired release files are accepted; empty if they are refused.
    """

    url: str = ""
    lenient: str = ""


def mirror_of_this_system(etc: Path = Path("/etc/apt")) -> AptMirror:
    """Return the first Debian mirror in apt's configuration on this system; its address is empty if there is none.

    Both forms of source lists are read (sources.list(5)). Mirrors of other distributions and of debian-security are
    ignored. If apt accepts expired release files, from this mirror or from all, dmlprep accepts them too
    (``Check-Valid-Until``, apt.conf(5)). A mirror that is a copy of one day needs this.
    """
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]
    text = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
    rows = re.findall(r"^[ \t]*deb[ \t]+(?:\[([^]\n]*)\][ \t]+)?(https?://\S+)", text, re.M)
    mirrors = [(url, options.lower()) for options, url in rows]
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text(errors="replace")):
            fields = {k.lower(): v for k, v in re.findall(r"^([A-Za-z-]+):[ \t]*(.*?)[ \t]*$", stanza, re.M)}
            options = "".join(f"{key}={value.lower()} " for key, value in fields.items())
            mirrors += [(url, options) for url in fields.get("uris", "").split() if url.startswith("http")]
    for url, options in mirrors:
        if re.search(r"/debian(/\d{8}T\d{6}Z)?$", url.rstrip("/")):  # with a time: a copy on snapshot.debian.org
            return AptMirror(url.rstrip("/"), _lenient(options))
    return AptMirror()


def _lenient(options: str) -> str:
    if own := re.search(r"check-valid-until=(\w+)", options):
        return "apt's source list sets it for this mirror" if own[1] in ("no", "false", "0", "off") else ""
    try:
        result = run_tool(["apt-config", "dump", "--format", "%v%n", "Acquire::Check-Valid-Until"], limit=30.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    off = result.stdout.strip().lower() in ("no", "false", "0", "off", "without", "disable")
    return "apt's settings set it (Acquire::Check-Valid-Until)" if off else ""
