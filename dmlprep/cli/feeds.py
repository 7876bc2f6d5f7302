"""``dmlprep feeds``."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from dmlprep import api
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, default_out, option, output_options, parsed, sizes_option
from dmlprep.cli.output import echo, print_json
from dmlprep.cli.values import Number, read_inputs, read_numbers
from dmlprep.core.files.outputs import stem_of
from dmlprep.core.text.shell import command_line
from dmlprep.core.text.sizes import count_text
from dmlprep.portable.bounds import MOST_FEEDS, MOST_VALUE


@click.command("feeds", cls=Command)
@click.argument("model", type=PATH)
@click.argument("sources", nargs=-1, required=True, type=PATH)
@option("-o", "--out", type=PATH, help="Folder for the .npz files. Default: build/feeds/NAME.")
@option("--count", type=click.IntRange(1, MOST_FEEDS), default=4, help="Largest number of feeds.")
@option(
    "--input NAME",
    default="",
    help="Input of MODEL for SOURCES, if several are possible.",
    rare=True,
)
@sizes_option
@option(
    "--set NAME=VALUE",
    "values",
    multiple=True,
    callback=parsed(read_inputs),
    help="Value of another input: numbers, or file.npy.",
)
@option(
    "--layout",
    type=click.Choice(["nchw", "nhwc", "chw", "hwc"]),
    help="Pictures: axes of the input, if its shape does not show them.",
    group="Pictures",
)
@option(
    "--mean NUMBERS",
    default="0",
    callback=read_numbers,
    help="Pictures: mean to subtract.",
    group="Pictures",
)
@option(
    "--deviation NUMBERS",
    default="1",
    callback=read_numbers,
    help="Pictures: standard deviation to divide by.",
    group="Pictures",
)
@option(
    "--scale",
    type=Number(-MOST_VALUE, MOST_VALUE),
    default=1.0,
    help="Pictures: value of white before --mean and --deviation.",
    group="Pictures",
    rare=True,
)
@option(
    "--colour",
    type=click.Choice(["rgb", "bgr", "gray"]),
    default="rgb",
    help="Pictures: order of the channels.",
    group="Pictures",
    rare=True,
)
@option(
    "--fit",
    type=click.Choice(["crop", "pad", "stretch"]),
    default="crop",
    help="Pictures: how to fit them to the shape of the input.",
    group="Pictures",
)
@option(
    "--rate HZ",
    type=click.IntRange(1, 1 << 30),
    help="Audio: sample rate of the model.",
    group="Audio and text",
)
@option(
    "--tokenizer",
    type=PATH,
    help="Text: path of tokenizer.json. Default: the one next to MODEL or SOURCES.",
    group="Audio and text",
)
@option("--force", is_flag=True, help="Replace existing feeds.")
@output_options("text", "json")
def command(
    model: Path, sources: tuple[Path, ...], out: Path | None, quiet: bool, output_format: str, **options: Any
) -> int:
    """Make inputs for MODEL from your pictures, audio or text, for --feeds of other commands.

    SOURCES are files, or folders of them. Names, sizes and types come from MODEL.

    \b
    dmlprep feeds model.onnx photos/ -o feeds --mean 0.485,0.456,0.406 --deviation 0.229,0.224,0.225
    dmlprep feeds model.onnx speech.wav -o feeds --rate 16000
    dmlprep feeds model.onnx lines.txt -o feeds --tokenizer tokenizer.json --size sequence=64
    dmlprep prepare model.onnx -o out --feeds feeds

    Exit codes: 0 written; 2 bad input, or a package is missing; 3 dmlprep cannot generate a value for another
    input: set it with --set.
    """
    from dmlprep.api.types import Pictures

    out = out or default_out("feeds", stem_of(model))
    options["layout"] = options["layout"] or ""
    pictures = Pictures(**{field.name: options.pop(field.name) for field in fields(Pictures)})
    feeds = api.make_feeds(model, list(sources), out=out, pictures=pictures, **options)
    if output_format == "json":
        print_json({**asdict(feeds), "files": [str(file) for file in feeds.files]})
        return 0
    echo(f"wrote {count_text(len(feeds.files), 'feed')} from {feeds.kind} into {out}")
    if quiet:
        return 0
    for shaped, shape in feeds.shapes.items():
        seeded = ", synthetic: --set gives it a value" if shaped in feeds.seeded else ""
        echo(f"  {shaped}: {list(shape)}{seeded}")
    echo(f"use them: {command_line('--feeds', out)}")
    return 0
