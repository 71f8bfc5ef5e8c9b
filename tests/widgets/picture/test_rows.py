"""Rows for any model, in a picture of bounded height: nothing is left out, and what is merged is said."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradviz.history.overview import FROZEN, NAN, Columns
from gradviz.history.schema import Parameter
from gradviz.widgets.picture.rows import MAX_HEIGHT, MAX_ROWS, arrange, group, merge_rows

part = st.sampled_from(["a", "b", "0", "1", "12", "weight", "bias"])
names = st.lists(st.lists(part, min_size=1, max_size=5).map(".".join), max_size=300)


def parameters(names: list[str]) -> list[Parameter]:
    return [Parameter(name=name, shape=(2,), dtype="float32") for name in names]


@given(names)
def test_every_parameter_is_in_one_row_in_order_and_the_height_is_bounded(names):
    groups, layout = arrange(parameters(names))
    assert [i for row in groups for i in range(row.start, row.stop)] == list(range(len(names)))
    assert len(layout.rows) == len(groups) <= MAX_ROWS
    assert layout.height <= MAX_HEIGHT
    for row in groups:
        assert (row.note == "f32") == (row.stop - row.start == 1)


def test_a_transformer_has_a_row_for_each_module():
    inner = ["norm1", "attn.qkv", "attn.out", "norm2", "mlp.0", "mlp.2"]
    blocks = [f"blocks.{i}.{name}.{kind}" for i in range(12) for name in inner for kind in ("weight", "bias")]
    groups = group(parameters(["embed.weight", *blocks, "head.weight"]))
    found = [(row.name, row.note) for row in groups]
    assert found[:5] == [
        ("embed.weight", "f32"),
        ("blocks.0.norm1", "(2)"),
        ("blocks.0.attn", "(4)"),
        ("blocks.0.norm2", "(2)"),
        ("blocks.0.mlp", "(4)"),
    ]
    assert len(found) == 50


def test_where_modules_are_too_many_or_too_few_neighbours_share_a_row():
    groups = group(parameters([f"layers.{i}.{kind}" for i in range(500) for kind in ("weight", "bias")]))
    assert len(groups) <= MAX_ROWS
    assert groups[0].name == "layers.0 … 8"
    flat = group(parameters([f"p{i}" for i in range(1000)]))
    assert (flat[0].name, flat[0].note) == ("p0 … p16", "(17)")


def test_a_merged_row_keeps_the_largest_norm_and_every_flag():
    groups = group(parameters(["a.x", "a.y", "b.x", "b.y"]), 2)
    values = np.float32([[1, 5, np.nan, np.nan, 0.5]])
    flags = np.uint8([[0, 0, NAN, FROZEN, 0]])
    start = np.uint32([0])
    merged = merge_rows(Columns(start, start + np.uint32(1), values, values, flags), groups)
    assert [row.name for row in groups] == ["a", "b"]
    np.testing.assert_array_equal(merged.maximum, np.float32([[5, np.nan, 0.5]]))
    np.testing.assert_array_equal(merged.minimum, np.float32([[1, np.nan, 0.5]]))
    assert merged.flags.tolist() == [[0, NAN | FROZEN, 0]]
