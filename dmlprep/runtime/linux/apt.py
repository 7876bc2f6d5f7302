"""What apt is set up to use on this system: the mirror, and how it judges the mirror's dates."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dmlprep.process.tools import run_tool


@dataclass(frozen=True)
class AptMirror:
    """A Debian mirror of apt's source lists.

    Attributes:
        url: its address, empty where apt has none.
        lenient: why release files that have expired are taken from it; empty where they are not.
    """

    url: str = ""
    lenient: str = ""


def mirror_of_this_system(etc: Path = Path("/etc/apt")) -> AptMirror:
    """The Debian mirror that apt is set up to use here.

    Reads both forms of source lists (sources.list(5)). Mirrors of other distributions and of debian-security do not
    count. Who runs this system may have told apt, of this mirror or of all, to take release files that have expired, as
    a mirror that is a copy of one day needs it (``Check-Valid-Until``, apt.conf(5)); that holds here too.
    """
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]
    lines = [line for file in files if file.is_file() for line in file.read_text(errors="replace").splitlines()]
    # (address, what is said of it)
    found = [
        (m[2], f"{m[1] or ''}".lower())
        for line in lines
        if (m := re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(https?://\S+)", line))
    ]
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text(errors="replace")):
            fields = {k.lower(): v for k, v in re.findall(r"^([A-Za-z-]+):[ \t]*(.*?)[ \t]*$", stanza, re.M)}
            said = "".join(f"{key}={value.lower()} " for key, value in fields.items())
            found += [(url, said) for url in fields.get("uris", "").split() if url.startswith("http")]
    for url, said in found:
        if re.search(r"/debian(/\d{8}T\d{6}Z)?$", url.rstrip("/")):  # with a time: a copy on snapshot.debian.org
            return AptMirror(url.rstrip("/"), _lenient(said))
    return AptMirror()


def _lenient(said: str) -> str:
    if own := re.search(r"check-valid-until=(\w+)", said):
        return "apt's source list says so of this mirror" if own[1] in ("no", "false", "0", "off") else ""
    try:
        line = ["apt-config", "dump", "--format", "%v%n", "Acquire::Check-Valid-Until"]
        result = run_tool(line, limit=30.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    off = result.stdout.strip().lower() in ("no", "false", "0", "off", "without", "disable")
    return "apt is told so on this machine (Acquire::Check-Valid-Until)" if off else ""
