"""How a picture comes to the model's size: the size it is resized to, and where it lies then."""

from __future__ import annotations

from dmlprep.passes.framing.options import PictureOptions

Size = tuple[int, int]


def place(options: PictureOptions, size: Size, model: Size) -> tuple[Size, Size] | str:
    """Height and width after the resize; row and column of the picture's corner in what the model gets; or why not.

    ``crop`` by the shorter side makes the longer one ``int(side * long / short)``, as torchvision and transformers do;
    ``letterbox`` rounds both sides, as Ultralytics does.
    """
    if options.fit == "stretch":
        return model, (0, 0)
    height, width = size
    if options.fit == "letterbox":
        ratio = min(model[0] / height, model[1] / width)
        resized = max(1, round(height * ratio)), max(1, round(width * ratio))
        if options.place == "corner":
            return resized, (0, 0)
        return resized, ((model[0] - resized[0]) // 2, (model[1] - resized[1]) // 2)
    match options.resized:
        case None:
            ratio = max(model[0] / height, model[1] / width)
            resized = max(model[0], round(height * ratio)), max(model[1], round(width * ratio))
        case int(side):
            resized = (side, int(side * width / height)) if height <= width else (int(side * height / width), side)
        case pair:
            resized = pair
    if resized[0] < model[0] or resized[1] < model[1]:
        return f"resized to {resized[0]} x {resized[1]} it is smaller than the model's {model[0]} x {model[1]}"
    spare = resized[0] - model[0], resized[1] - model[1]
    # Python's round takes the even number at halves, as torchvision's center_crop does.
    halves = [s // 2 if options.odd == "floor" else round(s / 2) for s in spare]
    return resized, (-halves[0], -halves[1])
