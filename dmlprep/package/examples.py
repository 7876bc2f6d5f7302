"""Write source code about one model: an example that fills its inputs, and the numbers that its sample expects.

Names from the model become string literals, in which only plain characters of ASCII stay. So a name cannot end a
literal, a line or a code block. It cannot be a command to a CI system, either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from dmlprep.core.text.markdown import text
from dmlprep.package.contract import Contract, Tensor
from dmlprep.package.meanings import SAY_THEIR_RANGE, TEXTS

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 _.,/()+-]")
SHOWN_OUTPUTS = 8
"""Most outputs that the README prints."""

_PILLOW = {"rgb": "RGB", "bgr": "RGB", "rgba": "RGBA", "bgra": "RGBA", "gray": "L"}
_NHWC = {"bgr": "[None, :, :, ::-1]", "bgra": "[None, :, :, [2, 1, 0, 3]]", "gray": "[None, :, :, None]"}
"""Index that makes a batch of one of a picture of Pillow, by the app's channels; otherwise ``[None]``."""

_PIXELS = {"rgb": "rgb24", "bgr": "bgr24", "rgba": "rgba", "bgra": "bgra", "gray": "gray"}
"""Names of ffmpeg's pixel formats."""

_ARRAYS = {
    "float16": "Uint16Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "bool": "Uint8Array",
    **{f"int{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"uint{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
}
_CPP_TYPES = {"float16": "dmlprep::Half", "float32": "float", "float64": "double", "bool": "bool"}
_CPP_TYPES |= {f"{sign}int{bits}": f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_CSHARP_TYPES = {
    "float16": "Half",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "int8": "sbyte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "byte",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
}

_TYPES = {
    "cpp": _CPP_TYPES,
    "csharp": _CSHARP_TYPES,
    "node": _ARRAYS,
    "python": {name: "bool_" if name == "bool" else name for name in _ARRAYS},
}


def code_text(content: str, language: str) -> str:
    """Return a string literal of a language (``cpp``, ``csharp``, ``node``, ``python``) for a text from a model."""
    if language == "cpp":  # octal escapes of UTF-8: other escapes do not end after a number of digits, or not for ASCII
        return '"' + "".join(_octal(character) for character in content) + '"'
    return '"' + _NOT_PLAIN.sub(lambda match: _escape(match.group(), language), content) + '"'


def _octal(character: str) -> str:
    if not _NOT_PLAIN.match(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "replace"))


def _escape(character: str, language: str) -> str:
    if language == "python" and ord(character) > 0xFFFF:
        return f"\\U{ord(character):08x}"
    raw = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4))


def code_sizes(sizes: Mapping[str, int], language: str) -> str:
    """Return a map from dimensions to sizes, as a literal of a language."""
    form = {"cpp": "{{{}, {}}}", "csharp": "[{}] = {}"}.get(language, "{}: {}")
    pairs = ", ".join(form.format(code_text(name, language), size) for name, size in sizes.items())
    return f"{{ {pairs} }}" if language in ("csharp", "node") else f"{{{pairs}}}"


def expected_rows(contract: Contract) -> str:
    """Return what the sample in C++ or C# compares, as literals of arrays; empty for other languages.

    There is an array for each output: the allowed difference (-1 if there is none), then the first numbers. It is empty
    if nothing is expected.
    """
    form = {"cpp": "{{{}}}", "csharp": "new double[] {{ {} }}"}.get(contract.language)
    if form is None or not contract.sample:
        return ""
    by_name = {
        one.name: [-1 if one.allowed is None else one.allowed, *one.first] for one in contract.sample if one.first
    }
    return ", ".join(
        form.format(", ".join(f"{number:.7g}" for number in by_name.get(one.name, ()))) for one in contract.outputs
    )


def fill_program(part: str, contract: Contract) -> str:
    """Fill the program in a Markdown text of a language with the lines for a model's inputs and outputs.

    Lines that begin with ``%`` stay only if an input is a picture of bytes, which the program reads from a file. Other
    inputs are zeros of the right type and shape (masks: ones). If the examples have no code for a type, a
    sentence replaces the program.
    """
    outputs = contract.outputs[:SHOWN_OUTPUTS]
    strange = next((one for one in (*contract.inputs, *outputs) if one.type not in _ARRAYS), None)
    photos = list(filter(_is_photo, contract.inputs)) if strange is None else []
    part = re.sub(r"^%(.*\n)", r"\1" if photos else "", part, flags=re.MULTILINE)
    if strange is not None:
        sentence = f"(No example: dmlprep writes none for the type {text(strange.type)}.)"
        return re.sub(r"```\w+\n[^`]*@INPUTS@[^`]*```", lambda _: sentence, part)
    language = contract.language
    types = _TYPES[language]
    blocks = {
        "FILES": [_from_file(one) for one in photos],
        "PHOTOS": [_opened(one, place) for place, one in enumerate(photos)],
        "INPUTS": [_INPUTS[language](one, photos.index(one) if one in photos else -1) for one in contract.inputs],
        "OUTPUTS": [_OUTPUTS[language].format(code_text(one.name, language), types[one.type]) for one in outputs],
    }

    def lines(match: re.Match[str]) -> str:
        return "".join(f"{match[1]}{line}\n" for line in blocks[match[2]])

    return re.sub(r"^( *)@(\w+)@\n", lines, part, flags=re.MULTILINE)


def _is_photo(one: Tensor) -> bool:
    return one.meaning == "picture" and one.picture is not None and one.type == "uint8" and one.layout == "NHWC"


def _from_file(one: Tensor) -> str:
    """Return the command that makes the file of a picture's bytes which the program reads."""
    assert one.picture is not None
    height, width = one.picture.size
    form = f"-pix_fmt {_PIXELS[one.picture.colour]} -f rawvideo"
    return f"> ffmpeg -i photo.jpg -vf scale={width}:{height} {form} {_file(one)}"


def _file(one: Tensor) -> str:
    return f"picture.{one.picture.colour}" if one.picture is not None else ""


def _opened(one: Tensor, place: int) -> str:
    """Return the line in Python that reads a picture."""
    assert one.picture is not None
    height, width = one.picture.size
    mode = _PILLOW[one.picture.colour]
    return f'photo{place or ""} = Image.open("photo.jpg").convert("{mode}").resize(({width}, {height}))'


def _sizes(one: Tensor) -> list[int]:
    """Return the shape with 1 for each free dimension."""
    return [1 if isinstance(size, str) else size for size in one.shape]


def _listed(one: Tensor) -> str:
    return ", ".join(map(str, _sizes(one)))


def _note(one: Tensor) -> str:
    """Return a comment about the numbers of an input: its meaning and range."""
    free = "; 1: a free size" if any(isinstance(size, str) for size in one.shape) else ""
    limits = f", {one.range[0]:g} to {one.range[1]:g}" if one.range and one.meaning not in SAY_THEIR_RANGE else ""
    return f"{TEXTS[one.meaning] or 'your numbers'}{limits}{free}"


def _python(one: Tensor, photo: int) -> str:
    name = code_text(one.name, "python")
    if photo >= 0 and one.picture is not None:
        count, colour = _sizes(one)[0], one.picture.colour
        repeated = f".repeat({count}, 0)" if count > 1 else ""
        return f"{name}: np.asarray(photo{photo or ''}){_NHWC.get(colour, '[None]')}{repeated},  # {colour.upper()}"
    numbers = "ones" if one.meaning == "mask" else "zeros"
    return f"{name}: np.{numbers}([{_listed(one)}], np.{_TYPES['python'][one.type]}),  # {_note(one)}"


def _node(one: Tensor, photo: int) -> str:
    kind = _ARRAYS[one.type]
    data = f"new {kind}(readFileSync('{_file(one)}'))" if photo >= 0 else f"new {kind}({prod(_sizes(one))})"
    data += f".fill(1{'n' if kind.startswith('Big') else ''})" if one.meaning == "mask" else ""
    note = "" if photo >= 0 else f" // {_note(one)}"
    name = code_text(one.name, "node")
    return f"{f'[{name}]' if one.name == '__proto__' else name}: {{ data: {data}, shape: [{_listed(one)}] }},{note}"


def _cpp(one: Tensor, photo: int) -> str:
    name, count, kind = code_text(one.name, "cpp"), prod(_sizes(one)), _TYPES["cpp"][one.type]
    data = f"std::vector<{kind}>({count}{', 1' if one.meaning == 'mask' else ''})"
    data = f"std::make_unique<bool[]>({count}).get(), {count}" if kind == "bool" else data
    data = f'read("{_file(one)}")' if photo >= 0 else data
    note = "" if photo >= 0 else f"  // {_note(one)}"
    return f"inputs[{name}] = dmlprep::Tensor::from({data}, {{{_listed(one)}}});{note}"


def _csharp(one: Tensor, photo: int) -> str:
    kind, count = _TYPES["csharp"][one.type], prod(_sizes(one))
    data = f"Enumerable.Repeat(({kind})1, {count}).ToArray()" if one.meaning == "mask" else f"new {kind}[{count}]"
    data = f'File.ReadAllBytes("{_file(one)}")' if photo >= 0 else data
    note = "" if photo >= 0 else f" // {_note(one)}"
    return f"[{code_text(one.name, 'csharp')}] = Tensor.From({data}, {_listed(one)}),{note}"


_INPUTS = {"cpp": _cpp, "csharp": _csharp, "node": _node, "python": _python}
_OUTPUTS = {
    "cpp": "print({0}, outputs[{0}].as<{1}>());",
    "csharp": 'Console.WriteLine({0} + " " + string.Join(" ", outputs[{0}].As<{1}>().ToArray().Take(8)));',
    "node": "console.log({0}, outputs[{0}].data.slice(0, 8).join(' '));",
    "python": "print({0}, *outputs[{0}].ravel()[:8])",
}
