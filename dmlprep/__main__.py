"""``python -m dmlprep``."""

from dmlprep.cli.start import main

main()
