"""Files and folders on Windows and on Linux: names, open files, atomic replacement of several files, text."""

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
from dmlprep.core.files.outputs import check_output, check_path, user_path
from dmlprep.core.files.reasons import explain, meant, unreadable, unwritable
from dmlprep.core.files.staging import staging_folder
from dmlprep.core.files.text import decode_text, read_text
from dmlprep.portable.replacing import remove, replace

__all__ = [
    "FileSet",
    "NotToml",
    "Unfit",
    "cached_json",
    "check_document",
    "check_output",
    "check_path",
    "check_plain",
    "decode_text",
    "explain",
    "is_pattern",
    "matching",
    "meant",
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
    "user_path",
]
