"""``python -m dmlprep.cli.buildsys cmake`` prints the folder for ``find_package(dmlprep PATHS ...)``.

``msbuild`` prints the folder of ``dmlprep.targets``; ``nuget FOLDER`` writes a NuGet package of it into FOLDER;
``ci`` is a step of ``action.yml`` and ``azure/dmlprep.yml``.
"""

import sys
from pathlib import Path

from dmlprep.cli.buildsys import folder
from dmlprep.core.errors import DmlprepError


def _output() -> Path | str:
    match sys.argv[1:]:
        case ["nuget", into]:
            from dmlprep.cli.buildsys.nuget import write_package

            return write_package(Path(into))
        case [("cmake" | "msbuild") as system]:
            return folder(system)
        case ["ci", *arguments]:
            from dmlprep.cli.buildsys.ci import main

            code, lines = main(arguments)
            return sys.exit(code) if code else lines.rstrip("\n")
        case _:
            sys.exit("usage: python -m dmlprep.cli.buildsys cmake|msbuild|nuget FOLDER")


try:
    print(_output())
except DmlprepError as error:
    from dmlprep.cli.output import print_error

    print_error(error)
    sys.exit(error.exit_code)
except UnicodeEncodeError as error:  # a wrong path would be worse than none
    sys.exit(f"the name of dmlprep's folder does not fit {error.encoding}: set PYTHONUTF8=1 and run this again")
