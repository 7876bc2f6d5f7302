"""Feeds: seeded ones suit the model, the user's are read and checked."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dmlprep.core.errors import CheckNotRun, InputError
from dmlprep.graph.model import Model
from dmlprep.parity import fit_feeds, load_feeds, make_feeds
from dmlprep.parity.feeds.graph_feeds import make_image
from dmlprep.parity.feeds.sizes import Input, evaluate, resolve_shapes
from tests.fixtures_index import FIXTURES, Fixture, fixture
from tests.parity.comparing import compare
from tests.parity.models import opened


@pytest.mark.parametrize("one", FIXTURES, ids=lambda f: f.name)
def test_feeds_fit_every_fixture(one: Fixture) -> None:
    model = Model.open(one.path)
    for feed in fit_feeds(model, make_feeds(model, {**one.pins}, count=2)):
        assert all(np.isfinite(a).all() for a in feed.values() if a.dtype.kind == "f")


def test_the_same_seed_gives_the_same_feeds_and_another_does_not() -> None:
    model = Model.open(fixture("bert_encoder").path)
    first, second = make_feeds(model, count=2)
    again, _ = make_feeds(model, count=2)
    assert all(np.array_equal(first[n], again[n]) for n in first)
    assert not np.array_equal(first["input_ids"], second["input_ids"])
    assert np.array_equal(make_feeds(model, count=1, seed=1)[0]["input_ids"], second["input_ids"])


def test_bert() -> None:
    feed = make_feeds(Model.open(fixture("bert_encoder").path), {"batch": 3, "sequence": 16}, count=1)[0]
    assert feed["input_ids"].shape == (3, 16)
    assert feed["input_ids"].min() >= 5
    assert feed["input_ids"].max() < 120  # rows of the word embedding
    assert feed["attention_mask"][:2].all()
    assert feed["attention_mask"][2].tolist() == [1] * 12 + [0] * 4
    assert not feed["token_type_ids"].any()


def test_a_decoder_with_its_cache() -> None:
    feed = make_feeds(Model.open(fixture("decoder_cache").path), {"batch": 1, "seq": 2, "past": 6}, count=1)[0]
    assert feed["attention_mask"].shape == (1, 8)  # past_plus_seq
    assert feed["position_ids"].tolist() == [[6, 7]]
    assert feed["past_key_values.1.value"].shape == (1, 4, 6, 8)


def test_a_cache_of_grouped_heads_begins_empty_and_has_their_size(tmp_path: Path) -> None:
    """DirectML reads what a cache holds only where past and present are one memory; padded tokens mean nothing."""
    half, heads, size = onnx.TensorProto.FLOAT16, 2, 16
    cache: list[int | str] = ["batch_size", heads, "past_sequence_length", "kv_cache_dim"]
    flat: list[int | str] = ["batch_size", "sequence_length", heads * size]
    inputs = [helper.make_tensor_value_info(name, half, flat) for name in ("q", "k", "v")]
    inputs += [helper.make_tensor_value_info(f"past_key_values.0.{name}", half, cache) for name in ("key", "value")]
    mask = helper.make_tensor_value_info("attention_mask", onnx.TensorProto.INT64, ["batch_size", "total"])
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["count"], to=onnx.TensorProto.INT32),
        helper.make_node("Sub", ["count", "one"], ["lengths"]),
        helper.make_node("Shape", ["attention_mask"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["long"], to=onnx.TensorProto.INT32),
        helper.make_node("Squeeze", ["long"], ["total_length"]),
        helper.make_node(
            "GroupQueryAttention",
            [i.name for i in inputs] + ["lengths", "total_length"],
            ["y", "present_key", "present_value"],
            domain="com.microsoft",
            num_heads=heads,
            kv_num_heads=heads,
        ),
    ]
    constants = [numpy_helper.from_array(np.array([1], np.int64), "axis")]
    constants += [numpy_helper.from_array(np.array([1], np.int32), "one")]
    graph = helper.make_graph(nodes, "g", [*inputs, mask], [helper.make_tensor_value_info("y", half, flat)], constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    model = Model.open(path)
    for feed in make_feeds(model, count=2):
        assert feed["past_key_values.0.key"].shape == (2, heads, 0, size)
        assert feed["attention_mask"].tolist() == [[1] * 8] * 2
    assert compare(path, path).outcome == "passed"


def test_a_merged_decoder_gets_a_cache_in_every_other_feed(tmp_path: Path) -> None:
    model = opened(
        """g (bool[1] use_cache_branch, float[b, 2, past_sequence_length, 8] past_key) => (float y, bool[1] c)
        { y = ReduceSum <keepdims = 0> (past_key) c = Not (use_cache_branch) }""",
        tmp_path,
    )
    feeds = make_feeds(model, count=2)
    assert [bool(feed["use_cache_branch"].all()) for feed in feeds] == [True, False]
    assert [feed["past_key"].size > 0 for feed in feeds] == [True, False]


@pytest.mark.parametrize(("width", "read"), [(64, "q, , "), (32, "q, k, v")])
def test_a_cache_has_the_head_size_of_packed_and_of_separate_projections(width: int, read: str, tmp_path: Path) -> None:
    model = opened(
        f"""g (float[1, 1, {width}] q, float[1, 1, 16] k, float[1, 1, 16] v, float[b, h, p, d] pk, float[b, h, p, d] pv,
        int32[1] s, int32 t) => (float[1, 1, 32] y) {{
            y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> ({read}, pk, pv, s, t) }}""",
        tmp_path,
    )
    assert make_feeds(model, count=1)[0]["pk"].shape[1:] == (2, 0, 8)


def test_sizes_by_input_and_axis_reach_the_dimension_of_that_name() -> None:
    feed = make_feeds(Model.open(fixture("bert_encoder").path), {"input_ids:0": 5, "input_ids:1": 9}, count=1)[0]
    assert {a.shape for a in feed.values()} == {(5, 9)}


def test_images_have_unit_variance() -> None:
    image = make_feeds(Model.open(fixture("residual_cnn").path), count=1)[0]["pixel_values"]
    assert image.std() == pytest.approx(1.0, abs=0.01)
    assert image.mean() == pytest.approx(0.0, abs=0.01)


def test_fp16_inputs_get_fp16() -> None:
    assert make_feeds(Model.open(fixture("half_cnn").path), count=1)[0]["image"].dtype == np.float16


def test_ids_are_traced_through_casts_subgraphs_and_functions(tmp_path: Path) -> None:
    model = opened(
        """g (int32[n] a, bool c) => (float[n, 2] y)
        <float[7, 2] table = {0,0, 0,0, 0,0, 0,0, 0,0, 0,0, 0,0}> {
            wide = Cast<to = 7>(a)
            y = If (c) <
                then_branch = t () => (z) { z = Gather(table, wide) },
                else_branch = e () => (w) { w = Gather(table, wide) }>
        }""",
        tmp_path,
    )
    values = np.concatenate([f["a"] for f in make_feeds(model, {"n": 500}, count=2)])
    assert values.dtype == np.int32
    assert set(values.tolist()) <= set(range(7))
    assert values.max() == 6


@pytest.mark.parametrize(
    "text",
    [
        "same = Equal(sr, k)",
        "one = Constant<value = int64[1] {1}>() row = Reshape(sr, one) zero = Constant<value = int64 {0}>() "
        "cell = Gather(row, zero) same = Equal(k, cell)",
        "same = Less(sr, k)",
        "same = of.asks(sr)",
    ],
)
def test_a_number_that_is_compared_is_the_constant(text: str, tmp_path: Path) -> None:
    graph = f"""g (float[n, samples] x, int64 sr) => (float[n, samples] y) {{
        k = Constant<value = int64 {{16000}}>() {text}
        y = If (same) <then_branch = a () => (p) {{ p = Relu(x) }}, else_branch = b () => (q) {{ q = Neg(x) }}> }}"""
    function = """<opset_import: ["" : 17], domain: "of"> asks (n) => (m)
        { c = Constant<value = int64 {16000}>() m = Equal(n, c) }"""
    head = '<ir_version: 8, opset_import: ["" : 17, "of" : 1]>'
    path = tmp_path / "parsed.onnx"
    onnx.save(onnx.parser.parse_model(f"{head} {graph} {function}"), path)
    feed = make_feeds(Model.open(path), count=1)[0]
    assert feed["sr"].dtype == np.int64
    assert feed["sr"].item() == 16000
    assert compare(path, path).outcome == "passed"


def test_ids_that_are_compared_with_padding_stay_ids(tmp_path: Path) -> None:
    model = opened(
        """g (int64[n, length] ids) => (bool[n, length] y) {
            table = Constant<value = float[50, 1] {"""
        + ", ".join(["0"] * 50)
        + """}>()
            row = Gather(table, ids) pad = Constant<value = int64 {0}>() y = Equal(ids, pad) }""",
        tmp_path,
    )
    ids = make_feeds(model, {"length": 300}, count=1)[0]["ids"]
    assert ids.min() >= 5
    assert 40 <= ids.max() < 50  # rows of a table that is a Constant node


@pytest.mark.parametrize("ends", ['Pad<mode = "reflect">(x, pads)', "Identity(x)"])
def test_a_signal_is_as_long_as_frames_need_it(ends: str, tmp_path: Path) -> None:
    model = opened(
        f"""g (float[batch, length] x, float[2, ?, 4] state) => (float[batch, 2, m] y, float[2, k, 4] next) {{
            w = Constant<value = float[2, 1, 64] {{{", ".join(["0.1"] * 128)}}}>()
            pads = Constant<value = int64[4] {{0, 40, 0, 40}}>() one = Constant<value = int64[1] {{1}}>()
            padded = {ends} row = Unsqueeze(padded, one) y = Conv(row, w) next = Relu(state) }}""",
        tmp_path,
    )
    feed = make_feeds(model, count=1)[0]
    assert feed["x"].shape == (2, 512)
    assert feed["state"].shape == (2, 2, 4)  # the batch of a recurrent state
    assert make_feeds(model, {"length": 700}, count=1)[0]["x"].shape == (2, 700)
    path = tmp_path / "parsed.onnx"
    assert compare(path, path).outcome == "passed"


def test_unusual_inputs(tmp_path: Path) -> None:
    model = opened(
        """g (string[n] words, bool[n] flags, float gain, uint8[1, 3, 8, 8] image, int64[1] timestep, float[n, 0] none)
        => (float y) { y = Identity(gain) }""",
        tmp_path,
    )
    feed = make_feeds(model, count=1)[0]
    assert all(isinstance(w, str) for w in feed["words"])
    assert feed["flags"].dtype == np.bool_
    assert 0 < feed["gain"] < 1
    assert feed["image"].dtype == np.uint8
    assert 1 <= feed["timestep"][0] < 999
    assert feed["none"].shape[1] == 0


ROI = """g (float[{batch}, 3, 16, 16] x, float[rois, 4] boxes, int64[rois] {name}) => (float[rois, 3, 2, 2] y) {{
  f = Relu(x) i = Identity({name}) y = RoiAlign<output_height = 2, output_width = 2>(f, boxes, i) }}"""


@pytest.mark.parametrize(("batch", "sizes"), [("3", {}), ("n", {"n": 3})])
def test_batch_indices_name_an_image(batch: str, sizes: dict[str, int], tmp_path: Path) -> None:
    model = opened(ROI.format(batch=batch, name="which"), tmp_path)
    feed = make_feeds(model, {"rois": 200, **sizes}, count=1)[0]
    assert set(feed["which"].tolist()) == {0, 1, 2}
    path = tmp_path / "parsed.onnx"
    assert compare(path, path, sizes={"rois": 4, **sizes}).outcome == "passed"


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["", "<allowzero = 1>"])
def test_the_target_of_a_reshape_is_legal(rank: int, kind: str, tmp_path: Path) -> None:
    dims = ", ".join("abcde"[:rank])
    opened(f"g (float[2, 3, 4] x, int64[{rank}] to) => (float[{dims}] y) {{ y = Reshape{kind}(x, to) }}", tmp_path)
    path = tmp_path / "parsed.onnx"
    verdict = compare(path, path)
    assert verdict.outcome == "passed", verdict.reason


def test_declared_sizes_of_a_reshape_stand(tmp_path: Path) -> None:
    text = """g (float[2, 3, 4] x, int64[2] to) => (float[n, 12] y) {
      t = Cast<to = 7>(to) r = Reshape(x, t) y = Relu(r) }"""
    model = opened(text.replace("(float[n, 12] y) {", "(float[n, 12] y) <float[n, 12] r> {"), tmp_path)
    assert make_feeds(model, count=1)[0]["to"].tolist() == [-1, 12]


def test_an_axis_called_none_takes_the_size_given_for_it(tmp_path: Path) -> None:
    text = "g (float[None, 4] x, float[None, 4] z) => (float[None, 4] y) { y = Add(x, z) }"
    model = opened(text, tmp_path)
    feed = make_feeds(model, {"None": 7}, count=1)[0]
    assert (feed["x"].shape, feed["z"].shape) == ((7, 4), (7, 4))
    path = tmp_path / "parsed.onnx"
    assert compare(path, path, sizes={"None": 3}).outcome == "passed"
    with pytest.raises(InputError, match="no input has a dimension"):
        compare(path, path, sizes={"?": 3})


def test_errors_name_the_users_file(tmp_path: Path) -> None:
    model = opened("g (float[4] x, float[2] z) => (float[4] y) { y = Sin(x) w = Cos(z) }", tmp_path)
    np.savez(tmp_path / "five.npz", x=np.ones(5, np.float32), z=np.ones(2, np.float32))
    np.save(tmp_path / "x.npy", np.ones(5, np.float32))
    np.save(tmp_path / "z.npy", np.ones(2, np.float32))
    for sources, named in (
        ([tmp_path / "five.npz"], tmp_path / "five.npz"),
        ([f"x={tmp_path / 'x.npy'}", f"z={tmp_path / 'z.npy'}"], f"x={tmp_path / 'x.npy'}, z={tmp_path / 'z.npy'}"),
        ([{"x": np.ones(4, np.float32), "z": np.ones(3, np.float32)}], "feeds[0]"),
    ):
        with pytest.raises(InputError) as caught:
            fit_feeds(model, load_feeds(sources), "elsewhere")
        assert caught.value.where == str(named)


def test_a_sequence_input_is_said_to_be_impossible(tmp_path: Path) -> None:
    item = helper.make_tensor_type_proto(1, [2])
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["n"])],
        "g",
        [helper.make_value_info("s", helper.make_sequence_type_proto(item))],
        [helper.make_tensor_value_info("n", 7, [])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "s.onnx")
    with pytest.raises(CheckNotRun, match="sequence"):
        make_feeds(Model.open(tmp_path / "s.onnx"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("past + seq", 9),
        ("2*seq", 6),
        ("seq // 2", 1),
        ("past_plus_seq", 9),
        ("unknown + seq", None),
        ("seq // 0", None),
    ],
)
def test_dimension_expressions(text: str, size: int | None) -> None:
    assert evaluate(text, {"past": 6, "seq": 3}) == size


@pytest.mark.parametrize("text", ["__import__('os')", "(" * 300, "9**9**9", "a.b", "", "x if y else z"])
def test_hostile_dimension_names_are_only_names(text: str) -> None:
    assert evaluate(text, {"x": 1}) is None


_NAMES = st.one_of(
    st.none(),
    st.integers(-1, 5),
    st.sampled_from(
        [
            "batch",
            "None",
            "past",
            "seq",
            "past + seq",
            "past_plus_seq",
            "total_sequence_length",
            "max_total",
            "2*seq",
            "a-b",
        ]
    ),
    st.text(max_size=8),
)


@pytest.mark.parametrize("cache", ["past_key_values.0.key", "k0"])
def test_a_mask_is_as_long_as_cache_and_tokens_whatever_their_names(cache: str) -> None:
    """torch's exporter names free sizes s18, s27 ..., and users name the inputs of a cache."""
    shapes = resolve_shapes(
        [
            Input("input_ids", ir.Value(name="input_ids"), ir.DataType.INT64, ("s18", "s27")),
            Input("attention_mask", ir.Value(name="attention_mask"), ir.DataType.INT64, ("s31", "s64")),
            Input(cache, ir.Value(name=cache), ir.DataType.FLOAT, ("s18", 2, "s88", 16)),
        ],
        {"s88": 5},
    )
    assert shapes["attention_mask"] == (2, shapes["input_ids"][1] + 5)


@given(
    st.dictionaries(
        st.sampled_from(["input_ids", "attention_mask", "past_key", "position_ids", "x", "image"]),
        st.lists(_NAMES, max_size=5),
        min_size=1,
    ),
    st.dictionaries(st.sampled_from(["batch", "seq", "past", "x:0", "input_ids:1"]), st.integers(1, 9)),
)
@settings(deadline=None)
def test_every_dimension_gets_a_size_and_names_agree(dims: dict[str, list[Any]], given_sizes: dict[str, int]) -> None:
    inputs = [
        Input(name, ir.Value(name=name), ir.DataType.FLOAT, tuple(None if d == -1 else d for d in shape))
        for name, shape in dims.items()
    ]
    shapes = resolve_shapes(inputs, given_sizes)
    seen: dict[str, int] = {}
    for one in inputs:
        assert one.dims is not None
        assert len(shapes[one.name]) == len(one.dims)
        for axis, (dim, size) in enumerate(zip(one.dims, shapes[one.name], strict=True)):
            assert size >= 0
            by_axis = given_sizes.get(f"{one.name}:{axis}")
            if by_axis is not None:
                assert size == by_axis
            elif isinstance(dim, int):
                assert size == dim
            elif dim in given_sizes:
                assert size == given_sizes[dim]
            elif isinstance(dim, str):
                assert seen.setdefault(dim, size) == size


@pytest.fixture
def bert() -> Model:
    return Model.open(fixture("bert_encoder").path)


@pytest.fixture
def arrays(bert: Model) -> dict[str, np.ndarray]:
    return make_feeds(bert, count=1)[0]


def same(feed: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> bool:
    return set(feed) == set(arrays) and all(np.array_equal(feed[n], arrays[n]) for n in arrays)


def test_npz(tmp_path: Path, bert: Model, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    (feed,) = fit_feeds(bert, load_feeds([tmp_path / "f.npz"]))
    assert same(feed, arrays)


def test_npy_by_name_together_are_one_feed(tmp_path: Path, bert: Model, arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}-file.npy", array)
    (feed,) = fit_feeds(bert, load_feeds([f"{n}={tmp_path / f'{n}-file.npy'}" for n in arrays]))
    assert same(feed, arrays)


def test_a_folder_of_npy(tmp_path: Path, bert: Model, arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    (feed,) = fit_feeds(bert, load_feeds([str(tmp_path)]))
    assert same(feed, arrays)


@pytest.mark.parametrize("named", [True, False])
def test_onnx_test_data_sets(tmp_path: Path, bert: Model, arrays: dict[str, np.ndarray], named: bool) -> None:
    for number in (0, 1, 10):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for index, (name, array) in enumerate(arrays.items()):
            tensor = numpy_helper.from_array(array, name if named else "")
            (folder / f"input_{index}.pb").write_bytes(tensor.SerializeToString())
    feeds = fit_feeds(bert, load_feeds([tmp_path]))
    assert len(feeds) == 3
    assert all(same(feed, arrays) for feed in feeds)
    assert len(load_feeds([tmp_path / "test_data_set_1"])) == 1


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    evil = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "x.npy", evil, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=evil)
    (tmp_path / "y.npz").write_bytes(pickle.dumps({"x": 1}))
    for source in (f"x={tmp_path / 'x.npy'}", tmp_path / "x.npz", tmp_path / "y.npz"):
        with pytest.raises(InputError) as caught:
            load_feeds([source])
        assert caught.value.code == "DP705"


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x93NUMPY", b"PK\x03\x04broken"], ids=["empty", "text", "npy", "zip"]
)
@pytest.mark.parametrize("name", ["x.npz", "x.npy", "folder/input_0.pb"])
def test_broken_files_are_errors_with_a_path(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    source = {"x.npz": str(path), "x.npy": f"x={path}", "folder/input_0.pb": str(path.parent)}[name]
    with pytest.raises(InputError) as caught:
        load_feeds([source])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("source", ["missing.npz", "x=missing.npy", "missing"])
def test_missing_files(source: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_feeds([source])


def test_a_wrong_name_lists_the_inputs(bert: Model, arrays: dict[str, np.ndarray]) -> None:
    arrays["input_idz"] = arrays.pop("input_ids")
    with pytest.raises(InputError, match="no input is named 'input_idz' and input 'input_ids' is missing") as caught:
        fit_feeds(bert, [arrays])
    assert "attention_mask" in caught.value.fix


def test_a_wrong_type_names_both(bert: Model, arrays: dict[str, np.ndarray]) -> None:
    arrays["input_ids"] = arrays["input_ids"].astype(np.int32)
    with pytest.raises(InputError, match="needs int64, but the feed is int32"):
        fit_feeds(bert, [arrays])


def test_a_wrong_rank_and_a_wrong_size(arrays: dict[str, np.ndarray], bert: Model) -> None:
    with pytest.raises(InputError, match="2 dimensions"):
        fit_feeds(bert, [{**arrays, "input_ids": arrays["input_ids"][0]}])
    image = Model.open(fixture("residual_cnn").path)
    with pytest.raises(InputError, match=r"4 dimensions \['batch', 3, 32, 32\], the feed has shape"):
        fit_feeds(image, [{"pixel_values": np.zeros((3, 32, 32), np.float32)}])
    with pytest.raises(InputError, match="axis 1 of input 'pixel_values' is 3"):
        fit_feeds(image, [{"pixel_values": np.zeros((1, 4, 32, 32), np.float32)}])


def test_one_dimension_has_one_size(bert: Model, arrays: dict[str, np.ndarray]) -> None:
    arrays["attention_mask"] = arrays["attention_mask"][:, :-1]
    with pytest.raises(InputError, match="dimension 'sequence' is 8 in 'input_ids' and 7 in 'attention_mask'"):
        fit_feeds(bert, [arrays])


def test_images_are_smooth_or_smooth_and_rough_in_turns() -> None:
    model = Model.open(fixture("residual_cnn").path)
    first, second = (f["pixel_values"] for f in make_feeds(model, count=2))
    smooth, rough = (f["pixel_values"] for f in make_feeds(model, count=2, rough=True))

    def steps(image: np.ndarray) -> float:
        return float(np.abs(np.diff(image, axis=-1)).mean())

    np.testing.assert_array_equal(first, smooth)
    assert max(steps(first), steps(second)) < 0.8 * steps(rough)


def test_indices_keep_to_what_a_prepared_form_shows(tmp_path: Path) -> None:
    free = opened(_scatter("float[a, b]"), tmp_path)
    fixed = opened(_scatter("float[3, 2]"), tmp_path)
    feed = make_feeds(free, {"n": 50}, count=1, like=fixed)[0]["group"]
    assert feed.min() >= 0
    assert feed.max() == 2


def _scatter(zeros: str) -> str:
    return f"""g (float[n, 2] x, int64[n] group, int64[2] size) => (float[a, b] y)
        <int64[1] one = {{1}}, int64[2] two = {{1, 2}}, {zeros} zeros> {{
        zeros = ConstantOfShape(size) column = Unsqueeze(group, one) wide = Expand(column, two)
        y = ScatterElements<axis = 0, reduction = "add">(zeros, wide, x)
    }}"""


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_a_large_picture_is_made_in_parts(kind: str) -> None:
    picture = make_image(np.random.default_rng(1), (1, 3001, 3001, 1), np.dtype(kind), smooth=True)
    assert picture.dtype == np.float32
    mean, deviation = (0.0, 1.0) if kind == "float32" else (128.0, 50.0)
    assert abs(picture.mean(dtype=np.float64) - mean) < 1e-3 * deviation
    assert abs(picture.std(dtype=np.float64) - deviation) < 0.05 * deviation  # bytes end at 0 and 255
    assert (picture == np.rint(picture)).all() == (kind == "uint8")
