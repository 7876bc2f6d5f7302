"""Language models in the styles of Llama, Qwen, Phi and Gemma: built, checked, prepared, proved, and let write.

    python -m tests.benchmarks.genai_styles --tokenizer FILE [--work DIR] [--steps 150] [--device dml]
    python scripts/windows_genai.py --package winml DIR/*-fp16 DIR/*-int4          # the same folders on DirectML

The Python that runs it needs the extras ``genai`` and ``feeds``, torch and transformers. FILE is a ``tokenizer.json``.
For each style transformers makes a decoder of few layers from a configuration; it learns a page of text by heart in
``--steps`` steps (0: random weights), so that it has an opinion on the next token. onnxruntime-genai's builder makes
two folders of it, FP32 for the CPU and INT4 for DirectML. Prepared are: the first to FP16, the first to INT4 by the
step ``weights``, and the Hugging Face folder by way of the builder's INT4. Each result is looked at by ``genai check``,
held against the FP32 folder by ``genai compare``, and writes ``--count`` tokens with onnxruntime-genai on the CPU
beside it.

Ends with 1 where a folder is not prepared, is not good by ``genai check``, or a proof fails.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dmlprep
from dmlprep.core.errors import DmlprepError
from dmlprep.runtime.tools.onnxruntime_genai import generate
from dmlprep.runtime.tools.tokenizers import tokenize

STYLES = ("llama", "qwen", "phi", "gemma")
_LAYERS = {"llama": 2, "qwen": 3, "phi": 4, "gemma": 3}
_LENGTH = 512
_PIECE = 128
_PROMPT = "positional arguments and options"


def text() -> str:
    """A page of English that every Python has."""
    pages = [argparse.ArgumentParser, json.load, json.dump, inspect.signature, shutil.copytree, tempfile.mkstemp]
    return "\n\n".join(inspect.getdoc(page) or "" for page in pages) + "\n\n" + (argparse.__doc__ or "")


def model(style: str, vocabulary: int) -> Any:
    """A decoder of transformers', with random weights."""
    import transformers

    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": _LAYERS[style],
        "num_attention_heads": 8,
        "num_key_value_heads": 8 if style == "phi" else 2,
        "max_position_embeddings": _LENGTH,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    if style == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    if style == "qwen":
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    if style == "phi":
        more = {"original_max_position_embeddings": _LENGTH}
        return transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes, **more))
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(**sizes, head_dim=32))


def learn(style: str, tokenizer: Path, steps: int, place: Path) -> None:
    """Write a Hugging Face folder of a decoder that knows ``text()``."""
    import torch

    torch.manual_seed(1)
    made = model(style, words(tokenizer))
    # Only the rows of the head that the page needs: a fraction of the time.
    used, tokens = torch.unique(torch.tensor(ids(tokenizer, text())), return_inverse=True)
    optimizer = torch.optim.AdamW(made.parameters(), lr=2e-3)
    loss = torch.tensor(float("nan"))
    for step in range(steps):
        starts = torch.randint(len(tokens) - _PIECE, (4,))
        batch = torch.stack([tokens[start : start + _PIECE] for start in starts])
        states = made.model(input_ids=used[batch]).last_hidden_state[:, :-1]
        logits = states @ made.lm_head.weight[used].T
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 49:
            print(f"  {style}: step {step + 1}, loss {loss.item():.3f}", flush=True)
    made.save_pretrained(place)
    shutil.copyfile(tokenizer, place / "tokenizer.json")
    # Where a tokenizer names no special tokens, some classes of transformers add them behind the vocabulary.
    special = json.loads(tokenizer.read_text(encoding="utf-8"))["added_tokens"][0]["content"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _LENGTH}
    settings |= {f"{name}_token": special for name in ("bos", "eos", "pad", "unk")}
    (place / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def words(tokenizer: Path) -> int:
    """How many tokens a tokenizer has, those that were added included."""
    told = json.loads(tokenizer.read_text(encoding="utf-8"))
    added = [one["id"] for one in told.get("added_tokens", [])]
    return 1 + max(*told["model"]["vocab"].values(), *added)


def ids(tokenizer: Path, written: str) -> list[int]:
    """Tokens of a text."""
    return [int(token) for token in tokenize(tokenizer, [written], None, 1 << 30)["ids"][0]]


def build_for_cpu(source: Path, out: Path) -> None:
    """What onnxruntime-genai's builder makes for the CPU, in FP32."""
    given = ["-i", str(source), "-o", str(out), "-p", "fp32", "-e", "cpu", "-c", str(out.parent / "cache")]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *given, "--extra_options", "hf_token=false"]
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


class Style:
    """All folders of one style, and what is wrong with them."""

    def __init__(self, style: str, options: argparse.Namespace) -> None:
        self.style, self.options = style, options
        self.faults = 0
        self.prompt: list[int] = []

    def run(self) -> None:
        """Build, prepare, prove."""
        source = self._folder("hf")
        if not source.is_dir():
            learn(self.style, self.options.tokenizer, self.options.steps, source)
        original = self._folder("cpu-fp32")
        if not original.is_dir():
            build_for_cpu(source, original)
        page = self.options.work / "text.txt"
        page.write_text(text()[:4000], encoding="utf-8")
        self.prompt = ids(self.options.tokenizer, _PROMPT)
        written = generate(original, "cpu", self.prompt, self.options.count)[0]
        for name, given, precision in (
            ("fp16", original, "fp16"),
            ("int4", original, "int4"),
            ("hf-int4", source, "int4"),
        ):
            self._one(name, given, precision, original, page, written)

    def _folder(self, name: str) -> Path:
        place: Path = self.options.work / f"{self.style}-{name}"
        return place

    def _one(self, name: str, given: Path, precision: Any, original: Path, page: Path, written: Sequence[int]) -> None:
        out, began = self._folder(name), time.monotonic()
        record = dmlprep.genai_prepare(given, out=out, precision=precision, proof=False, force=True)
        if record.exit_code:
            self.fault(f"{self.style} {name}: exit {record.exit_code}: {record.error}")
            return
        checked = dmlprep.genai_check(out)
        if checked.exit_code:
            self.fault(f"{self.style} {name}: genai check: {[f.message for f in checked.findings][:3]}")
        proof = dmlprep.genai_compare(
            original, out, prompts=[_PROMPT], text=page, device=self.options.device, genai=False
        )
        tokens = generate(out, "cpu", self.prompt, self.options.count)[0]
        equal = next((i for i, (a, b) in enumerate(zip(written, tokens, strict=True)) if a != b), len(tokens))
        said = {(f.code) for f in checked.findings if f.severity != "note"}
        print(f"{self.style} {name}: {time.monotonic() - began:.0f} s; check {sorted(said) or 'clean'}; "
              f"genai on the CPU: {equal} of {len(tokens)} tokens equal", flush=True)  # fmt: skip
        for check in proof.checks:
            self._show(check)
        if proof.outcome == "failed":
            self.fault(f"{self.style} {name}: the proof failed")

    def _show(self, check: Any) -> None:
        parts = [f"  {check.verdict.check}: {check.verdict.outcome}"]
        if check.logits is not None:
            one = check.logits
            parts.append(f"KL {one.kl:.2g} of {one.information:.2g}, top-1 {one.top1:.3f}, top-5 {one.top5:.3f}")
        if check.perplexity is not None:
            parts.append(f"perplexity {check.perplexity.original:.4g} -> {check.perplexity.prepared:.4g}")
        if check.verdict.outcome != "passed":
            parts.append(check.verdict.reason[:160])
        print(", ".join(parts), flush=True)

    def fault(self, said: str) -> None:
        """Say what is wrong."""
        print(f"FAULT {said}", flush=True)
        self.faults += 1


def main() -> int:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folders are kept there, and those that are there are taken")
    parser.add_argument("--steps", type=int, default=150, help="of learning the text")
    parser.add_argument("--count", type=int, default=32, help="tokens that onnxruntime-genai writes")
    parser.add_argument("--device", choices=("cpu", "dml"), default="cpu", help="where results are proved")
    parser.add_argument("styles", nargs="*", default=list(STYLES), metavar="STYLE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="styles-") as work:
        options.work = options.work or Path(work)
        options.work.mkdir(parents=True, exist_ok=True)
        styles = [Style(name, options) for name in options.styles]
        for style in styles:
            try:
                style.run()
            except DmlprepError as error:
                style.fault(f"{style.style}: {error}")
    return 1 if any(style.faults for style in styles) else 0


if __name__ == "__main__":
    sys.exit(main())
