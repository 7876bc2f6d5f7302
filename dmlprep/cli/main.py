"""Entry point of the command line: find the command, and turn errors into one clear line and the right exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import sys
import tempfile
import traceback
from importlib import import_module
from shutil import get_terminal_size
from typing import Any, NoReturn, TextIO

import click

from dmlprep.cli.commands import ABOUT, COMMANDS, HELP, OPTIONS, WIDEST, help_text
from dmlprep.cli.output import echo_page, print_error, print_usage, say
from dmlprep.cli.stopping import STOPPED, Stopping, exit_code
from dmlprep.cli.streams import guarded, hold_descriptors
from dmlprep.cli.values import read_limits
from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, DmlprepError, InternalError, UsageError
from dmlprep.core.files.run_folder import end_run, sweep
from dmlprep.portable.printable import printable

MOVED = {
    ("plan",): "dmlprep check MODEL --plan, dmlprep explain RECIPE",
    ("buckets",): "dmlprep prepare MODEL --bucket-log LOG",
    ("recipe",): "dmlprep explain recipes, dmlprep explain @vision-fp16",
    ("target",): "dmlprep explain targets, dmlprep explain ort-1.30",
    ("kit", "choose"): "dmlprep tune --from-kit RESULT --kit KIT",
    ("explain", "--node"): "dmlprep check MODEL --node NAME",
}
"""Words of a command line that people might try -> the command that does this."""

_NEW_OBJECTS = 100_000
"""New objects after which Python's collector examines the youngest ones."""

_SIGPIPE_EXIT = 141
"""Exit code that a shell shows for a process that SIGPIPE ended: 128 + 13."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Error numbers of a disk that is full, read-only or broken."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for words, instead in MOVED.items():
            if tuple(args[: len(words)]) == words:
                raise click.UsageError(f"No such command '{' '.join(words)}'. Use: {instead}", ctx)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Commands: {', '.join(COMMANDS)}."
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return help_text(get_terminal_size().columns).rstrip("\n")


@click.group(
    cls=_LazyGroup,
    help=ABOUT,
    context_settings={"help_option_names": list(HELP), "max_content_width": WIDEST},
)
@click.version_option(__version__, "-V", "--version", prog_name="dmlprep")
@click.option("--debug", is_flag=True, help=OPTIONS["--debug"])
@click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=read_limits,
    metavar="NAME=N",
    help=OPTIONS["--limit NAME=N"],
)
@click.pass_context
def cli(ctx: click.Context, debug: bool, limits: dict[str, Any]) -> None:
    """Set the limits for the command."""
    if limits:
        from dmlprep import api

        ctx.with_resource(api.limits(**limits))


def _reader_left(stdout: TextIO) -> NoReturn:
    """Exit with code 141 and without a message, because the reader of the output (head, less) has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
    sys.exit(_SIGPIPE_EXIT)


def choose_place() -> None:
    """Choose the folder for temporary files that Python would choose, without writing a named file to test it.

    Python's own file of eight random letters would stay if the program is killed just then, and no later start could
    recognise it. If none of these places works, Python tries its others.
    """
    if tempfile.tempdir is not None:
        return
    folders = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for place in filter(None, (*folders, "/tmp" if os.name == "posix" else None)):
        folder = os.path.abspath(place)
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            tempfile.tempdir = folder
            return


def main() -> NoReturn:
    """Remove the files of killed runs, run the command line, and exit with its code."""
    if "_DMLPREP_COMPLETE" in os.environ:
        from dmlprep.cli.completion import answer

        answer(cli)
    hold_descriptors()
    # A graph is many live objects: Python's collector visited them all for every 700 new ones, and freed none.
    gc.set_threshold(_NEW_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as for workers (portable/process.py)
    stopping = Stopping()
    code: object = 130
    try:
        stopping.install()
        choose_place()
        sweep()
        command_line()
    except SystemExit as system_exit:
        code = system_exit.code
    except KeyboardInterrupt:
        say(STOPPED, head="")
    finally:
        stopping.over()
        end_run()
    if not (stopping.asked and code):  # a command that ended anyway reports its result
        # Python's last collections would visit all objects of the run, a tenth of a short run's time. The end of the
        # process frees the same memory.
        gc.freeze()
        sys.exit(code)  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Not by sys.exit: where the KeyboardInterrupt met an exec of text (a dataclass that is made while modules are
    # imported), Python remembers it and dies of SIGINT at the end, whatever the signal was.
    os._exit(exit_code(stopping.asked))


def command_line() -> NoReturn:
    """Run the command line and exit with its code."""
    # onnx-ir logs its repairs of broken models; dmlprep's errors are one line.
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)
    with guarded():
        _run()


def _run() -> NoReturn:
    stdout = sys.stdout
    try:
        code = cli(standalone_mode=False)
    except SystemExit as system_exit:
        # click (which then wraps stdout) and rich turn a broken pipe into exit code 1, which means that the model
        # fails.
        if sys.stdout is not stdout or isinstance(system_exit.__context__, BrokenPipeError):
            _reader_left(stdout)
        raise
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        print_usage(error)
        sys.exit(error.exit_code)
    except DmlprepError as error:
        if "--debug" in sys.argv and isinstance(error, InternalError):
            echo_page(traceback.format_exc(), err=True)
        print_error(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        say(STOPPED, head="")
        sys.exit(130)
    except BrokenPipeError:
        _reader_left(stdout)
    except MemoryError as error:
        say(
            f"out of memory{f': {error}' if str(error) else ''}",
            "use smaller sizes, close other programs, or use a machine with more memory",
        )
        sys.exit(CheckNotRun.exit_code)
    except Exception as error:
        if "--debug" in sys.argv:
            echo_page(traceback.format_exc(), err=True)
            sys.exit(InternalError.exit_code)
        if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
            from dmlprep.core.files.reasons import explain

            where = f"{printable(str(error.filename))}: " if error.filename is not None else ""
            what, fix = explain(error) if where else ("", "")
            plain = "check the path, its permissions and the space on the disk"
            say(f"{where}{what or error.strerror or error}", fix or plain)
            sys.exit(UsageError.exit_code)
        # a bug of dmlprep, in one line; the traceback on request
        say(
            f"{type(error).__name__}: {error}",
            "please report this; dmlprep --debug COMMAND shows where it happened",
            head="internal error: ",
        )
        sys.exit(InternalError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
