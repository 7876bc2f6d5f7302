"""``python -m dmlprep.buildsys cmake`` prints the folder for ``find_package(dmlprep PATHS ...)``.

``msbuild`` prints that of ``dmlprep.targets``; ``nuget FOLDER`` writes the NuGet package of it into the folder.
"""

import sys
from pathlib import Path

from dmlprep.buildsys import folder
from dmlprep.errors import DmlprepError


def _told() -> Path:
    match sys.argv[1:]:
        case ["nuget", into]:
            from dmlprep.buildsys.nuget import write_package

            return write_package(Path(into))
        case [("cmake" | "msbuild") as system]:
            return folder(system)
        case _:
            sys.exit("usage: python -m dmlprep.buildsys cmake|msbuild|nuget FOLDER")


try:
    print(_told())  # noqa: T201 - this is the command's result
except DmlprepError as error:
    sys.exit(f"error: {error}")
except UnicodeEncodeError as error:  # a wrong path would be worse than none
    sys.exit(f"dmlprep lies in a folder whose name {error.encoding} cannot hold: set PYTHONUTF8=1 and run this again")
