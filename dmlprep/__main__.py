"""``python -m dmlprep``."""

from dmlprep.cli.main import main

main()
