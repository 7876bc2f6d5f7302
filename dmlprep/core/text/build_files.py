"""Escape names for files that builds read: CMake, MSBuild and YAML. A name stays one word, and no part is evaluated.

Sources: cmake-language(7), quoted arguments; Microsoft Learn, "MSBuild special characters"; YAML 1.2.2, section 7.3.1.
"""

from __future__ import annotations

import re

from dmlprep.core.text.documents import toml_string
from dmlprep.core.text.markup import xml_value
from dmlprep.portable.printable import inert, printable

_MSBUILD = re.compile(r"[%$@';?*()]")
_CMAKE_PLAIN = re.compile(r"[A-Za-z0-9_./+=-]+")
_YAML_PLAIN = re.compile(r"[A-Za-z_.][A-Za-z0-9_./-]*")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def cmake_argument(content: str) -> str:
    """Return ``content`` as one CMake argument, in quotes if necessary.

    Raises:
        ValueError: CMake cannot represent it in a list. It ends with a backslash, or has a semicolon, a bracket, a
            character that does not print or a command to CI systems.
    """
    if _CMAKE_PLAIN.fullmatch(content):
        return content
    shown = inert(printable(content))
    if shown != content or re.search(r"[;\[\]]|\\$", content):
        raise ValueError(f"no argument of CMake: {shown}")
    return '"' + re.sub(r'[\\"$@]', r"\\\g<0>", content) + '"'


def msbuild_text(content: str) -> str:
    """Return ``content``, escaped for a quoted MSBuild attribute or an element.

    MSBuild takes none of it for a list separator, a property, an item or a wildcard.
    """
    return xml_value(_MSBUILD.sub(lambda match: f"%{ord(match.group()):02X}", content))


def yaml_string(content: str) -> str:
    """Return ``content`` as a YAML scalar, in quotes if necessary."""
    if _YAML_PLAIN.fullmatch(content) and content.casefold() not in _YAML_WORDS:
        return content
    return toml_string(content)  # TOML's escapes are valid in YAML
