"""The command line and the files for build systems: it parses, calls ``dmlprep.api`` and prints.

Each command is a module, imported only when it is called.
"""
