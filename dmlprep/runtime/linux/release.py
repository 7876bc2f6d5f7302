"""Check the release file of a suite (a Debian release): its signature, and whether it is the archive's current one.

A good signature alone proves little. Every release file that Debian ever signed keeps its signature, also one of
another suite and an old one. The key may have expired since, or been revoked. ``docs/runtime.md`` lists the checks.
Formats: the repository format of the Debian wiki, GnuPG's doc/DETAILS.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.process.tools import run_tool
from dmlprep.runtime.linux.archive import parse_release

DEFAULT_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The file with Debian's keys from the package debian-archive-keyring."""

_AHEAD = timedelta(days=1)
"""How far a release file may be ahead of this machine's clock. A clock in the wrong time zone is not an attack."""

_HASHES = {"8", "9", "10", "11"}
"""Accepted hashes: SHA-256, -384, -512, -224 (RFC 4880, 9.4). Others, such as SHA-1, can be forged."""

_FAULTS = {
    "EXPSIG": "the signature of key {} has expired",
    "EXPKEYSIG": "key {} has expired",
    "REVKEYSIG": "key {} was revoked",
    "BADSIG": "the text does not match the signature of key {}",
    "ERRSIG": "key {} is not in the keyring, or its kind is unknown to gpgv",
}


@dataclass(frozen=True)
class Release:
    """The content of a release file.

    Attributes:
        codename: the suite.
        date: the date in its field Date.
        until: its expiry date; ``None`` for stable suites, which have none.
        files: SHA-256, and size in bytes, of every file of the suite, by path.
    """

    codename: str
    date: datetime
    until: datetime | None
    files: Mapping[str, tuple[str, int]] = field(repr=False)


@dataclass(frozen=True)
class Expectation:
    """The facts that release files are compared with.

    Attributes:
        now: the time of this machine's clock.
        lenient: why expired release files are accepted; empty if they are refused.
        least: for each suite, the date of the release file that this dmlprep was tested with. An older one is a replay.
        newest_used: for each suite, the date of the newest release file that this installation used.
    """

    now: datetime
    lenient: str = ""
    least: Mapping[str, datetime] = field(default_factory=dict)
    newest_used: Mapping[str, datetime] = field(default_factory=dict)


def verify_release(raw: bytes, keyring: Path, where: str = "InRelease") -> tuple[str, str]:
    """Return the signed text of an ``InRelease`` file, and how it was verified: ``signed by FINGERPRINT``.

    Raises:
        CheckNotRun: gpgv or the keyring is missing, or gpgv does not answer.
        UsageError: no currently valid key of the keyring has signed it, it is not one signed text, or the keyring is
            not readable or is in text form.
    """
    _one_message(raw, where)
    if shutil.which("gpgv") is None or not keyring.is_file():
        fix = "install gpgv and debian-archive-keyring; without that package, pass --keyring FILE"
        what = "the Debian archive's signature cannot be verified: gpgv or its keyring is missing"
        raise CheckNotRun(what, where=str(keyring), fix=fix)
    try:
        form = keyring.read_bytes()[:11]
    except OSError as error:
        what = f"the keyring cannot be read: {error}"
        raise UsageError(what, where=str(keyring), fix="pass --keyring FILE") from None
    if form == b"-----BEGIN ":
        fix = f"gpg --dearmor -o keys.gpg {keyring.name}, then --keyring keys.gpg"
        raise UsageError("gpgv cannot read a keyring in text form", where=str(keyring), fix=fix)
    with temporary_folder("release") as folder:
        signed, text = Path(folder, "InRelease"), Path(folder, "Release")
        signed.write_bytes(raw)
        command = ["gpgv", "--keyring", str(keyring.resolve()), "--status-fd", "1", "--output", str(text), str(signed)]
        try:
            status = run_tool(command, limit=120.0).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CheckNotRun(f"gpgv does not answer: {error}", where=where, fix="check that gpgv runs") from None
        good, faults = _signers(status)
        if not good or "[GNUPG:] BADSIG" in status or not text.is_file():
            what = "no valid key of the keyring signed the Debian archive's release file"
            fix = "update debian-archive-keyring, check this machine's clock, or use another mirror"
            raise UsageError(f"{what}: {'; '.join(faults) or 'it has no signature'}", where=str(keyring), fix=fix)
        return "\n" + text.read_text(encoding="utf-8", errors="replace"), f"signed by {good[0]}"


def _one_message(raw: bytes, where: str) -> None:
    """Raise ``UsageError`` unless the data is exactly one signed text, because text around it is not signed."""
    marks = re.findall(rb"^-----.*", raw, re.M)
    wanted = [f"-----{mark}-----".encode() for mark in ("BEGIN PGP SIGNED MESSAGE", "BEGIN PGP SIGNATURE")]
    headers = [mark.strip() for mark in marks if mark.startswith(b"-----BEGIN PGP ")]
    if headers != wanted or not raw.startswith(wanted[0]):
        fix = "check that the address is a Debian mirror; perhaps a proxy answered instead"
        raise UsageError("the answer is not a signed release file", where=where, fix=fix)


def _signers(status: str) -> tuple[list[str], list[str]]:
    """Return the fingerprints of the keys with a valid signature, and the faults of the others.

    The archive signs with several keys. For every signature that matches the text, gpgv prints VALIDSIG after the line
    with the state of its key.
    """
    good, faults, state = [], [], ""
    for line in status.splitlines():
        words = line.split()
        if len(words) < 3 or words[0] != "[GNUPG:]":
            continue
        if words[1] in ("GOODSIG", *_FAULTS):
            state = words[1]
            if state in _FAULTS:
                faults.append(_FAULTS[state].format(words[2]))
        elif words[1] == "VALIDSIG":
            # [GNUPG:] VALIDSIG fingerprint day seconds expires version reserved algorithm hash class [primary key]
            if state == "GOODSIG" and len(words) > 9 and words[9] in _HASHES:
                good.append(words[2])
            elif state == "GOODSIG":
                faults.append(f"the signature of key {words[2]} uses a weak hash")
            state = ""
    return good, faults


def moment(text: str) -> datetime:
    """Parse a date such as ``Sat, 12 Sep 2026 07:55:41 UTC`` (RFC 2822); return it in UTC.

    Raises:
        ValueError: the text is not a date.
    """
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError, IndexError):
        raise ValueError(f"{text[:40]!r} is not a date") from None
    return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)


def _read(text: str) -> Release:
    fields: dict[str, str] = {}
    for name, value in re.findall(r"^([A-Za-z0-9-]+):[ \t]*(.*?)[ \t\r]*$", text, re.M):
        if fields.setdefault(name, value) != value:
            raise ValueError(f"it has {name} twice")
    for name in ("Codename", "Date"):
        if not fields.get(name):
            raise ValueError(f"it has no {name}")
    until = fields.get("Valid-Until")
    return Release(fields["Codename"], moment(fields["Date"]), moment(until) if until else None, parse_release(text))


def check_release(text: str, suite: str, expected: Expectation, where: str) -> tuple[Release, str]:
    """Check a release file; return its content, and a note about an accepted fault (empty without one).

    Raises:
        CheckNotRun: it cannot be read, is of another suite, has expired, is from the future, or is older than a known
            one.
    """
    try:
        release = _read(text)
    except ValueError as error:
        fix = "check that the address is a Debian mirror, or use another one"
        raise CheckNotRun(f"the release file cannot be read: {error}", where=where, fix=fix) from None
    if release.codename != suite:
        what = f"answers with the release file of {release.codename[:40]!r} instead of {suite}"
        fix = "use another mirror: this one is broken, or another server answers instead"
        raise CheckNotRun(f"the mirror {what}", where=where, fix=fix)
    if release.date > expected.now + _AHEAD:
        what = f"the release file is from the future: its date is {_say(release.date)}, {_clock(expected)}"
        raise CheckNotRun(what, where=where, fix="set this machine's clock; if it is right, use another mirror")
    _not_older(release, suite, expected, where)
    return release, _not_expired(release, suite, expected, where)


def _not_older(release: Release, suite: str, expected: Expectation, where: str) -> None:
    newest = expected.newest_used.get(suite)
    if newest and release.date < newest:
        raise CheckNotRun(
            f"the mirror goes back in time: its release file of {suite} is from "
            f"{_say(release.date)}, but this installation has used one from {_say(newest)}",
            where=where,
            fix="the mirror is older than another one: try again in a day, or use another mirror; to go back on "
            "purpose, run dmlprep runtime remove first",
        )
    least = expected.least.get(suite)
    if least and release.date < least:
        what = f"the mirror's release file of {suite} is from {_say(release.date)}"
        older = f"older than the one that this dmlprep was tested with ({_say(least)})"
        raise CheckNotRun(f"{what}, {older}", where=where, fix="use a mirror that is up to date")


def _not_expired(release: Release, suite: str, expected: Expectation, where: str) -> str:
    if release.until is None or release.until >= expected.now:
        return ""
    expired = f"expired on {_say(release.until)}"
    if expected.lenient:
        return f"{expired}, accepted because {expected.lenient}"
    raise CheckNotRun(
        f"the mirror's release file of {suite} has {expired}, {_clock(expected)}: newer packages and their "
        "fixes might be missing",
        where=where,
        fix="use a mirror that is up to date, or set the clock if it is wrong. For a "
        "deliberate copy of one day, set check-valid-until=no for it in apt's source list",
    )


def _say(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _clock(expected: Expectation) -> str:
    return f"but this machine's clock is at {_say(expected.now)}"
