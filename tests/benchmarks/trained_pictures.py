"""Pictures for the benchmark of trained models: scikit-image's photographs, and text that Pillow draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

__all__ = ["LINES", "PHOTOGRAPHS", "captcha", "channels_first", "line_of_text", "page", "photograph", "puzzle", "sign"]

Array = np.ndarray[Any, Any]

PHOTOGRAPHS = (
    "astronaut.png",
    "coffee.png",
    "chelsea.png",
    "motorcycle_left.png",
    "rocket.jpg",
    "motorcycle_right.png",
)
"""Files of scikit-image's data folder, of a feed each: two are shown, four are held out."""

LINES = (
    "Departure 09:15, platform 4",
    "Total amount due: 1,284.50 EUR",
    "Please keep this door closed",
    "Serial no. K7-20418-B / rev 3",
    "Open daily from 8 to 18 o'clock",
    "Fragile: handle with great care",
)

_WORDS = ("harbour", "winter", "parcel", "engine", "window", "letter", "bridge", "engine room", "neighbour", "evening")


def photograph(folder: Path, index: int, size: tuple[int, int]) -> Image.Image:
    """The middle of a photograph, [height, width] ``size``."""
    with Image.open(folder / PHOTOGRAPHS[index]) as file:
        picture = file.convert("RGB")
    height, width = size
    scale = max(width / picture.width, height / picture.height)
    picture = picture.resize((max(width, round(picture.width * scale)), max(height, round(picture.height * scale))))
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def sign(folder: Path, index: int, size: tuple[int, int]) -> Image.Image:
    """A photograph with lines of text on boards, as a camera would see signs."""
    picture = photograph(folder, index, size)
    draw = ImageDraw.Draw(picture)
    height, width = size
    rng = np.random.default_rng(index)
    for place in range(4):
        text = LINES[(index + place) % len(LINES)]
        font = ImageFont.load_default(int(rng.integers(height // 24, height // 14)))
        left, top = int(rng.integers(4, width // 8)), place * height // 4 + int(rng.integers(8, height // 10))
        box = draw.textbbox((left, top), text, font=font)
        board, ink = (("white", "black"), ("navy", "white"), ("khaki", "black"))[int(rng.integers(3))]
        draw.rectangle((box[0] - 6, box[1] - 6, box[2] + 6, box[3] + 6), fill=board)
        draw.text((left, top), text, font=font, fill=ink)
    return picture


def line_of_text(index: int, size: tuple[int, int]) -> Image.Image:
    """One line of text that fills a strip, a little noisy."""
    height, width = size
    font = ImageFont.load_default(int(height * 0.62))
    text = LINES[index]
    length = font.getlength(text)
    strip = Image.new("RGB", (int(length) + 16, height), (236, 232, 226))
    ImageDraw.Draw(strip).text((8, height * 0.12), text, font=font, fill=(30, 30, 44))
    return _grainy(strip.resize((width, height)), index)


def captcha(index: int, size: tuple[int, int]) -> Image.Image:
    """Letters and digits at different heights, with strokes across them."""
    rng = np.random.default_rng(100 + index)
    height, width = size
    picture = Image.new("RGB", (width, height), (238, 240, 244))
    draw = ImageDraw.Draw(picture)
    letters = rng.choice(list("abcdefhkmnprstuwxy2345678"), 4)
    for place, letter in enumerate(letters):
        font = ImageFont.load_default(int(rng.integers(height // 2, int(height * 0.7))))
        at = (width * (0.06 + 0.23 * place), float(rng.integers(2, height // 4)))
        draw.text(at, str(letter), font=font, fill=tuple(int(c) for c in rng.integers(0, 120, 3)))
    for _ in range(3):
        ends = [int(n) for n in (0, rng.integers(height), width, rng.integers(height))]
        draw.line(ends, fill=tuple(int(c) for c in rng.integers(60, 180, 3)), width=1)
    return _grainy(picture, index)


def page(index: int, size: tuple[int, int]) -> Image.Image:
    """A printed page: a heading, paragraphs, a table and a box for a figure."""
    rng = np.random.default_rng(200 + index)
    height, width = size
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((width * 0.1, height * 0.05), LINES[index], font=ImageFont.load_default(height // 30), fill="black")
    small, top = ImageFont.load_default(max(10, height // 62)), height * 0.12
    for block in range(4):
        kind = (block + index) % 4
        if kind == 1:
            _table(draw, (width * 0.1, top, width * 0.9, top + height * 0.15), small)
            top += height * 0.2
        elif kind == 3:
            draw.rectangle(
                (width * 0.25, top, width * 0.75, top + height * 0.14), outline="black", fill=(200, 214, 230)
            )
            draw.text(
                (width * 0.3, top + height * 0.15), f"Figure {block + 1}. {LINES[block]}", font=small, fill="black"
            )
            top += height * 0.2
        else:
            for _ in range(8):
                text = " ".join(rng.choice(_WORDS, 9))
                draw.text((width * 0.1, top), text[: int(width / (height / 62) / 0.62)], font=small, fill="black")
                top += height * 0.022
            top += height * 0.03
    return _grainy(picture, index)


def puzzle(folder: Path, index: int, size: tuple[int, int]) -> Image.Image:
    """A photograph with a notch, and the piece that fits it at the left edge."""
    picture = photograph(folder, index, size)
    rng = np.random.default_rng(300 + index)
    height, width = size
    edge, top = height // 7, int(rng.integers(height // 4, height // 2))
    left = int(rng.integers(width // 3, width - 2 * edge))
    piece = picture.crop((left, top, left + edge, top + edge))
    dark = Image.blend(piece, Image.new("RGB", piece.size, "black"), 0.55)
    picture.paste(dark, (left, top))
    picture.paste(piece, (edge // 4, top))
    ImageDraw.Draw(picture).rectangle((edge // 4, top, edge // 4 + edge, top + edge), outline="white", width=2)
    return picture


def channels_first(
    picture: Image.Image, mean: Any = 0.0, deviation: Any = 1.0, *, reverse: bool = False, white: float = 1.0
) -> Array:
    """[1, 3, height, width] of a picture, or [1, 1, height, width] of a gray one: ``(value * white / 255 - mean)``
    divided by ``deviation``.

    Args:
        reverse: blue before red.
    """
    pixels = np.asarray(picture, dtype=np.float32)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    values = (pixels * (white / 255) - np.asarray(mean)) / np.asarray(deviation)
    values = values[..., ::-1] if reverse else values
    return np.ascontiguousarray(np.moveaxis(values, -1, 0)[None], dtype=np.float32)


def _table(draw: ImageDraw.ImageDraw, box: tuple[float, float, float, float], font: Any) -> None:
    left, top, right, bottom = box
    for row in range(5):
        y = top + (bottom - top) * row / 4
        draw.line((left, y, right, y), fill="black")
        for column in range(5):
            x = left + (right - left) * column / 4
            draw.line((x, top, x, bottom), fill="black")
            if row < 4 and column < 4:
                draw.text((x + 4, y + 3), _WORDS[(row * 4 + column) % 10][:8], font=font, fill="black")


def _grainy(picture: Image.Image, seed: int) -> Image.Image:
    """With the noise of a camera."""
    noise = np.random.default_rng(400 + seed).normal(0, 4, np.asarray(picture).shape)
    return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))
