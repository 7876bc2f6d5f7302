"""``python -m dmlprep.buildsys cmake`` prints the folder for ``find_package(dmlprep PATHS ...)``."""

import sys

from dmlprep.buildsys import folder

try:
    print(folder(sys.argv[1]))  # noqa: T201 - this is the command's result
except (IndexError, KeyError):
    sys.exit("usage: python -m dmlprep.buildsys cmake|msbuild")
except UnicodeEncodeError as error:  # a wrong path would be worse than none
    sys.exit(f"dmlprep lies in a folder whose name {error.encoding} cannot hold: set PYTHONUTF8=1 and run this again")
