"""Write docs/modules.md: every module of dmlprep, room by room, with the first sentence of its docstring.

python scripts/module_list.py           write the page
python scripts/module_list.py --check   exit 1 where the page is not what would be written
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGE = TOP / "docs" / "modules.md"

_HEAD = """# Modules

Written by `scripts/module_list.py` from the docstrings of the modules; do not edit. The rooms, and which may import
which, are in [architecture](architecture.md).
"""


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring, as one line; empty where it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def page() -> str:
    """The whole page."""
    package = TOP / "dmlprep"
    folders = sorted({path.parent for path in package.rglob("*.py")})
    lines = [_HEAD]
    for folder in folders:
        name = folder.relative_to(TOP).as_posix()
        lines.append(f"## `{name}/`\n")
        if (folder / "__init__.py").is_file() and (text := summary(folder / "__init__.py")):
            lines.append(f"{text}\n")
        rows = [(path.name, summary(path)) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if rows:
            lines += [
                "| module | what it is for |",
                "|---|---|",
                *(f"| `{name}` | {text} |" for name, text in rows),
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
