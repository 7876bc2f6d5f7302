"""The filter of system calls: by an interpreter of its instructions, and by the kernel."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dmlprep.process.seccomp import IOCTLS, LAST, REFUSED, program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X86_64, I386 = 0xC000003E, 0x40000003

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the filter is Linux's")


def answer(number: int, *arguments: int, architecture: int = X86_64) -> int:
    """What the filter says of a call, by the rules of linux/filter.h."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(arguments + (0,) * 6)[:6])
    steps = list(struct.iter_unpack("<HBBI", program()))
    at, held = 0, 0
    while True:
        code, holds, else_, operand = steps[at]
        at += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, operand)
        else:
            truth = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}[code]
            at += holds if truth else else_


def refused(number: int) -> int:
    return ERRNO | number


def test_the_filter_is_one_that_the_kernel_takes() -> None:
    steps = list(struct.iter_unpack("<HBBI", program()))
    assert 0 < len(steps) <= 4096
    for at, (code, holds, else_, _operand) in enumerate(steps):
        if code in (0x15, 0x35, 0x45):
            assert at + 1 + max(holds, else_) < len(steps)
    assert steps[-1][0] == 0x06


def test_every_refused_call_fails_and_has_a_reason() -> None:
    numbers = [number for calls in REFUSED.values() for number in calls.values()]
    assert len(numbers) == len(set(numbers)) > 60
    assert all(len(reason) > 20 for reason in REFUSED)
    for number in numbers:
        assert answer(number) == refused(errno.EPERM)


def test_the_calls_of_a_session_are_allowed() -> None:
    everyday = {"read": 0, "mmap": 9, "ioctl TCGETS": 16, "clone": 56, "fork": 57, "execve": 59, "kill": 62}
    everyday |= {"futex": 202, "openat": 257, "memfd_create": 319, "rseq": 334, "futex_waitv": 449, "chroot": 161}
    for number in everyday.values():
        assert answer(number, 0, 0x5401) == ALLOW


def test_other_numberings_and_later_calls_do_not_exist() -> None:
    assert answer(0, architecture=I386) == KILL
    assert answer(LAST) == ALLOW
    for number in (LAST + 1, 1000, 0x40000000, 0x40000000 | 165, 0xFFFFFFFF):
        assert answer(number) == refused(errno.ENOSYS)


@pytest.mark.parametrize("flag", [0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000])
def test_no_process_starts_in_namespaces_of_its_own(flag: int) -> None:
    assert answer(56, flag | 17) == refused(errno.EPERM)
    assert answer(56, 0x3D0F00) == ALLOW  # a thread, as the C library makes it
    assert answer(435) == refused(errno.ENOSYS)


@pytest.mark.parametrize("request_", sorted(IOCTLS.values()))
def test_terminals_are_left_alone(request_: int) -> None:
    assert answer(16, 0, request_) == refused(errno.EPERM)
    # The kernel looks at 32 bits.
    assert answer(16, 0, 1 << 32 | request_) == refused(errno.EPERM)


def test_sockets_are_of_this_machine() -> None:
    for call in (41, 53):
        assert answer(call, 1) == ALLOW
        for family in (0, 2, 10, 16, 17, 38, 40):
            assert answer(call, family) == refused(errno.EAFNOSUPPORT)


def test_personalities() -> None:
    assert answer(135, 0) == answer(135, 0xFFFFFFFF) == ALLOW
    assert answer(135, 0x0400000) == refused(errno.EPERM)


_UNDER_THE_FILTER = """
import ctypes, errno, os, socket, sys
from dmlprep.process.seccomp import program

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

raw = program()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(raw) // 8, raw)), 0, 0) == 0
for call, number in ((libc.unshare, 0x10000000), (libc.ptrace, 0)):
    assert call(number, 0, 0, 0) == -1
    assert ctypes.get_errno() == errno.EPERM
assert libc.syscall(1000) == -1
assert ctypes.get_errno() == errno.ENOSYS
try:
    socket.socket(socket.AF_INET)
except OSError as error:
    assert error.errno == errno.EAFNOSUPPORT
else:
    raise AssertionError("a socket")
socket.socket(socket.AF_UNIX).close()
assert os.waitstatus_to_exitcode(os.spawnvp(os.P_WAIT, "true", ["true"])) == 0
print("held")
"""


@linux
def test_the_kernel_holds_programs_to_it() -> None:
    done = subprocess.run([sys.executable, "-c", _UNDER_THE_FILTER], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "held", done.stderr


@pytest.mark.dml
@linux
def test_the_numbers_are_those_of_the_runtime_s_headers() -> None:
    from dmlprep.runtime.linux.layout import Layout

    header = Layout.of_user().root / "usr/include/x86_64-linux-gnu/asm/unistd_64.h"
    rows = (line.split() for line in Path(header).read_text().splitlines() if line.startswith("#define __NR_"))
    known = {row[1].removeprefix("__NR_"): int(row[2]) for row in rows if row[2].isdigit()}
    for calls in REFUSED.values():
        for name, number in calls.items():
            assert known[name] == number
    assert known["mseal"] == LAST
