"""Feeds from pictures, sound and text."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.parity import load_feeds
from dmlprep.parity.feeds.sources import Pictures
from dmlprep.parity.feeds.sources.sound import resampled
from tests.parity.models import parse
from tests.system import needs_links

_HOW = "pip install -e '.[dev]'"
image = pytest.importorskip("PIL.Image", reason=_HOW)
soundfile = pytest.importorskip("soundfile", reason=_HOW)
pytest.importorskip("tokenizers", reason=_HOW)

CNN = "g (float[n, 3, 8, 12] x) => (float[n, 3, 8, 12] y) { y = Tanh(x) }"
HEARS = """g (float[n, length] x, int64 sr, float[2, ?, 4] state) => (float[n, length] y, float[2, ?, 4] next) {
    k = Constant<value = int64 {16000}>() same = Equal(sr, k) next = Relu(state)
    y = If (same) <then_branch = a () => (p) { p = Relu(x) }, else_branch = b () => (q) { q = Neg(x) }> }"""
READS = """g (int64[batch, seq] input_ids, int64[batch, seq] attention_mask, int32[batch, seq] position_ids, float gain)
    => (int64[batch, seq] y) { y = Mul(input_ids, attention_mask) }"""


def made(model: Path, source: Path, tmp_path: Path, **options: Any) -> list[dict[str, np.ndarray]]:
    done = dmlprep.make_feeds(model, [source], out=tmp_path / "feeds", **options)
    feeds = load_feeds([tmp_path / "feeds"])
    assert [f.source for f in feeds] == [str(p) for p in done.files]
    return [dict(f) for f in feeds]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten pictures of 16 x 12, red left and blue right, each a little greener than the one before."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(10):
        pixels = np.zeros((12, 16, 3), np.uint8)
        pixels[:, :8, 0], pixels[:, 8:, 2], pixels[..., 1] = 255, 255, number * 20
        image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_a_picture_has_the_layout_size_and_values_of_the_model(photos: Path, tmp_path: Path) -> None:
    feeds = made(parse(CNN, tmp_path / "m.onnx"), photos, tmp_path, pictures=Pictures(fit="stretch"))
    assert len(feeds) == 4
    assert [round(float(f["x"][0, 1, 0, 0]) * 255 / 20) for f in feeds] == [0, 2, 5, 7]  # evenly from all
    x = feeds[0]["x"]
    assert x.shape == (1, 3, 8, 12)
    assert x.dtype == np.float32
    assert x[0, :, 4, 0].tolist() == [1, 0, 0]
    assert x[0, :, 4, -1].tolist() == [0, 0, 1]


def test_a_free_batch_gets_one_picture_in_each_feed(photos: Path, tmp_path: Path) -> None:
    feeds = made(parse(CNN.replace("float[1,", "float[n,"), tmp_path / "m.onnx"), photos, tmp_path)
    assert [feed["x"].shape[0] for feed in feeds] == [1, 1, 1, 1]


def test_mean_deviation_scale_and_order_of_channels(photos: Path, tmp_path: Path) -> None:
    how = Pictures(mean=[1, 2, 3], deviation=[2], scale=255, colour="bgr", fit="stretch")
    x = made(parse(CNN, tmp_path / "m.onnx"), photos, tmp_path, pictures=how)[0]["x"]
    assert x[0, :, 4, -1].tolist() == [127, -1, -1.5]


@pytest.mark.parametrize(
    ("shape", "fit", "left", "size"),
    [
        ("uint8[1, 8, 8, 3]", "crop", [255, 0, 0], (1, 8, 8, 3)),
        ("uint8[3, 8, 8]", "pad", [255, 0, 0], (3, 8, 8)),
        ("uint8[h, w, 3]", "crop", [255, 0, 0], (12, 16, 3)),
        ("float16[2, 1, 8, 8]", "crop", [76 / 255], (2, 1, 8, 8)),  # gray: 0.299 of red
    ],
)
def test_layouts(shape: str, fit: Any, left: list[float], size: tuple[int, ...], photos: Path, tmp_path: Path) -> None:
    path = parse(f"g ({shape} x) => ({shape} y) {{ y = Identity(x) }}", tmp_path / "m.onnx")
    x = made(path, photos, tmp_path, pictures=Pictures(fit=fit))[0]["x"]
    assert x.shape == size
    row = x if x.ndim == 3 else x[0]
    first = row[0, 0] if row.shape[-1] == 3 else row[:, 0, 0]
    assert np.allclose(first, left, atol=2e-3)
    if fit == "pad":
        assert not row[:, -1].any()  # 16 x 12 becomes 8 x 6: black below


def test_the_layout_is_asked_for_where_the_shape_does_not_say_it(photos: Path, tmp_path: Path) -> None:
    path = parse("g (float[n, c, h, w] x) => (float[n, c, h, w] y) { y = Tanh(x) }", tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="no input for pictures"):
        made(path, photos, tmp_path)
    feed = made(path, photos, tmp_path, pictures=Pictures("nchw", colour="gray"), sizes={"h": 6, "w": 4})[0]
    assert feed["x"].shape == (1, 1, 6, 4)


def _wave(path: Path, rate: int, seconds: float = 1.0) -> Path:
    """A tone of 440 Hz, loud in its last quarter."""
    time = np.arange(int(rate * seconds)) / rate
    soundfile.write(str(path), np.sin(2 * np.pi * 440 * time) * np.where(time >= seconds * 0.75, 0.5, 0.05), rate)
    return path


def test_sound_has_the_rate_and_the_length_of_the_model(tmp_path: Path) -> None:
    path, wave = parse(HEARS, tmp_path / "m.onnx"), _wave(tmp_path / "a.wav", 44100)
    (feed,) = made(path, wave, tmp_path, sizes={"length": 512}, values={"state": np.array(0.0)})
    assert feed["x"].shape == (1, 512)
    assert feed["sr"].item() == 16000  # the graph asks for it
    assert feed["state"].shape == (2, 1, 4)
    assert not feed["state"].any()
    assert np.abs(feed["x"]).max() == pytest.approx(0.5, abs=0.02)  # the loudest part
    spectrum = np.abs(np.fft.rfft(feed["x"][0]))
    assert np.argmax(spectrum) * 16000 / 512 == pytest.approx(440, abs=32)
    other = made(path, wave, tmp_path, rate=8000, force=True)[0]
    assert other["sr"].item() == 8000
    assert other["x"].shape == (1, 8000)  # of free length: all of it


@pytest.mark.parametrize(("shape", "size"), [("1, 40000, 1", (1, 40000, 1)), ("2, 1, 100", (2, 1, 100)), ("60", (60,))])
def test_shapes_of_sound(shape: str, size: tuple[int, ...], tmp_path: Path) -> None:
    path = parse(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Tanh(x) }}", tmp_path / "m.onnx")
    (feed,) = made(path, _wave(tmp_path / "a.wav", 16000), tmp_path)
    assert feed["x"].shape == size
    assert feed["x"].any()


def test_another_rate_is_the_same_sound() -> None:
    def tone(rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * 100 * np.arange(rate) / rate).astype(np.float32)

    np.testing.assert_allclose(resampled(tone(44100), 44100, 16000), tone(16000), atol=1e-4)
    np.testing.assert_allclose(resampled(tone(8000), 8000, 16000), tone(16000), atol=1e-4)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Two texts, and a tokenizer of words beside them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 7, "[UNK]": 1, "the": 2, "cat": 3, "sat": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "lines.txt").write_text("the cat sat\n\nthe dog\n", encoding="utf-8")
    return tmp_path / "lines.txt"


def test_text_has_ids_a_mask_and_positions(lines: Path, tmp_path: Path) -> None:
    path = parse(READS, tmp_path / "m.onnx")
    first, second = made(path, lines, tmp_path, sizes={"seq": 4}, values={"gain": np.array(2)})
    assert first["input_ids"].tolist() == [[2, 3, 4, 7]]
    assert first["attention_mask"].tolist() == [[1, 1, 1, 0]]
    assert first["position_ids"].tolist() == [[0, 1, 2, 3]]
    assert first["position_ids"].dtype == np.int32
    assert first["gain"] == 2
    assert second["input_ids"].tolist() == [[2, 1, 7, 7]]


def test_free_lengths_and_batches(lines: Path, tmp_path: Path) -> None:
    path = parse(READS, tmp_path / "m.onnx")
    assert [f["input_ids"].shape for f in made(path, lines, tmp_path)] == [(1, 3), (1, 2)]
    (feed,) = made(path, lines, tmp_path, sizes={"batch": 3}, force=True)
    assert feed["input_ids"].tolist() == [[2, 3, 4], [2, 1, 7], [2, 3, 4]]  # too few come again


def test_inputs_without_a_value_are_named(photos: Path, tmp_path: Path) -> None:
    text = "g (float[1, 3, 8, 8] x, float[2] gain) => (float[1, 3, 8, 8] y) { y = Tanh(x) }"
    done = dmlprep.make_feeds(parse(text, tmp_path / "m.onnx"), [photos], out=tmp_path / "feeds")
    assert (done.kind, done.seeded) == ("pictures", ["gain"])
    assert done.shapes == {"x": (1, 3, 8, 8), "gain": (2,)}


def test_a_name_that_is_no_file_name(photos: Path, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(parse(CNN, tmp_path / "m.onnx"))
    model.graph.input[0].name = model.graph.node[0].input[0] = "file"
    onnx.save(model, tmp_path / "m.onnx")
    assert set(made(tmp_path / "m.onnx", photos, tmp_path)[0]) == {"file"}


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (READS, {}, "no input for pictures"),
        (CNN, {"input": "z"}, "no input is named 'z'"),
        (CNN, {"sizes": {"m": 2}}, "no input has a dimension 'm'"),
        (CNN, {"values": {"z": np.array(1)}}, "no input is named 'z'"),
        (CNN, {"pictures": Pictures(mean=[1, 2])}, "2 numbers for 3 channels"),
        (
            CNN.replace("{", "{ ", 1).replace("x)", "x, float[n, 3, 8, 12] w)", 1),
            {},
            "several inputs accept pictures: x, w",
        ),
        (CNN.replace("x)", "x, float[2] w)", 1), {"values": {"w": np.ones((2, 2, 2))}}, "the value has shape"),
    ],
)
def test_what_does_not_fit_is_said(
    model: str, options: dict[str, Any], says: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        made(parse(model, tmp_path / "m.onnx"), photos, tmp_path, **options)
    assert not (tmp_path / "feeds").exists()


def test_sources_that_cannot_be_read(photos: Path, tmp_path: Path) -> None:
    path = parse(CNN, tmp_path / "m.onnx")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    for source, says in (
        ("bad.png", "cannot be read as a picture"),
        ("gone", "no such file"),
        ("m.onnx", "unsupported kind"),
    ):
        with pytest.raises(InputError, match=says):
            made(path, tmp_path / source, tmp_path)
    hears = parse(HEARS, tmp_path / "h.onnx")
    (tmp_path / "bad.wav").write_bytes(b"no sound")
    with pytest.raises(InputError, match="cannot be read as sound"):
        made(hears, tmp_path / "bad.wav", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "t.txt").write_text("the cat")
    with pytest.raises(InputError, match="cannot be read as a tokenizer"):
        made(parse(READS, tmp_path / "r.onnx"), tmp_path / "t.txt", tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        made(tmp_path / "r.onnx", tmp_path / "t.txt", tmp_path)


def test_earlier_feeds_are_kept_or_replaced_as_a_whole(photos: Path, tmp_path: Path) -> None:
    path = parse(CNN, tmp_path / "m.onnx")
    made(path, photos, tmp_path)
    (tmp_path / "feeds" / "mine.npz").write_bytes(b"")
    with pytest.raises(OutputError, match="already contains feeds"):
        made(path, photos, tmp_path, count=2)
    dmlprep.make_feeds(path, [photos], out=tmp_path / "feeds", count=2, force=True)
    assert [p.name for p in sorted((tmp_path / "feeds").iterdir())] == ["0-0.npz", "1-5.npz", "mine.npz"]


def test_captions_beside_pictures_are_left_alone(photos: Path, tmp_path: Path) -> None:
    (photos / "README.txt").write_text("ten pictures")
    assert len(made(parse(CNN, tmp_path / "m.onnx"), photos, tmp_path)) == 4


@pytest.mark.parametrize(
    ("module", "file", "model", "package"),
    [("PIL.Image", "a.png", CNN, "Pillow"), ("soundfile", "a.wav", HEARS, "soundfile")],
)
def test_a_missing_package_is_named(
    module: str, file: str, model: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / file).write_bytes(io.BytesIO().getvalue())
    with pytest.raises(UsageError) as caught:
        made(parse(model, tmp_path / "m.onnx"), tmp_path / file, tmp_path)
    assert caught.value.fix.endswith(f"-m pip install {package}")


def test_feeds_go_into_a_verdict_that_says_given(photos: Path, tmp_path: Path) -> None:
    path = parse(CNN, tmp_path / "m.onnx")
    dmlprep.make_feeds(path, [photos], out=tmp_path / "feeds", count=2)
    verdict = dmlprep.compare(path, path, feeds=[tmp_path / "feeds"])
    assert (verdict.outcome, verdict.inputs, verdict.findings) == ("passed", "given", [])
    seeded = dmlprep.compare(path, path)
    assert (seeded.inputs, [f.code for f in seeded.findings]) == ("seeded", ["DP710"])
    assert "--feeds" in seeded.findings[0].message
    assert json.loads(json.dumps(seeded.on_made_inputs))


@needs_links
def test_a_link_that_leads_out_of_the_folder_of_pictures_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.png").write_bytes((photos / "0.png").read_bytes())
    (photos / "0.png").unlink()
    (photos / "0.png").symlink_to(tmp_path / "elsewhere.png")
    model = parse(CNN, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="is a link to a place outside the folder") as refused:
        made(model, photos, tmp_path)
    assert refused.value.where == str(photos / "0.png")
    assert not (tmp_path / "feeds").exists()
    assert made(model, photos / "0.png", tmp_path)  # the user names it


@needs_links
@pytest.mark.parametrize("name", ["x.npy", "a.npz", "input_0.pb", "test_data_set_0/input_0.pb"])
def test_a_link_that_leads_out_of_a_folder_of_feeds_is_refused(tmp_path: Path, name: str) -> None:
    link = tmp_path / "feeds" / name
    link.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").write_bytes(b"")
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link to a place outside the folder"):
        load_feeds([tmp_path / "feeds"])


def test_a_folder_that_is_called_as_a_feed_stays(photos: Path, tmp_path: Path) -> None:
    model = parse(CNN, tmp_path / "m.onnx")
    (tmp_path / "feeds" / "7.npz").mkdir(parents=True)
    (tmp_path / "feeds" / "7.npz" / "mine").write_text("mine")
    (tmp_path / "feeds" / "8.npz").write_bytes(b"")
    dmlprep.make_feeds(model, [photos], out=tmp_path / "feeds", force=True)
    assert (tmp_path / "feeds" / "7.npz" / "mine").read_text() == "mine"
    assert not (tmp_path / "feeds" / "8.npz").exists()
