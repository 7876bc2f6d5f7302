"""The sandbox: what a program in it can do, as root and as a user; and what is done with what it leaves."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dmlprep.process.child import Child
from dmlprep.record import DeviceInfo
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions
from dmlprep.runtime.linux import sandbox, shaders, shared_folders, staging
from dmlprep.runtime.linux.layout import Layout
from tests.living import gone_within
from tests.runtime import as_user, breaking_out
from tests.system import needs_links, not_on_windows

pytestmark = not_on_windows("the sandbox is Linux's")
dml = pytest.mark.dml
root_alone = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone gives files away")

_SOURCE = (Path(__file__).parent / "native" / "break_out.c").read_text()
ATTEMPTS = [name for name in re.findall(r"ATTEMPT\((\w+)\)", _SOURCE) if name != "name"]


# ---- breaking out --------------------------------------------------------------------------------------------------


def done_by(who: str, what: str) -> object:
    if os.geteuid() != 0:
        if who == "root":
            pytest.skip("root's sandbox is tested where root runs the tests")
        return getattr(breaking_out, what)()
    if who == "root":
        return getattr(breaking_out, what)()
    try:
        return as_user.run(what)
    except RuntimeError as error:
        if "dmlprep/runtime" in str(error):
            raise
        pytest.skip(f"root cannot become a user with a runtime here: {error}")


@pytest.fixture(scope="module", params=["root", "user"])
def tried(request: pytest.FixtureRequest) -> dict[str, str]:
    found = done_by(request.param, "attempts")
    assert isinstance(found, dict)
    return found


@dml
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_nobody_breaks_out(tried: dict[str, str], attempt: str) -> None:
    assert tried[attempt].startswith("held ")


@dml
def test_every_attempt_was_made(tried: dict[str, str]) -> None:
    assert list(tried) == ATTEMPTS
    assert len(set(ATTEMPTS)) == len(ATTEMPTS) > 70


@dml
@pytest.mark.parametrize("who", ["root", "user"])
def test_a_session_computes_and_is_not_root(who: str) -> None:
    """A user without a home, with the runtime of another; a model that only its owner may read."""
    found = done_by(who, "session")
    assert isinstance(found, dict)
    assert found["found"] == [0.0, 2.0, 4.0]
    assert len(found["users"]) == 1
    assert 0 not in found["users"]


@dml
def test_all_processes_end_with_the_first() -> None:
    layout = Layout.of_user()
    script = "(setsid sh -c 'trap : TERM INT HUP; while :; do sleep 1; done' &) ; echo up; while :; do sleep 1; done"
    line = sandbox.command(layout.root, ["/usr/bin/sh", "-c", script])
    with subprocess.Popen(line, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        time.sleep(0.2)
        inside = below(process.pid)
        assert len(inside) >= 3
        process.kill()
    assert all(gone_within(pid, 2.0) for pid in inside)


def below(leader: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {leader}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {leader}


@dml
def test_a_program_s_exit_code_comes_through() -> None:
    root = Layout.of_user().root
    for script, code in (("exit 7", 7), ("kill -11 $$", 139)):
        done = subprocess.run(sandbox.command(root, ["/usr/bin/sh", "-c", script]), check=False)
        assert done.returncode == code


# ---- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> bool:
    """Whether the program becomes another user."""
    monkeypatch.setattr(sandbox, "becomes_worker", lambda: request.param)
    return bool(request.param)


@pytest.mark.parametrize("worker", [True, False], indirect=True)
def test_the_sandbox_is_given_what_it_mounts(tmp_path: Path, worker: bool) -> None:
    line = sandbox.command(
        tmp_path,
        ["/usr/bin/true", "--an-argument"],
        read={"/models": tmp_path},
        write={"/out": tmp_path},
        environment={"A": "b"},
        folder="/out",
    )
    text = " ".join(line)
    for words in (
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--unshare-net",
        "--unshare-pid",
        "--unshare-ipc",
    ):
        assert words in line
    for words in (
        *("--remount-ro /proc", "--ro-bind /proc/sys /proc/sys", "--remount-ro /dev"),
        *("--cap-drop ALL", "--seccomp 9", "--setenv A b", "--chdir /out"),
    ):
        assert words in text
    assert f"--ro-bind {tmp_path} /models" in text
    assert f"--bind {tmp_path} /out" in text
    assert line[-2:] == ["/usr/bin/true", "--an-argument"]
    assert ("--unshare-user" in line) is not worker
    assert ("--disable-userns" in line) is not worker
    assert ("--cap-add" in line) is worker
    # What is lent to be written is the only thing of this machine that can be.
    assert [line[at + 2] for at, word in enumerate(line) if word in ("--bind", "--dev-bind")] == ["/out"]
    # Nobody inside is root: the program becomes another user itself where root starts it.
    assert (f"--uid {sandbox.NOBODY} --gid {sandbox.NOBODY}" in text) is not worker
    # Mounts come before what changes them, and what is read after what is written.
    assert text.index("--proc /proc") < text.index("--remount-ro /proc")
    assert text.index("--proc /proc") < text.index("--ro-bind /proc/sys")
    assert text.index("/dev/shm") < text.index("--remount-ro /dev")
    assert text.index(" /out") < text.index(" /models")


def test_the_filter_can_be_read_by_the_children_alone(tmp_path: Path) -> None:
    line = sandbox.command(tmp_path, ["/usr/bin/true"])
    assert line[0] == "/bin/sh"
    path = Path(line[3])
    assert subprocess.run(["cat", path], capture_output=True, check=True).stdout[:2] == b"\x20\x00"
    assert stat.S_ISREG(path.stat().st_mode)
    assert path.stat().st_uid == os.geteuid()


def test_limits_are_none_that_this_process_does_not_have(tmp_path: Path) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (script,) = [word for word in sandbox.command(tmp_path, ["x"]) if "ulimit" in word]
    found = {letter: int(value) for letter, value in re.findall(r"ulimit -(\w) (\d+)", script)}
    assert found["c"] == 0
    assert 0 < found["n"] <= hard
    assert subprocess.run(
        ["sh", "-c", script.partition(" && exec")[0].partition(' && "$@"')[0]], check=False
    ).returncode in (0, 2)


# ---- what is lent and taken back -----------------------------------------------------------------------------------


def test_what_comes_back_is_plain(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (outside / "file").chmod(0o4755)
    lent = shared_folders.fresh(tmp_path / "lent")
    (lent / "folder").mkdir()
    (lent / "folder/program").write_text("x")
    (lent / "folder/program").chmod(0o6777)
    (lent / "folder").chmod(0o2777)
    (lent / "link").symlink_to(outside / "file")
    (lent / "way").symlink_to(outside)
    shared_folders.take_back(lent)
    assert stat.S_IMODE((lent / "folder").stat().st_mode) == 0o755
    assert stat.S_IMODE((lent / "folder/program").stat().st_mode) == 0o755
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0o4755
    assert {path.lstat().st_uid for path in lent.rglob("*")} == {os.geteuid()}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _deep(path: Path) -> None:
    for _ in range(80):
        path.mkdir()
        path = path / "d"


@pytest.mark.parametrize("plant", [_fifo, _deep])
def test_what_is_no_file_does_not_come_back(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    lent = shared_folders.fresh(tmp_path / "lent")
    plant(lent / "planted")
    with pytest.raises(OSError, match=r"neither a file|nested"):
        shared_folders.take_back(lent)


@root_alone
def test_root_gives_and_takes(tmp_path: Path) -> None:
    lent = shared_folders.fresh(tmp_path / "lent")
    assert lent.stat().st_uid == (sandbox.WORKER if sandbox.becomes_worker() else 0)
    (lent / "file").write_text("x")
    os.chown(lent / "file", sandbox.WORKER, sandbox.WORKER)
    shared_folders.take_back(lent)
    assert lent.stat().st_uid == (lent / "file").stat().st_uid == 0


def test_pieces_are_open_to_all(tmp_path: Path) -> None:
    piece = tmp_path / "piece"
    (piece / "bin").mkdir(parents=True)
    for name, mode in (("program", 0o700), ("data", 0o600)):
        (piece / "bin" / name).write_text("x")
        (piece / "bin" / name).chmod(mode)
    (piece / "bin").chmod(0o700)
    (piece / "gone").symlink_to("nowhere")
    shared_folders.open_to_all(piece)
    modes = [stat.S_IMODE((piece / name).stat().st_mode) for name in ("bin", "bin/program", "bin/data")]
    assert modes == [0o755, 0o744, 0o644]


@pytest.mark.parametrize("worker", [True, False], indirect=True)
def test_staged_models_can_be_read_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: bool
) -> None:
    for name, mode in (("m.onnx", 0o600), ("open.bin", 0o644), ("closed.bin", 0o600)):
        (tmp_path / name).write_bytes(b"x" * 10)
        (tmp_path / name).chmod(mode)
    monkeypatch.setattr(staging, "COPY_LIMIT", 5)
    before = os.umask(0o077)
    try:
        staging.stage(tmp_path / "m.onnx", tmp_path / "staged", tmp_path, ["open.bin", "closed.bin"])
    finally:
        os.umask(before)
    staged = tmp_path / "staged"
    linked = {path.name: path.stat().st_nlink > 1 for path in staged.iterdir()}
    assert linked == {"model.onnx": not worker, "open.bin": True, "closed.bin": not worker}
    if worker:
        assert all(path.stat().st_mode & stat.S_IROTH for path in staged.iterdir())
        assert staged.stat().st_mode & stat.S_IXOTH
    # The user's own files are as they were.
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m.onnx", "open.bin")] == [0o600, 0o644]


# ---- compiled shaders ----------------------------------------------------------------------------------------------


def test_models_share_no_shaders(tmp_path: Path) -> None:
    for name, text in (("a", b"one"), ("b", b"two"), ("copy", b"one")):
        (tmp_path / name).write_bytes(text)
    a, b, copy = (shaders.key_of([tmp_path / name]) for name in ("a", "b", "copy"))
    assert a == copy != b
    # Where one file ends and the next begins is part of it.
    assert shaders.key_of([tmp_path / "a", tmp_path / "b"]) != shaders.key_of([tmp_path / "b", tmp_path / "a"])
    kept = tmp_path / "shaders"
    assert shaders.folder_of(kept, a) != shaders.folder_of(kept, b)
    assert shaders.folder_of(kept, a) == kept / a
    assert shaders.folder_of(kept, "") is None
    with (tmp_path / "a").open("r+b") as file:
        file.truncate(1 << 30)
    assert shaders.key_of([tmp_path / "a"]) == ""


def test_shaders_do_not_pile_up(tmp_path: Path) -> None:
    kept = tmp_path / "shaders"
    kept.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    keys = [f"{number:064x}" for number in range(shaders.MOST_FOLDERS + 5)]
    for number, key in enumerate(keys):
        (kept / key).mkdir()
        (kept / key / "link").symlink_to(outside)
        os.utime(kept / key, (number, number))
    with (kept / keys[-1] / "huge").open("wb") as file:
        file.truncate(shaders.LARGEST + 1)
    (kept / "mesa_shader_cache_db").mkdir()  # of an older dmlprep
    oldest = keys[0]
    assert shaders.folder_of(kept, oldest) == kept / oldest
    left = {path.name for path in kept.iterdir()}
    assert oldest in left
    assert keys[-1] not in left
    assert keys[-2] in left
    assert len(left & set(keys)) <= shaders.MOST_FOLDERS + 1
    assert (outside / "file").read_text() == "mine"


@needs_links
def test_a_link_in_the_place_of_shaders_is_not_used(tmp_path: Path) -> None:
    """Nobody in the sandbox can put it there; a user who did gets none kept."""
    kept, outside = tmp_path / "shaders", tmp_path / "outside"
    kept.mkdir()
    outside.mkdir()
    (kept / ("a" * 64)).symlink_to(outside)
    assert shaders.folder_of(kept, "a" * 64) is None


@dml
def test_a_worker_sees_the_shaders_of_its_first_model(tmp_path: Path, add_relu: Path) -> None:
    from dmlprep.runtime.linux.host import LinuxHost

    layout = Layout.of_user()
    key = shaders.key_of([add_relu])
    x = np.ones((2, 3), np.float32)
    with LinuxHost(layout, layout.release_for()) as host, host.open(add_relu) as session:
        assert session.run({"x": x, "y": x}, ["r"])["r"].tolist() == (2 * x).tolist()
        mounts = {
            row.split()[4]: row.split()[3] for row in mounts_of(host.worker().pid).splitlines() if "/shaders" in row
        }
        assert mounts["/shaders"].endswith(f"/shaders/{key}")
        private = host.worker().exchange
        assert not any(f"{private}/worker.log" in row for row in mounts_of(host.worker().pid).splitlines())


def mounts_of(leader: int) -> str:
    inside = max(below(leader))
    return Path(f"/proc/{inside}/mountinfo").read_text()


# ---- a worker that lies --------------------------------------------------------------------------------------------

_LIAR = """
import os, sys
exchange = {exchange!r}
results = os.path.join(exchange, "results")
os.makedirs(results, exist_ok=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "load":
        print({loaded!r})
    elif words[0] in ("run", "timings", "placement"):
        {plant}
        print({said!r})
    elif words[0] == "quit":
        break
    elif words[0] not in ("hello", "close"):
        continue
    print("ok", flush=True)
"""

_LOADED = "input x float32 2\noutput y float32 2"


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Callable[..., SessionHost]]:
    hosts = []

    def make(said: str, plant: str = "pass", loaded: str = _LOADED) -> SessionHost:
        def command(exchange: Path) -> list[str]:
            code = _LIAR.format(exchange=str(exchange), said=said, plant=plant, loaded=loaded)
            return [sys.executable, "-S", "-u", "-c", textwrap.dedent(code)]

        hosts.append(SessionHost(lambda: Child(command, "the liar"), lambda facts: DeviceInfo("a liar", [])))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


X = {"x": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    "said",
    [
        "value",
        "value y",
        "value y float32",
        "value y float32 gone 2",
        "value y float32 .. 2",
        "value y float32 % 2",
        "value y float32 a%00b 2",
        "value y float32 ../worker.log 2",
        "value y object out1 2",
        "value y float32 out1 -1",
        "value y float32 out1 x",
        "value y float32 out1 9" + "9" * 5000,
        "value y float32 out1 4611686018427387904 4",
        "value z float32 out1 2",
        "sequence y 3",
        "sequence y x",
        "sequence y -1",
        "sequence y 1000000000000000000",
        "sequence",
        "none",
        "none z",
        "%00",
        "%",
    ],
)
def test_an_answer_that_makes_no_sense_is_a_failure(
    liar: Callable[..., SessionHost], tmp_path: Path, said: str
) -> None:
    with pytest.raises(SessionFailure) as caught:
        liar(said).open(tmp_path / "m.onnx").run(X)
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    "loaded", ["input", "input x", "input x float32 y", "output", "input x float32 9" + "9" * 5000]
)
def test_a_description_that_makes_no_sense(liar: Callable[..., SessionHost], tmp_path: Path, loaded: str) -> None:
    with pytest.raises(SessionFailure) as caught:
        liar("none y", loaded=loaded).open(tmp_path / "m.onnx")
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    "plant",
    [
        "os.path.lexists(results + '/out1') or os.symlink({secret!r}, results + '/out1')",
        "os.path.lexists(results + '/out1') or os.mkfifo(results + '/out1')",
        "os.path.lexists(results + '/out1') or os.mkdir(results + '/out1')",
        "os.path.lexists(results + '/out1') or os.symlink('/dev/zero', results + '/out1')",
        "open(results + '/out1', 'wb').truncate(1 << 43)",
    ],
)
@pytest.mark.parametrize("what", ["run", "timings"])
def test_what_is_planted_is_not_followed(
    liar: Callable[..., SessionHost], tmp_path: Path, plant: str, what: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345678")
    said = "value y float32 out1 2" if what == "run" else "file out1"
    host = liar(said, plant.format(secret=str(secret)))
    session = host.open(tmp_path / "m.onnx", SessionOptions(profile=True))
    exchange = host.worker().exchange
    with pytest.raises(SessionFailure) as caught:
        session.run(X) if what == "run" else session.timings()
    assert caught.value.kind == "protocol"
    assert "12345678" not in str(caught.value)
    host.close()
    assert not exchange.exists()
    assert secret.read_bytes() == b"12345678"


@pytest.mark.parametrize(
    "written",
    [
        "b'[' * 100000",
        "b'[1]'",
        'b\'[{"cat": "Node", "name": "a_kernel_time", "args": {}, "dur": []}]\'',
        'b\'[{"cat": "Node", "name": 1, "args": {}}]\'',
        "b''",
    ],
)
def test_a_profile_that_makes_no_sense(liar: Callable[..., SessionHost], tmp_path: Path, written: str) -> None:
    plant = f"open(results + '/p', 'wb').write({written})"
    with pytest.raises(SessionFailure) as caught:
        liar("file p", plant).open(tmp_path / "m.onnx", SessionOptions(profile=True)).timings()
    assert caught.value.kind == "protocol"


def test_an_output_is_a_copy(liar: Callable[..., SessionHost], tmp_path: Path) -> None:
    """80 MiB: if they were read in place, cutting the file short would end this process."""
    count = 20 << 20
    plant = f"file = open(results + '/big', 'wb+'); file.truncate({4 * count}); file.flush()"
    host = liar(f"value y float32 big {count}", plant)
    found = host.open(tmp_path / "m.onnx").run(X)["y"]
    assert found.shape == (count,)
    assert not isinstance(found.base if found.base is not None else found, np.memmap)
    assert found[-1] == 0
