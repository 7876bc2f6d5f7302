"""Files and folders as they are on Windows and on Linux: names, open files, sets that are replaced together, text.

``outputs`` checks a path before the work, ``replacing`` renames and removes, ``staging`` makes the folder in which a
result is made, ``exchange`` replaces a set of files as one, ``reasons`` says why a file cannot be read or written,
``text`` reads what editors and shells wrote.
"""

from dmlprep.files.exchange import FileSet
from dmlprep.files.outputs import check_output, check_path, windows_problem
from dmlprep.files.reasons import explain, unreadable, unwritable
from dmlprep.files.replacing import remove, remove_tree, replace
from dmlprep.files.text import HOW_TO_SAVE, NotUtf8, decode_text, read_text

__all__ = [
    "HOW_TO_SAVE",
    "FileSet",
    "NotUtf8",
    "check_output",
    "check_path",
    "decode_text",
    "explain",
    "read_text",
    "remove",
    "remove_tree",
    "replace",
    "unreadable",
    "unwritable",
    "windows_problem",
]
