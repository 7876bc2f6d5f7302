"""Read genai_config.json, check it against the schema, and look up values (``model.decoder.head_size``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlprep.genai.document import JsonObject, read_document
from dmlprep.genai.schema import validate
from dmlprep.record import Finding

CONFIG = "genai_config.json"
"""Name of the config file in a folder; onnxruntime-genai reads no other name."""


def is_dml(name: str) -> bool:
    """Return True if onnxruntime-genai reads the name of a provider as DirectML.

    It accepts upper and lower case, and the suffix ``ExecutionProvider``.
    """
    return name.lower().removesuffix("executionprovider") == "dml"


@dataclass(frozen=True)
class Provider:
    """One execution provider in session options.

    Attributes:
        place: path of its object in the config (``model.decoder.session_options.provider_options[0].dml``).
        options: its options, except ``device_filtering_options``.
        device_filter: the object ``device_filtering_options``; ``None`` if there is none.
    """

    name: str
    place: str
    options: Mapping[str, object]
    device_filter: Mapping[str, object] | None

    @property
    def is_dml(self) -> bool:
        """True if the provider is DirectML."""
        return is_dml(self.name)


@dataclass(frozen=True)
class GenaiConfig:
    """The content of a genai_config.json.

    Attributes:
        path: the file.
        document: its content, which must not be changed.
        findings: faults in it: text or values that onnxruntime-genai refuses, or reads differently.
    """

    path: Path
    document: Mapping[str, object]
    findings: tuple[Finding, ...] = field(repr=False)

    def value(self, place: str) -> object:
        """Return the value at a place, which is keys with dots between them; ``None`` if there is no value."""
        value: object = self.document
        for key in place.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def table(self, place: str) -> Mapping[str, object]:
        """Return the object at a place; an empty one if the value is missing or is not an object."""
        value = self.value(place)
        return value if isinstance(value, Mapping) else {}

    def text(self, place: str) -> str:
        """Return the string at a place; an empty one if the value is missing or is not a string."""
        value = self.value(place)
        return value if isinstance(value, str) else ""

    def number(self, place: str) -> int | None:
        """Return the 32-bit integer at a place; ``None`` if the value is missing or is not such a number."""
        return whole(self.value(place))

    def flag(self, place: str) -> bool | None:
        """Return the Boolean at a place; ``None`` if the value is missing or is not a Boolean."""
        value = self.value(place)
        return value if isinstance(value, bool) else None

    @property
    def type(self) -> str:
        """The value of ``model.type``, which is the kind of model (``llama``, ``whisper``); empty if it is missing."""
        return self.text("model.type")

    def providers(self, section: str) -> list[Provider]:
        """Return the providers in a section's session options, in their order.

        Args:
            section: name of the section, with or without ``model.`` before it (``decoder.pipeline.embeds``).
        """
        place = f"{section_place(section)}.session_options"
        return list(_providers(place, self.section(section).get("session_options")))

    def session_options(self, section: str) -> Mapping[str, object] | None:
        """Return a section's own session options, even empty ones.

        ``None`` if it has none: then onnxruntime-genai uses the decoder's.
        """
        options = self.section(section).get("session_options")
        return options if isinstance(options, Mapping) else None

    def section(self, section: str) -> Mapping[str, Any]:
        """Return the object of a section (``decoder``, ``decoder.pipeline.NAME``); an empty one if it is missing."""
        head, mark, stage = section.removeprefix("model.").partition(".pipeline.")
        table = self.table(f"model.{head}")
        if not mark:
            return table
        return next((inner for known, inner in stages(table) if known == stage), {})

    def side(self, section: str, side: str) -> Mapping[str, object]:
        """Return the names in a section's ``inputs`` or ``outputs`` (``side``), by key.

        Empty if it is missing, or a list, as in a stage of a pipeline.
        """
        written = self.section(section).get(side)
        return written if isinstance(written, Mapping) else {}


def section_place(section: str) -> str:
    """Return the full place of a section: ``model.decoder`` for ``decoder``."""
    return section if section.startswith("model.") else f"model.{section}"


def stages(table: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the name and the object of each stage in a section's ``pipeline``.

    A pipeline is a list of objects with one key each, or one object.
    """
    pipeline = table.get("pipeline")
    for entry in pipeline if isinstance(pipeline, list) else [pipeline]:
        if isinstance(entry, Mapping):
            yield from ((name, stage) for name, stage in entry.items() if isinstance(stage, Mapping))


def whole(value: object) -> int | None:
    """Return a value as an integer if it is a whole number of 32 bits (also ``2.0``, not ``True``); ``None`` if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -(1 << 31) <= value < 1 << 31 or value != int(value):
        return None
    return int(value)


def read_config(path: Path | str) -> GenaiConfig:
    """Read a genai_config.json, by its path or that of its folder; ``findings`` of the result lists its faults.

    Raises:
        InputError: it cannot be read, is larger than 16 MiB, not a JSON object, or nests deeper than 32 levels (DP840).
    """
    path = Path(path)
    file = path / CONFIG if path.is_dir() else path
    document = read_document(file)
    return GenaiConfig(file, document.root, (*document.findings, *validate(document.root)))


def _providers(place: str, options: object) -> Iterator[Provider]:
    listed = options.get("provider_options") if isinstance(options, Mapping) else None
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        for name, settings in entry.items() if isinstance(entry, JsonObject) else []:
            if isinstance(settings, Mapping):
                device_filter = settings.get("device_filtering_options")
                yield Provider(
                    name,
                    f"{place}.provider_options[{number}].{name}",
                    {key: value for key, value in settings.items() if key != "device_filtering_options"},
                    device_filter if isinstance(device_filter, Mapping) else None,
                )
