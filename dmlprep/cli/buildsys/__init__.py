"""Files and hooks for build systems. ``python -m dmlprep.cli.buildsys cmake`` prints the folder for CMake."""

from pathlib import Path

__all__ = ["folder"]


def folder(system: str) -> Path:
    """Return the folder of the files for ``cmake`` or ``msbuild``; ``KeyError`` for other systems."""
    if system not in ("cmake", "msbuild"):
        raise KeyError(system)
    return Path(__file__).resolve().parent / system
