"""Mutations of feeds (.npz) and kits (.zip): of a member, of what the archive says of it, and of its bytes."""

from __future__ import annotations

import io
import json
import random
import warnings
import zipfile

from tests.fuzz.texts import mutated_json
from tests.fuzz.values import integer, spoiled, text

__all__ = ["mutated_archive"]

_TYPES = ("'<f4'", "'<i8'", "'|O'", "'<U9999999'", "'|V4611686018427387904'", "[('a', '<f4')]", "'x'")


def mutated_archive(rng: random.Random, data: bytes) -> bytes:
    """An archive with members that were edited, dropped, doubled, renamed or made large."""
    if rng.random() < 0.15:
        return spoiled(rng, data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # a parent that was spoiled itself: zipfile raises much
        return spoiled(rng, data)
    for _ in range(rng.choice((1, 1, 2))):
        if not members:
            break
        at = rng.randrange(len(members))
        name, held = members[at]
        kind = rng.randrange(7)
        if kind == 0:
            del members[at]
        elif kind == 1:
            members.append((name, spoiled(rng, held)))
        elif kind == 2:
            members[at] = (text(rng).replace("\0", "0")[:200] or "x", held)
        elif kind == 3:
            members[at] = (name, held + bytes(rng.choice((1, 1 << 10, 50 << 20))))
        elif name.endswith((".npy", ".json")) and held:
            members[at] = (name, _header(rng, held) if name.endswith(".npy") else _document(rng, held))
        else:
            members[at] = (name, spoiled(rng, held))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        for name, held in members:
            info = zipfile.ZipInfo(name)
            if rng.random() < 0.03:
                info.external_attr = 0o120777 << 16  # a symbolic link
            archive.writestr(info, held, compress_type=zipfile.ZIP_DEFLATED)
    return spoiled(rng, made.getvalue()) if rng.random() < 0.1 else made.getvalue()


def _document(rng: random.Random, held: bytes) -> bytes:
    try:
        return mutated_json(rng, held)
    except (ValueError, json.JSONDecodeError):
        return spoiled(rng, held)


def _header(rng: random.Random, held: bytes) -> bytes:
    """A .npy with another type, shape or header (NEP 1)."""
    header = {
        "descr": rng.choice(_TYPES),
        "fortran_order": rng.choice(("True", "False", "1", "None")),
        "shape": rng.choice(("()", "(1,)", f"({integer(rng)},)", f"({integer(rng)}, 2)", "(" * 999, "None")),
    }
    line = "{" + ", ".join(f"'{key}': {value}" for key, value in header.items()) + "}\n"
    body = held[128:]
    size = len(line) if rng.random() < 0.8 else rng.choice((0, 65535))
    return (
        held[:6] + rng.choice((b"\1\0", b"\1\0", b"\2\0", b"\7\0")) + size.to_bytes(2, "little") + line.encode() + body
    )
