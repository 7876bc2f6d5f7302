"""Run this kit: python run.py. Requirements and a description: README.txt. Options: python run.py --help."""

import sys
from pathlib import Path

if __name__ == "__main__":
    if sys.version_info < (3, 9):  # noqa: UP036 - the kit may meet any Python
        sys.exit("run.py: needs Python 3.9 or newer")
    # The folder must contain the files of the kit alone.
    sys.dont_write_bytecode = True
    from dmlprep_kit.runner import main

    sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
