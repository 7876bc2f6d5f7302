"""Files and folders as they are on Windows and on Linux: names, open files, sets that are replaced together, text.

``outputs`` checks a path before the work, ``replacing`` renames and removes, ``writing`` writes whole files,
``clearing`` removes what strangers left, ``staging`` makes the folder in which a result is made, ``exchange`` replaces
a set of files as one, ``run_folder`` holds what a run has begun, ``reasons`` says why a file cannot be read or written,
``given`` reads a file that somebody gave, within bounds, ``text`` what editors and shells wrote, ``links`` refuses
links that lead elsewhere.
"""

from dmlprep.core.files.bounded_read import (
    NotToml,
    Unfit,
    cached_json,
    check_document,
    check_plain,
    parse_json,
    parse_toml,
    read_given,
)
from dmlprep.core.files.clearing import remove_tree
from dmlprep.core.files.exchange import FileSet
from dmlprep.core.files.matching import is_pattern, matching
from dmlprep.core.files.outputs import check_output, check_path, windows_problem
from dmlprep.core.files.reasons import explain, unreadable, unwritable
from dmlprep.core.files.staging import clear_staging, staging_folder
from dmlprep.core.files.suggestions import meant, nearest
from dmlprep.core.files.text import HOW_TO_SAVE, NotUtf8, decode_text, read_text
from dmlprep.portable.replacing import remove, replace

__all__ = [
    "HOW_TO_SAVE",
    "FileSet",
    "NotToml",
    "NotUtf8",
    "Unfit",
    "cached_json",
    "check_document",
    "check_output",
    "check_path",
    "check_plain",
    "clear_staging",
    "decode_text",
    "explain",
    "is_pattern",
    "matching",
    "meant",
    "nearest",
    "parse_json",
    "parse_toml",
    "read_given",
    "read_text",
    "remove",
    "remove_tree",
    "replace",
    "staging_folder",
    "unreadable",
    "unwritable",
    "windows_problem",
]
