"""Convert Hugging Face's ``preprocessor_config.json`` to the options of a framed input.

The conversion follows transformers' image processors and the order of their work on a picture: convert, resize, cut out
the middle, rescale, normalise. A key that changes pixels and has no counterpart is an error; none is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Map from Pillow's numbers of its filters (``Image.Resampling``) to their names."""

_CLASSES: dict[str, tuple[bool, bool]] = {
    **dict.fromkeys(("ViT", "Segformer", "Siglip"), (True, False)),
    **dict.fromkeys(("DeiT", "Beit"), (True, True)),
    **dict.fromkeys(("CLIP", "ChineseCLIP", "MobileNetV1", "MobileNetV2", "Bit"), (False, True)),
    "ConvNext": (False, False),
}
"""Map from an image processor to two of its defaults: whether a size of one number is a square (otherwise the shorter
side), and whether the middle is cut out. Source: ``transformers/models/*/image_processing_*.py``."""

_OTHER_PIXELS = (
    "do_pad",
    "do_thumbnail",
    "do_align_long_axis",
    "do_split_image",
    "do_image_splitting",
    "do_color_quantize",
    "do_pan_and_scan",
    "rescale_offset",
    "keep_aspect_ratio",
    "size_divisor",
    "ensure_multiple_of",
)
"""Keys that change pixels, and that the options of a frame cannot express."""

_SUFFIXES = ("ImageProcessorFast", "ImageProcessor", "FeatureExtractor")


class NoTable(ValueError):
    """The options of a frame cannot express the configuration; ``fix`` says what the user can do."""

    def __init__(self, why: str, fix: str = "write the fields of the table by hand (docs/passes/frame.md)") -> None:
        super().__init__(why)
        self.fix = fix


def as_table(config: Mapping[str, object]) -> dict[str, object]:
    """Return a table of options (fields of ``PictureOptions``) that do what an image processor's configuration says.

    Raises:
        NoTable: the options cannot express a part of the configuration, or it is incomplete.
    """
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    name = next((kind.removesuffix(s) for s in _SUFFIXES if kind.endswith(s)), kind)
    for key in _OTHER_PIXELS:
        if config.get(key):
            raise NoTable(f"{key} = {config[key]} has no counterpart")
    table: dict[str, object] = {}
    if config.get("do_flip_channel_order"):
        table["model_colour"] = "bgr"
    table |= _geometry(config, name)
    factor = _number(config, "rescale_factor", 1 / 255)
    table["scale"] = round(factor * 255, 9) if config.get("do_rescale", True) else 255.0
    if config.get("do_normalize", True):
        for key, field in (("image_mean", "mean"), ("image_std", "deviation")):
            if key not in config:
                raise NoTable(f"do_normalize without {key}")
            numbers = config[key]
            table[field] = [_plain(key, n) for n in numbers] if isinstance(numbers, list) else _plain(key, numbers)
    return table


def _geometry(config: Mapping[str, object], name: str) -> dict[str, object]:
    square, cuts = _CLASSES.get(name, (None, False))
    crop = _pair(config.get("crop_size"), "crop_size") if config.get("do_center_crop", cuts) else None
    if not config.get("do_resize", True):
        if crop is None:
            return {}
        raise NoTable("do_center_crop without do_resize: it crops pictures of any size")
    resample = config.get("resample")
    if not isinstance(resample, int) or resample not in _RESAMPLE:
        raise NoTable(f"resample {resample} is not a number of Pillow", "write its number: 2 bilinear, 3 bicubic")
    mode = {"resize": f"pillow-{_RESAMPLE[resample]}"}
    size = config.get("size")
    if isinstance(size, int) and square is not None:
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    if not isinstance(size, Mapping):
        raise NoTable(f"size is {size}: a square or the shorter side?")
    if set(size) == {"height", "width"}:
        whole = _pair(size, "size")
        if crop is None:
            return {**mode, "fit": "stretch", "model_size": whole}
        return {**mode, "fit": "crop", "resized": whole, "model_size": crop}
    if set(size) != {"shortest_edge"}:
        raise NoTable(f"size has {', '.join(map(str, size))}: the size of the result depends on the picture")
    side = _side(size["shortest_edge"], "size")
    if name == "ConvNext":
        # Below 384 the picture is resized to a larger size and cut; from 384 on it is stretched.
        if side >= 384:
            return {**mode, "fit": "stretch", "model_size": [side, side]}
        share = _number(config, "crop_pct", 224 / 256)
        return {**mode, "fit": "crop", "resized": int(side / share), "model_size": [side, side]}
    if crop is None:
        raise NoTable("size has only a shorter side: the size of the result depends on the picture")
    return {**mode, "fit": "crop", "resized": side, "model_size": crop}


def _pair(size: object, key: str) -> list[int]:
    if isinstance(size, Mapping) and set(size) == {"height", "width"}:
        return [_side(size["height"], key), _side(size["width"], key)]
    if isinstance(size, int):
        return [_side(size, key)] * 2
    raise NoTable(f"{key} is {size}, not a height and a width")


def _side(side: object, key: str) -> int:
    if not isinstance(side, int) or isinstance(side, bool) or side < 1:
        raise NoTable(f"{key} has {side!r} for a side")
    return side


def _number(config: Mapping[str, object], key: str, default: float) -> float:
    number = _plain(key, config.get(key, default))
    if number <= 0:
        raise NoTable(f"{key} is {number}")
    return number


def _plain(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoTable(f"{key} has {value!r}, which is not a number")
    return float(value)
