"""Check a folder's tokenizer: whether its files exist and can be read, and whether its ids fit the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dmlprep.core.errors import InputError
from dmlprep.genai.config import GenaiConfig, whole
from dmlprep.genai.document import read_document
from dmlprep.genai.folder import GenaiFolder, leads_out
from dmlprep.record import Finding, finding

_BYTES = 256 << 20
_KINDS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
"""Names of tokenizer files, one of which a folder needs; ONNX Runtime's extensions read them."""

_NEW_CLASS = "TokenizersBackend"

_SPECIAL = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "image_token_id"),
    *("video_token_id", "vision_start_token_id", "audio_token_id"),
)


def token_findings(folder: GenaiFolder) -> Iterator[Finding]:
    """Yield findings on missing or unreadable tokenizer files, and on token ids beyond the vocabulary."""
    config = folder.config
    yield from _special(config)
    inside = config.text("model.tokenizer_dir")
    if inside and leads_out(inside):
        text = f'model.tokenizer_dir "{inside[:60]}" is outside the folder or contains ".."'
        yield finding("DP845", text, node="model.tokenizer_dir")
        return
    place = folder.path / inside
    if not any(os.path.isfile(place / name) for name in _KINDS):
        text = f"{place.name or place} has no tokenizer.json, which text needs"
        yield finding("DP847", text, node=str(place))
    elif not os.path.isfile(place / "tokenizer_config.json"):
        yield finding("DP847", f"{place.name or place} has no tokenizer_config.json", node=str(place))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if os.path.isfile(place / name):
            yield from _readable(config, place / name)


def _special(config: GenaiConfig) -> Iterator[Finding]:
    words = config.number("model.vocab_size")
    if not words:
        return
    for key in _SPECIAL:
        written = config.value(f"model.{key}")
        for one in written if isinstance(written, list) else [written]:
            number = whole(one)
            if number is not None and number >= words:
                yield finding("DP852", f"model.{key} is {number}, beyond model.vocab_size {words}", node=f"model.{key}")


def _readable(config: GenaiConfig, file: Path) -> Iterator[Finding]:
    try:
        root = read_document(file, limit=_BYTES).root
    except InputError as error:
        yield finding("DP847", f"{file.name}: {error.what}", node=file.name, remedy=error.fix or None)
        return
    if file.name != "tokenizer.json":
        yield from _class(root, file)
        return
    most, words = largest_id(root), config.number("model.vocab_size")
    if most is None:
        yield finding("DP847", "tokenizer.json has no known vocabulary", node=file.name, severity="warning")
    elif words and most >= words:
        text = f"tokenizer.json has tokens up to {most}, but model.vocab_size is {words}"
        yield finding("DP852", text, node=file.name, largest=most, configured=words)


def _class(settings: Mapping[str, object], file: Path) -> Iterator[Finding]:
    """Yield a note if a tokenizer_config.json has a class name that older releases of onnxruntime-genai refuse."""
    if settings.get("tokenizer_class") == _NEW_CLASS:
        text = (
            f'{file.name} names the class "{_NEW_CLASS}", as transformers 5 does; onnxruntime-genai 0.12.2 '
            "refuses it, 0.18.0 accepts it"
        )
        remedy = 'for onnxruntime-genai-directml 0.12.2 write "tokenizer_class": "PreTrainedTokenizerFast"'
        yield finding("DP847", text, node=file.name, severity="note", remedy=remedy)


def largest_id(tokenizer: Mapping[str, object]) -> int | None:
    """Return the largest token id in a tokenizer.json, added tokens included; ``None`` if it has no ids."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    ids: list[int] = []
    if isinstance(vocabulary, Mapping):  # WordPiece, BPE, WordLevel
        ids += [number for one in vocabulary.values() if (number := whole(one)) is not None]
    elif isinstance(vocabulary, list):  # Unigram: a token's index is its id
        ids += range(len(vocabulary))[-1:]
    added = tokenizer.get("added_tokens")
    extra = [one.get("id") for one in added if isinstance(one, Mapping)] if isinstance(added, list) else []
    return max([*ids, *(number for one in extra if (number := whole(one)) is not None)], default=None)
