"""Build the kernel's filter of system calls for sandboxed programs, with a reason for each refusal.

Two programs have such a filter. bubblewrap sets it for DirectML's worker under Wine (``runtime/linux``). A worker that
opens models on the CPU sets it itself (``confinement.py``), with more refusals (``ALONE``).

The list has refusals, not permissions: Wine, Mesa and LLVM use some 120 calls, which change with their releases. Calls
that are newer than the list are refused as well (``LAST``).

The filter is classic BPF (seccomp(2), linux/filter.h). Child processes inherit it, and it cannot be removed. The
numbers are those of x86-64 (asm/unistd_64.h). A worker imports this module before it is ready, so the module imports
little.
"""

from __future__ import annotations

import errno
import struct

LAST = 462
"""The last call in this list: mseal, Linux 6.10. Higher numbers do not exist for the program (ENOSYS), as on an older
kernel. The x32 calls do not exist either. They are the same numbers with bit 30 set, so no comparison would match them.
"""


def _calls(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (row.split() for row in text.split(","))}


REFUSED = {
    "mounts: they decide what the program sees of the host": _calls(
        "mount 165, umount2 166, pivot_root 155, mount_setattr 442, open_tree 428, move_mount 429, fsopen 430, "
        "fsconfig 431, fsmount 432, fspick 433, statmount 457, listmount 458"
    ),
    "namespaces: in its own user namespace a program has all capabilities and reaches more kernel "
    "faults. clone with such flags is refused too. clone3 fails: its flags are in memory": _calls(
        "unshare 272, setns 308"
    ),
    "other processes' memory, registers and descriptors; Wine does not need them": _calls(
        "ptrace 101, process_vm_readv 310, process_vm_writev 311, kcmp 312, pidfd_getfd 438, process_madvise 440"
    ),
    "keys: keyrings know users, not sandboxes, and those of the session might contain secrets of the user": _calls(
        "add_key 248, request_key 249, keyctl 250"
    ),
    "files by handle or by number: a way around the mounts": _calls("name_to_handle_at 303, open_by_handle_at 304"),
    "device files and FIFOs, which can block the program that opens them": _calls("mknod 133, mknodat 259"),
    "parts of the kernel with frequent faults, which dmlprep does not use": _calls(
        "bpf 321, perf_event_open 298, userfaultfd 323, io_uring_setup 425, io_uring_enter 426, io_uring_register 427, "
        "fanotify_init 300, fanotify_mark 301, memfd_secret 447, modify_ldt 154, uselib 134, _sysctl 156, nfsservctl "
        "180, lookup_dcookie 212, remap_file_pages 216, vmsplice 278"
    ),
    "placement of memory on NUMA nodes, which other programs share": _calls(
        "mbind 237, set_mempolicy 238, migrate_pages 256, move_pages 279, set_mempolicy_home_node 450"
    ),
    "the kernel's code, and the system's ports, swap, accounts, quotas, clock, name, log and terminals": _calls(
        "init_module 175, finit_module 313, delete_module 176, create_module 174, query_module 178, get_kernel_syms "
        "177, kexec_load 246, kexec_file_load 320, iopl 172, ioperm 173, reboot 169, swapon 167, swapoff 168, acct "
        "163, quotactl 179, quotactl_fd 443, settimeofday 164, clock_settime 227, adjtimex 159, clock_adjtime 305, "
        "sethostname 170, setdomainname 171, syslog 103, vhangup 153"
    ),
}
"""Calls that are refused for any arguments: for each reason, the numbers by name.

The calls chroot and setuid are allowed: they need capabilities, and the sandbox uses them as root to drop its own.
"""

ALONE = {
    "programs: a worker on the CPU starts no program": _calls("fork 57, vfork 58, execve 59, execveat 322"),
    "sockets: a worker on the CPU talks over its pipes; a socket leads to the network, or to the user's "
    "services": _calls("socket 41, socketpair 53"),
    "other processes: signals, limits and priorities; memory and messages that processes of one user share": _calls(
        "tkill 200, rt_sigqueueinfo 129, rt_tgsigqueueinfo 297, pidfd_open 434, pidfd_send_signal 424, "
        "process_mrelease 448, setpriority 141, ioprio_set 251, shmget 29, shmat 30, semget 64, msgget 68, mq_open "
        "240, mq_unlink 241"
    ),
    "rights, owners, times and attributes of files, which Landlock does not cover": _calls(
        "chmod 90, fchmod 91, fchmodat 268, fchmodat2 452, chown 92, fchown 93, lchown 94, fchownat 260, utime 132, "
        "utimes 235, futimesat 261, utimensat 280, setxattr 188, lsetxattr 189, fsetxattr 190, removexattr 197, "
        "lremovexattr 198, fremovexattr 199, truncate 76"
    ),
}
"""Further calls that are refused to a worker that starts no program and connects to none, in the form of
``REFUSED``."""

IOCTLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}
"""Refused requests to a terminal: typing in the user's name, pasting into the console, and line disciplines, which are
old code. The kernel reads 32 bits of a request, and so does the filter."""

CLONE_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (linux/sched.h)."""

_CLONE_THREAD = 0x00010000

_PR_SET_PDEATHSIG = 1

_PERSONALITIES = (0, 0xFFFFFFFF)
"""Allowed arguments of personality(2): Linux's own personality, and the query for the current one. The others enable
old behaviour or disable randomisation."""

_AF_UNIX = 1

_CLONE, _CLONE3, _IOCTL, _PERSONALITY, _SOCKET, _SOCKETPAIR = 56, 435, 16, 135, 41, 53
_KILL_CALL, _TGKILL, _PRLIMIT, _PRCTL = 62, 234, 302, 157

_ARCH_X86_64 = 0xC000003E  # linux/audit.h

# linux/bpf_common.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# struct seccomp_data: the number, the architecture, and from byte 16 on six arguments of 8 bytes, low half first.
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16

_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def _refuse(number: int) -> int:
    return 0x00050000 | number  # SECCOMP_RET_ERRNO


_Step = tuple[int, int, int, int]
"""One instruction of the filter (struct sock_filter): code, instructions to skip if the test is true and if it is
false, operand."""


def _when(call: int, steps: list[_Step]) -> list[_Step]:
    """Return the instructions that run ``steps`` only for one call.

    Each path through ``steps`` ends with a result.
    """
    return [(_EQUAL, 0, len(steps), call), *steps]


def _only(place: int, values: tuple[int, ...], error: int) -> list[_Step]:
    """Return instructions that allow only these values of the low half of argument ``place``, and refuse others."""
    tests = [(_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGUMENT + 8 * place), *tests, (_RETURN, 0, 0, _refuse(error)), (_RETURN, 0, 0, _ALLOW)]


def _none_of(place: int, values: tuple[int, ...], error: int, test: int = _EQUAL) -> list[_Step]:
    """Return instructions that refuse these values of the low half of argument ``place``, and allow others.

    With ``test=_ANY_BIT``, a value is refused if it has any bit of ``values``.
    """
    tests = [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGUMENT + 8 * place), *tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _refuse(error))]


def _to_one_another() -> list[_Step]:
    """Return the instructions for programs that may start other programs and communicate with them."""
    return [
        *_when(_CLONE, _none_of(0, (CLONE_NAMESPACES,), errno.EPERM, _ANY_BIT)),
        # No network is reachable, but a socket of another kind (vsock, netlink, alg, packet ...) would run more kernel
        # code.
        *_when(_SOCKET, _only(0, (_AF_UNIX,), errno.EAFNOSUPPORT)),
        *_when(_SOCKETPAIR, _only(0, (_AF_UNIX,), errno.EAFNOSUPPORT)),
    ]


def _alone(own: int) -> list[_Step]:
    """Return the instructions for the process with the id ``own``, which may start and signal only its threads."""
    only_threads = [
        (_LOAD, 0, 0, _ARGUMENT),
        (_ANY_BIT, 1, 0, CLONE_NAMESPACES),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _refuse(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return [
        *_when(_CLONE, only_threads),
        *_when(_KILL_CALL, _only(0, (own,), errno.EPERM)),
        *_when(_TGKILL, _only(0, (own,), errno.EPERM)),
        *_when(_PRLIMIT, _only(0, (0, own), errno.EPERM)),
        # With this call, the process could survive its parent.
        *_when(_PRCTL, _none_of(0, (_PR_SET_PDEATHSIG,), errno.EPERM)),
    ]


def program(own: int = 0) -> bytes:
    """Return the filter as binary code for ``bwrap --seccomp`` and seccomp(2).

    ``own`` is the id of a process that has threads and starts no program; 0: the filter is for programs that may start
    others.
    """
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCH_X86_64),
        # 32-bit programs have other call numbers. There are none here, and no libraries for them.
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, LAST + 1),
        (_RETURN, 0, 0, _refuse(errno.ENOSYS)),
        *_when(_CLONE3, [(_RETURN, 0, 0, _refuse(errno.ENOSYS))]),
        *_when(_IOCTL, _none_of(1, tuple(IOCTLS.values()), errno.EPERM)),
        *_when(_PERSONALITY, _only(0, _PERSONALITIES, errno.EPERM)),
        *(_alone(own) if own else _to_one_another()),
    ]
    for calls in (REFUSED | ALONE if own else REFUSED).values():
        for number in calls.values():
            steps += _when(number, [(_RETURN, 0, 0, _refuse(errno.EPERM))])
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
