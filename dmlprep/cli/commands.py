"""The commands, and the text of ``dmlprep --help``, which needs no import of click."""

from __future__ import annotations

from textwrap import wrap

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("dmlprep.cli.init", "Write a project file: recipe, sizes and output folder of each model."),
        "prepare": ("dmlprep.cli.prepare", "Convert a model for DirectML, and prove that it computes the same."),
        "check": ("dmlprep.cli.check", "Show which nodes DirectML runs, and what prepare would change."),
        "explain": ("dmlprep.cli.explain", "Explain a finding code, a step, a recipe or a DirectML release."),
    },
    "Prove": {
        "compare": ("dmlprep.cli.compare", "Compare the outputs of two models."),
        "feeds": ("dmlprep.cli.feeds", "Make inputs for --feeds from pictures, audio or text."),
        "bisect": ("dmlprep.cli.bisect", "Find the first node at which two models differ."),
    },
    "Speed": {
        "bench": ("dmlprep.cli.bench", "Time models side by side on a device."),
        "tune": ("dmlprep.cli.tune", "Find the best recipe for a model."),
    },
    "Many models": {
        "fleet": ("dmlprep.cli.fleet", "Prepare many models, at many sizes, for many targets."),
    },
    "Ship": {
        "kit": ("dmlprep.cli.kit", "Pack a model to test on a Windows machine, and verify the result."),
        "package": ("dmlprep.cli.package", "Package a prepared model for an app: contract, loader, sample."),
        "genai": ("dmlprep.cli.genai", "Prepare, check and compare language models for onnxruntime-genai."),
    },
    "Reference": {
        "report": ("dmlprep.cli.report", "Show the record of a run."),
        "doctor": ("dmlprep.cli.doctor", "Check this environment for problems."),
        "runtime": ("dmlprep.cli.runtime", "Install, show or remove the DirectML runtime for Linux."),
    },
}
"""Section of the help -> command -> module with an object ``command``, and its line: the list imports none of them."""

UNLISTED = {"completion": ("dmlprep.cli.completion", "")}
"""Commands that the help does not list; docs/start.md does."""

COMMANDS = {name: row for rows in SECTIONS.values() for name, row in rows.items()} | UNLISTED

HELP = ("-h", "--help")

OPTIONS = {
    "-V, --version": "Show the version and exit.",
    "--debug": "Show the traceback of an internal error.",
    "--limit NAME=N": "Raise a safety limit, for a model that you trust (docs/foreign-models.md).",
    ", ".join(HELP): "Show this message and exit.",
}
"""Options before the command -> their lines in the help."""

ABOUT = """\
Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

Exit codes: 0 good, 1 the model fails, 2 bad command, recipe or input, 3 a required check could not run, 70 a bug;
130 after Ctrl-C, 143 after SIGTERM.
"""

WIDEST = 110
"""Largest width of the help in characters."""


def help_text(columns: int) -> str:
    """Return the text of ``dmlprep --help`` for a terminal with ``columns`` characters in a line."""
    width = max(min(columns, WIDEST) - 2, 50)
    lines = ["Usage: dmlprep [OPTIONS] COMMAND [ARGS]..."]
    for paragraph in ABOUT.split("\n\n"):
        lines += ["", *wrap(paragraph, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)]
    sections = {title: {name: text for name, (_, text) in rows.items()} for title, rows in SECTIONS.items()}
    for title, texts in {"Options": OPTIONS, **sections}.items():
        lines += ["", f"{title}:"]
        indent = " " * (max(map(len, texts)) + 4)
        for name, text in texts.items():
            rows = wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
            lines += [f"  {name}".ljust(len(indent)) + rows[0].removeprefix(indent), *rows[1:]]
    return "\n".join(lines) + "\n"
