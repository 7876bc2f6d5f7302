"""The process behind ``runtime/tools/onnxruntime_genai.py``: load a folder and generate tokens.

It runs as a file and imports no module of dmlprep. It uses the line format of ``process/wire.py``.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import quote, unquote


def generate(folder: str, provider: str, count: int, prompt: list[int]) -> list[list[str]]:
    """Generate ``count`` tokens after the prompt; return the lines of the answer: the version, and the new tokens."""
    import onnxruntime_genai as genai

    config = genai.Config(folder)
    config.clear_providers()
    if provider != "cpu":
        config.append_provider(provider)
    model = genai.Model(config)
    params = genai.GeneratorParams(model)
    length = len(prompt) + count
    greedy = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0}
    params.set_search_options(**greedy, min_length=length, max_length=length)
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    tokens = [str(int(token)) for token in generator.get_sequence(0)[len(prompt) :]]
    return [["version", str(genai.__version__)], ["tokens", *tokens]]


def main() -> None:
    """Answer requests until ``quit`` or the end of the pipe."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)  # a crash ends the process without a dialog that waits for a click
    os.putenv("ORT_DISABLE_TELEMETRY", "1")  # read when the package is loaded
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of native code is not an answer
    for line in sys.stdin.buffer:
        word, *fields = [unquote(field, errors="surrogateescape") for field in line.decode("ascii").split()]
        if word == "quit":
            return
        try:
            if word != "generate":
                raise ValueError(f"unknown request {word}")
            folder, provider, count, *prompt = fields
            answer = [*generate(folder, provider, int(count), [int(token) for token in prompt]), ["ok"]]
        except Exception as error:
            lines = [text.strip() for text in str(error).splitlines() if text.strip()]
            answer = [["fail", "run", lines[0] if lines else type(error).__name__]]
        for row in answer:
            out.write(" ".join(quote(field, errors="replace") or "%" for field in row).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
