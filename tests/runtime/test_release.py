"""Release files: who signed them, and whether they are today's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.runtime.linux.archive import parse_release
from dmlprep.runtime.linux.release import Expectation, check_release, verify_release
from tests.runtime.debian import GPG, NOW, Keys, armored, date, made_keys, release_text

TEXT = release_text("trixie", {"x": ("aa", 1)})


@pytest.fixture(scope="module")
def keys() -> Iterator[Keys]:
    with made_keys() as made:
        yield made


@GPG
def test_what_a_key_of_the_keyring_signed_is_taken(keys: Keys) -> None:
    text, how = verify_release(keys.sign(TEXT), keys.keyring)
    assert parse_release(text) == {"x": ("aa", 1)}
    assert how.startswith("signed by ")


@GPG
@pytest.mark.parametrize(
    ("key", "more", "reason"),
    [
        ("expired", (), r"key \w+ has expired"),
        ("revoked", (), r"key \w+ was revoked"),
        ("stranger", (), r"key \w+ is not in the keyring"),
        ("good", ("--digest-algo", "SHA1"), "weak hash"),
        (
            "good",
            ("--default-sig-expire", "2d", "--faked-system-time", "20200105T000000"),
            r"the signature of key \w+ has expired",
        ),
    ],
)
def test_signatures_that_do_not_hold_today(keys: Keys, key: str, more: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        verify_release(keys.sign(TEXT, key, *more), keys.keyring)
    assert "clock" in caught.value.fix


@GPG
def test_one_signature_that_holds_is_enough_beside_others_that_do_not(keys: Keys) -> None:
    """As Debian's keys end one after the other, and each file carries several signatures."""
    raw = keys.sign(TEXT, "good", "--local-user", "revoked@example.org")
    assert verify_release(raw, keys.keyring)[1].startswith("signed by ")
    with pytest.raises(UsageError, match=r"was revoked; key \w+ has expired"):
        verify_release(
            keys.sign(TEXT, "expired", "--local-user", "revoked@example.org", "--faked-system-time", "20200105T000000"),
            keys.keyring,
        )


@GPG
def test_a_text_that_was_changed_is_refused(keys: Keys) -> None:
    with pytest.raises(UsageError, match="does not match the signature of key"):
        verify_release(keys.sign(TEXT).replace(b" aa 1 x", b" bb 1 x"), keys.keyring)


@GPG
def test_what_stands_around_the_signed_text_is_refused(keys: Keys) -> None:
    signed = keys.sign(TEXT)
    for raw in (b"SHA256:\n bb 1 x\n" + signed, signed + signed, armored(TEXT) + signed, b"<html>log in</html>", b""):
        with pytest.raises(UsageError, match="not a signed release file"):
            verify_release(raw, keys.keyring)


def test_what_cannot_be_verified_is_not_taken(tmp_path: Path) -> None:
    empty, text_form = tmp_path / "empty.gpg", tmp_path / "keys.asc"
    empty.write_bytes(b"")
    text_form.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n", encoding="utf-8")
    with pytest.raises((UsageError, CheckNotRun)):
        verify_release(armored(TEXT), empty)
    with pytest.raises((UsageError, CheckNotRun), match=r"dearmor|gpgv"):
        verify_release(armored(TEXT), text_form)
    with pytest.raises(CheckNotRun, match="--keyring"):
        verify_release(armored(TEXT), tmp_path / "missing.gpg")


def check(fields: dict[str, str], expected: Expectation | None = None) -> str:
    """The note on a release file of trixie that has these fields."""
    text = release_text("trixie", {}, **fields)
    return check_release(text, "trixie", expected or Expectation(NOW), "http://m/InRelease")[1]


@pytest.mark.parametrize(
    "fields",
    [{}, {"Suite": "stable"}, {"Date": date(days=-400), "Valid_Until": ""}, {"Date": date(hours=20)}],
    ids=["of today", "a role", "a stable suite, which says no end", "a clock in another time zone"],
)
def test_release_files_of_today(fields: dict[str, str]) -> None:
    assert check(fields) == ""


@pytest.mark.parametrize(
    ("fields", "reason", "fix"),
    [
        ({"Codename": "bookworm"}, "release file of 'bookworm' instead of trixie", "another mirror"),
        ({"Codename": "trixie-updates"}, "'trixie-updates'", "another mirror"),
        ({"Codename": "", "Suite": "trixie"}, "has no Codename", "Debian mirror"),
        ({"Date": date(days=3)}, r"from the future.*this machine's clock is at \d{4}-", "set this machine's clock"),
        (
            {"Valid_Until": date(hours=-1)},
            r"has expired on .*this machine's clock is at \d{4}-",
            "set the clock if it is wrong",
        ),
        ({"Valid_Until": "Fri, 01 Jan 1999 00:00:00 UTC"}, "expired on 1999-01-01 00:00 UTC", "check-valid-until=no"),
        ({"Date": ""}, "has no Date", "Debian mirror"),
        ({"Date": "yesterday"}, "'yesterday' is not a date", "Debian mirror"),
        ({"Date": "Sat, 12 Sep 99999999999 07:55:41 UTC"}, "is not a date", "Debian mirror"),
        ({"Valid_Until": "Fri, 32 Jan 2026 00:00:00 UTC"}, "is not a date", "Debian mirror"),
        ({"Date": f"{date()}\nDate: {date(days=-1)}"}, "has Date twice", "Debian mirror"),
    ],
)
def test_release_files_that_are_not_today_s(fields: dict[str, str], reason: str, fix: str) -> None:
    with pytest.raises(CheckNotRun, match=reason) as caught:
        check(fields)
    assert caught.value.where == "http://m/InRelease"
    assert fix in caught.value.fix


def test_a_mirror_does_not_go_back_in_time() -> None:
    seen = Expectation(NOW, newest_used={"trixie": NOW - timedelta(days=1)})
    assert check({"Date": date(days=-1)}, seen) == "", "the same again"
    with pytest.raises(CheckNotRun, match=r"goes back in time.*has used one from") as caught:
        check({"Date": date(days=-2)}, seen)
    assert "runtime remove" in caught.value.fix
    assert check({"Date": date(days=-2)}, Expectation(NOW, newest_used={"forky": NOW})) == "", "another suite"


def test_a_mirror_is_not_older_than_the_one_this_dmlprep_was_tried_with() -> None:
    least = {"trixie": NOW - timedelta(days=10)}
    old = {"Date": date(days=-20), "Valid_Until": ""}
    with pytest.raises(CheckNotRun, match="older than the one that this dmlprep was tested with"):
        check(old, Expectation(NOW, least=least))


def test_an_expired_copy_is_accepted_where_apt_accepts_it() -> None:
    copy = {"Date": date(days=-60), "Valid_Until": date(days=-53)}
    assert "because apt is told so" in check(copy, Expectation(NOW, lenient="apt is told so"))
