"""The document ``buckets.json``, which lists the models of a folder and the sizes that each accepts.

A bucket is one prepared model with fixed sizes. A folder has several buckets of one original model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, parse_json, read_text, unreadable
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.core.text.documents import to_json

BUCKETS = "buckets.json"

Count = Annotated[int, msgspec.Meta(ge=0)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[^/\\:*?\"<>|]+$", max_length=255)]


class FileEntry(msgspec.Struct, frozen=True):
    """The size of a file in bytes, and its SHA-256."""

    bytes: Count
    sha256: Digest


class BucketFacts(msgspec.Struct, frozen=True):
    """The bucket of a run, with its ``sizes`` by dimension.

    Attributes:
        data: name of the file with the weights of all buckets; empty without one.
        data_bytes, shared_bytes: size in bytes of the weights of this bucket in that file, and of those among them that
            an earlier bucket has too.
    """

    name: str
    sizes: dict[str, Count]
    data: str = ""
    data_bytes: Count = 0
    shared_bytes: Count = 0


class DataEntry(msgspec.Struct, frozen=True):
    """The file of weights that all buckets share, in their folder."""

    file: FileName
    bytes: Count
    sha256: Digest


class BucketEntry(msgspec.Struct, frozen=True):
    """One bucket: its model (``file``) and the ``record`` of its run are in the same folder.

    Attributes:
        sizes: the only sizes that it accepts, by dimension.
        inputs, outputs: the shape of each; for a dimension that is still free, its name.
        data_bytes, shared_bytes: size in bytes of its weights in the data file, and of those among them that an earlier
            bucket has too.
    """

    name: str
    sizes: dict[str, Count]
    file: FileName
    sha256: Digest
    record: FileName
    inputs: dict[str, list[Count | str]]
    outputs: dict[str, list[Count | str]]
    data_bytes: Count
    shared_bytes: Count


class BucketsFile(msgspec.Struct, frozen=True):
    """The content of ``buckets.json``; ``made_by`` is dmlprep with its version.

    Attributes:
        original_sha256: digest of the model that all buckets were prepared from.
        dimensions: the dimensions in which the buckets differ.
        data: the file of weights; ``None`` if they are small and in the models.
    """

    format: Literal[1]
    made_by: str
    original_sha256: Digest
    dimensions: list[str]
    data: DataEntry | None
    buckets: Annotated[list[BucketEntry], msgspec.Meta(min_length=1)]

    @property
    def files(self) -> Iterator[str]:
        """The names of the data file, the models and the records of the document, without ``buckets.json`` itself."""
        if self.data is not None:
            yield self.data.file
        for bucket in self.buckets:
            yield bucket.file
            yield bucket.record

    def to_json(self) -> bytes:
        """Return the document as indented JSON, UTF-8."""
        return to_json(self)

    @classmethod
    def read(cls, path: Path) -> BucketsFile:
        """Read the document from a file, and check its file names and the sizes of each bucket.

        Raises:
            InputError: it does not exist, or is not such a document; the message has the reason.
        """
        fix = "prepare the buckets again"
        try:
            document = parse_json(read_text(path), cls)
        except OSError as error:
            raise unreadable(error, path) from error
        except Unfit as error:
            raise InputError(f"not a list of buckets: {error}", where=str(path), fix=fix) from error
        for name in document.files:
            if wrong := file_name_problem(name):
                raise InputError(f"it lists a file {name!r}, which {wrong}", where=str(path), fix=fix)
        for bucket in document.buckets:
            if set(bucket.sizes) != set(document.dimensions):
                what = f"the sizes of the bucket {bucket.name!r} are not those of {', '.join(document.dimensions)}"
                raise InputError(what, where=str(path), fix=fix)
        return document


def schema() -> dict[str, object]:
    """Return the JSON Schema of ``buckets.json``, version 2020-12."""
    fields = msgspec.json.schema(BucketsFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dmlprep buckets", **fields}
