"""PyTorch in FP16 on the same GPU as DirectML: the eight models of ``device_shares``, written as PyTorch modules.

    python -m tests.benchmarks.beside_torch FOLDER [--only NAME,...] [--seconds 3] [--device cuda]

It needs torch with CUDA. The modules have the operators and sizes of ``device_shares``, random weights, and PyTorch's
own attention. Times are medians of single runs in ms, inputs and outputs on the GPU: eager, with ``torch.compile``, and
with its CUDA graphs (``reduce-overhead``). If FOLDER has the ``shares.json`` of ``device_shares``, the rows also have
DirectML's times of FP16 without copies, and the lower bound.
"""

# torch is not installed where mypy runs
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = ((64, 3), (128, 4), (256, 6), (512, 3))
MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

Inputs = dict[str, tuple[int, ...]]


def conv(before: int, width: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution with a bias; batch norms are folded into it, as in the ONNX models."""
    return nn.Conv2d(before, width, size, stride, size // 2, groups=groups)


class Residual(nn.Module):
    """The sum of a body and a shortcut."""

    def __init__(self, body: nn.Module, short: nn.Module | None = None, last: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.short, self.last = body, short or nn.Identity(), last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        result: Tensor = self.last(self.body(x) + self.short(x))
        return result


def head(width: int) -> list[nn.Module]:
    """The layers that classify a picture."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]


def resnet50() -> nn.Module:
    """ResNet-50."""
    layers: list[nn.Module] = [conv(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks in WIDTHS:
        for index in range(blocks):
            stride = 2 if index == 0 and width > 64 else 1
            first, middle = conv(before, width, 1), conv(width, width, stride=stride)
            body = nn.Sequential(first, nn.ReLU(), middle, nn.ReLU(), conv(width, 4 * width, 1))
            layers.append(Residual(body, None if index else conv(before, 4 * width, 1, stride=stride), nn.ReLU()))
            before = 4 * width
    return nn.Sequential(*layers, *head(before))


def mobilenet() -> nn.Module:
    """MobileNetV2."""
    layers: list[nn.Module] = [conv(3, 32, stride=2), nn.ReLU6()]
    before = 32
    for times, width, count, start in MOBILE:
        for index in range(count):
            inner, stride = before * times, start if index == 0 else 1
            deep = conv(inner, inner, stride=stride, groups=inner)
            body = nn.Sequential(conv(before, inner, 1), nn.ReLU6(), deep, nn.ReLU6(), conv(inner, width, 1))
            layers.append(Residual(body) if stride == 1 and before == width else body)
            before = width
    return nn.Sequential(*layers, conv(before, 1280, 1), nn.ReLU6(), *head(1280))


class Attention(nn.Module):
    """Multi-head attention, over itself or over ``context``, after ``past`` keys and values."""

    def __init__(self, width: int, heads: int, context: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(context or width, width) for _ in range(2))

    def split(self, x: Tensor) -> Tensor:
        """Return [batch, heads, tokens, size]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, context: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the attended ``x``."""
        source = x if context is None else context
        k, v = self.split(self.k(source)), self.split(self.v(source))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(self.split(self.q(x)), k, v)
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return result


class Layer(nn.Module):
    """A pre-norm transformer layer, with cross-attention if it has a context."""

    def __init__(self, width: int, heads: int, context: int | None = None) -> None:
        super().__init__()
        self.attention, self.norm, self.norm2 = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.cross = Attention(width, heads, context) if context else None
        self.norm3 = nn.LayerNorm(width) if context else None
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, text: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the next ``x``."""
        x = x + self.attention(self.norm(x), None, past)
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), text)
        result: Tensor = x + self.inner(self.norm2(x))
        return result


class Transformer(nn.Module):
    """Layers after an embedding, and a last norm; with ``logits``, a language model's decoder."""

    def __init__(self, first: nn.Module, width: int, heads: int, layers: int, logits: int = 0) -> None:
        super().__init__()
        self.first, self.norm = first, nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.last = nn.Linear(width, logits) if logits else nn.Identity()

    def forward(self, x: Tensor, *past: Tensor) -> Tensor:
        """Return the last hidden state, or the logits."""
        x = self.first(x)
        for index, layer in enumerate(self.layers):
            x = layer(x, None, (past[2 * index], past[2 * index + 1]) if past else None)
        result: Tensor = self.last(self.norm(x))
        return result


class Swap(nn.Module):
    """Channels last: [batch, width, ...] to [batch, tokens, width]."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens."""
        return x.flatten(2).transpose(1, 2)


def speech_encoder() -> nn.Module:
    """The encoder of Whisper base."""
    first, second = nn.Conv1d(80, 512, 3, padding=1), nn.Conv1d(512, 512, 3, 2, 1)
    return Transformer(nn.Sequential(first, nn.GELU(), second, nn.GELU(), Swap()), 512, 8, 6)


class Block(nn.Module):
    """A residual block of a diffusion UNet, and a transformer layer over its pixels."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.GroupNorm(32, before), nn.GroupNorm(32, width)
        self.first, self.second = conv(before, width), conv(width, width)
        self.short = nn.Identity() if before == width else conv(before, width, 1)
        self.layer = Layer(width, 8, 768)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Return the next picture."""
        y = self.second(functional.silu(self.norm2(self.first(functional.silu(self.norm(x))))))
        y = y + self.short(x)
        tokens = self.layer(y.flatten(2).transpose(1, 2), text)
        result: Tensor = tokens.transpose(1, 2).unflatten(2, y.shape[2:])
        return result


class UNet(nn.Module):
    """A diffusion UNet of two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down, self.leave = conv(4, 320), conv(320, 640, stride=2), conv(320, 4)
        self.blocks = nn.ModuleList(Block(a, b) for a, b in ((320, 320), (640, 640), (640, 640), (960, 320)))

    def forward(self, text: Tensor, x: Tensor) -> Tensor:
        """Return the noise."""
        x = skip = self.blocks[0](self.enter(x), text)
        x = self.blocks[2](self.blocks[1](self.down(x), text), text)
        x = torch.cat([functional.interpolate(x, scale_factor=2.0, mode="nearest"), skip], 1)
        result: Tensor = self.leave(self.blocks[3](x, text))
        return result


def super_resolution() -> nn.Module:
    """Eight residual blocks, then twice the size."""
    blocks = (Residual(nn.Sequential(conv(64, 64), nn.ReLU(), conv(64, 64))) for _ in range(8))
    return nn.Sequential(conv(3, 64), Residual(nn.Sequential(*blocks)), conv(64, 12), nn.PixelShuffle(2))


PICTURE: Inputs = {"x": (1, 3, 224, 224)}
PAST: Inputs = {f"past_{index}": (1, 16, 255, 64) for index in range(24)}
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "resnet50": (resnet50, PICTURE),
    "mobilenet": (mobilenet, PICTURE),
    "bert_base": (lambda: Transformer(nn.Embedding(30_522, 768), 768, 12, 12), {"ids": (1, 128)}),
    "vit_base": (lambda: Transformer(nn.Sequential(nn.Conv2d(3, 768, 16, 16), Swap()), 768, 12, 12), PICTURE),
    "decoder": (lambda: Transformer(nn.Embedding(32_000, 1024), 1024, 16, 12, 32_000), {"ids": (1, 1), **PAST}),
    "speech_encoder": (speech_encoder, {"x": (1, 80, 3000)}),
    "unet": (UNet, {"text": (1, 77, 768), "x": (1, 4, 64, 64)}),
    "super_resolution": (super_resolution, {"x": (1, 3, 360, 640)}),
}
"""The module of each model, and the shapes of its inputs; ``ids`` are numbers of tokens."""


def median_ms(model: Callable[..., Tensor], inputs: list[Tensor], seconds: float, wait: Callable[[], Any]) -> float:
    """The median time of single runs in ms, each until the device is idle, after runs that compile and warm up."""
    for _ in range(5):
        model(*inputs)
    wait()
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        began = time.perf_counter()
        model(*inputs)
        wait()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    shares = chosen.folder / "shares.json"
    known = json.loads(shares.read_text(encoding="utf-8")) if shares.exists() else {}
    synchronize = torch.cuda.synchronize if chosen.device == "cuda" else lambda: None
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if chosen.device == 'cuda' else chosen.device}")
    print(
        "| model | lower bound | DirectML | eager | compiled | with CUDA graphs |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for name in chosen.only.split(","):
        build, shapes = MODELS[name]
        torch.manual_seed(0)
        model = build().to(chosen.device).eval().half()
        inputs = [
            torch.randint(30_000, shape, device=chosen.device)
            if what == "ids"
            else torch.randn(shape, device=chosen.device, dtype=torch.float16)
            for what, shape in shapes.items()
        ]
        cells = ["", ""]
        if name in known:
            half = known[name]["models"][-1]
            took = half["on_device"] or half["times"]
            cells = [f"{1000 * half['bound']['seconds']:.3g}", f"{1000 * took['median']:.3g}"]
        with torch.inference_mode():
            for mode in (None, "default", "reduce-overhead"):
                torch.compiler.reset()
                try:
                    run = model if mode is None else torch.compile(model, mode=mode)
                    cells.append(f"{median_ms(run, inputs, chosen.seconds, synchronize):.3g}")
                except Exception as error:  # a table of what runs: the reason stands in the cell
                    cells.append(f"{type(error).__name__}: {str(error)[:80]}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
