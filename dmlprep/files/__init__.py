"""Files and folders as they are on Windows and on Linux: names, open files, sets that are replaced together, text.

``outputs`` checks a path before the work, ``replacing`` renames and removes, ``writing`` writes whole files,
``clearing`` removes what strangers left, ``staging`` makes the folder in which a result is made, ``exchange`` replaces
a set of files as one, ``run_folder`` holds what a run has begun, ``reasons`` says why a file cannot be read or written,
``given`` reads a file that somebody gave, within bounds, ``text`` what editors and shells wrote, ``links`` refuses
links that lead elsewhere.
"""

from dmlprep.files.clearing import remove_tree
from dmlprep.files.exchange import FileSet
from dmlprep.files.given import (
    NotToml,
    Unfit,
    cached_json,
    check_document,
    check_plain,
    parse_json,
    parse_toml,
    read_given,
)
from dmlprep.files.matching import is_pattern, matching
from dmlprep.files.near import meant, nearest
from dmlprep.files.outputs import check_output, check_path, windows_problem
from dmlprep.files.reasons import explain, unreadable, unwritable
from dmlprep.files.replacing import remove, replace
from dmlprep.files.staging import clear_staging, staging_folder
from dmlprep.files.text import HOW_TO_SAVE, NotUtf8, decode_text, read_text

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
