"""Folders of language models for onnxruntime-genai."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.genai.checking import FolderCheck

__all__ = ["examine_folder", "genai_check"]


def genai_check(folder: str | Path, *, target: str = "latest", vram: str | int | None = None) -> RunRecord:
    """Say what is wrong with a folder of onnxruntime-genai, and what of its models DirectML runs.

    Edits and runs nothing, and reads no weights.

    Args:
        folder: a folder with a genai_config.json.
        target: a name of ``dmlprep target list``.
        vram: memory that the device has (``6GB``, or bytes): weights and cache that need more are an error.

    Returns:
        the record: findings about the folder and its models (those about a model have ``file`` among their facts),
        under ``facts.models`` where the nodes of each go, and under ``facts.needs`` bytes of weights and cache,
        the longest ``max_length`` and the largest batch. ``exit_code`` is 1 where a finding is an error.

    Raises:
        InputError: the folder or its genai_config.json cannot be read.
        UsageError: unknown target, or ``vram`` is no amount of memory.
    """
    return examine_folder(folder, target=target, vram=vram).combined()


def examine_folder(folder: str | Path, *, target: str = "latest", vram: str | int | None = None) -> FolderCheck:
    """``genai_check`` with the record and placement of each model.

    Args:
        folder, target, vram: as in ``genai_check``.

    Raises:
        InputError, UsageError: as in ``genai_check``.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.genai.checking import check_folder
    from dmlprep.memory import vram_bytes
    from dmlprep.targets import find_target

    has = None if vram is None else vram_bytes(vram)
    return check_folder(Path(folder), find_target(target), vram=has)
