"""Parts: what is written is read, by gradviz and by others, whole and in pieces."""

from __future__ import annotations

import json
import uuid
import zlib

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.errors import HistoryError
from gradviz.history.rows import PLANES, Rows, gathered
from gradviz.history.run import parquet, parts
from gradviz.history.run.folder import open_folder
from gradviz.history.run.parts import (
    RowPart,
    TablePart,
    encode_rows,
    encode_table,
    merge_rows,
    merge_tables,
    widened,
)
from gradviz.history.schema import COUNTS, METRICS, STATES, STATISTICS, TABLES
from gradviz.history.table import Table

NAME = "gradients/backward-00000000-00000000.parquet"
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-45, 1.5, -2.25e-38, 1.7976931348623157e308, 0.1]


@pytest.fixture(params=["here", "memory://"])
def folder(request, tmp_path):
    return open_folder(tmp_path if request.param == "here" else f"memory://{uuid.uuid4()}")


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(parts, "GROUP", 10)


def random_rows(seed, iteration, n, attempt=0, epoch=None):
    """Rows that have all there is in them."""
    rng = np.random.default_rng(seed)
    shape = len(iteration), n
    planes = {name: rng.choice(SPECIAL, shape) for name in STATISTICS}
    planes |= {name: rng.choice([np.nan, 0.0, 1.0, 2.0**40], shape) for name in COUNTS}
    planes["state"] = rng.integers(0, len(STATES), shape).astype(np.uint8)
    iteration = np.asarray(iteration, np.int64)
    epoch = iteration // 3 if epoch is None else np.asarray(epoch, np.int64)
    return Rows(iteration, epoch, np.full(len(iteration), attempt), planes)


def names_of(n):
    return [f"layers.{k}.weight" for k in range(n)]


def assert_same(read, expected):
    assert read.keys() == expected.keys()
    for name in expected:
        assert read[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(read[name], expected[name], name, strict=True)
        if name != "state":  # minus zero is not zero
            np.testing.assert_array_equal(
                np.signbit(read[name])[expected[name] == 0], np.signbit(expected[name][expected[name] == 0])
            )


def stored(folder, data, name=NAME):
    folder.write(name, data)
    return RowPart(folder, name)


# Gradients ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_rows_come_back_whole_and_in_any_pieces(data):
    iterations = data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True).map(sorted))
    n = data.draw(st.integers(0, 5))
    rows = random_rows(data.draw(st.integers(0, 99)), iterations, n, attempt=data.draw(st.integers(0, 3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP", data.draw(st.integers(1, 40)))
        part = stored(open_folder(f"memory://{uuid.uuid4()}"), encode_rows(rows, names_of(n), "backward"))
    assert (len(part), part.n_parameters, part.attempt) == (len(rows), n, rows.attempt[0])
    assert part.iteration.tolist() == rows.iteration.tolist()
    assert part.epoch.tolist() == rows.epoch.tolist()
    assert part.names() == names_of(n)
    assert_same(part.planes(PLANES, slice(None), None), rows.planes)

    places = st.integers(0, len(rows) - 1)
    at = data.draw(st.one_of(st.slices(len(rows)), st.lists(places).map(lambda them: np.array(them, np.int64))))
    names = data.draw(st.lists(st.sampled_from(PLANES), unique=True))
    chosen = None
    if n and data.draw(st.booleans()):
        chosen = np.array(data.draw(st.lists(st.integers(0, n - 1))), np.int64)
    expected = {name: rows.planes[name][at] for name in names}
    if chosen is not None:
        expected = {name: plane[:, chosen] for name, plane in expected.items()}
    assert_same(part.planes(names, at, chosen), expected)


@pytest.mark.usefixtures("small_groups")
def test_pandas_duckdb_and_polars_read_the_same_numbers(tmp_path):
    folder, stretches = open_folder(tmp_path), [(0, 7, 3), (7, 12, 3), (12, 20, 4)]  # a parameter more on the way
    given_rows = [random_rows(k, range(a, b), n) for k, (a, b, n) in enumerate(stretches)]
    for k, rows in enumerate(given_rows):
        name = f"gradients/backward-{k:08d}-{k:08d}.parquet"
        folder.write(name, encode_rows(rows, names_of(rows.planes["norm"].shape[1]), "backward"))
    folder.write("gradients/.unfinished.parquet.tmp", b"PAR1")
    order = ["iteration", "parameter"]
    read = {
        "pandas": pd.read_parquet(tmp_path / "gradients"),
        "duckdb": duckdb.sql(f"SELECT * FROM '{tmp_path}/gradients/*.parquet'").df(),
        "polars": pl.read_parquet(tmp_path / "gradients" / "*.parquet").to_pandas(),
    }
    for reader, frame in read.items():
        frame = frame.astype({"parameter": str}).sort_values(order, kind="stable", ignore_index=True)
        assert list(frame.columns[:6]) == ["iteration", "epoch", "attempt", "parameter", "stage", "state"], reader
        expected = pd.concat([tidy(rows) for rows in given_rows], ignore_index=True)
        assert frame["parameter"].tolist() == expected["parameter"].tolist(), reader
        assert frame["state"].astype(str).tolist() == expected["state"].tolist(), reader
        assert set(frame["stage"]) == {"backward"}, reader
        for name in ("iteration", "epoch", "attempt", *STATISTICS, "nonfinite"):
            np.testing.assert_array_equal(
                frame[name].to_numpy(np.float64, na_value=np.nan),
                expected[name].to_numpy(np.float64),
                f"{reader} {name}",
            )
    assert isinstance(read["pandas"]["state"].dtype, pd.CategoricalDtype)


def tidy(rows):
    n = rows.planes["norm"].shape[1]
    flat = {name: plane.ravel() for name, plane in rows.planes.items()}
    return pd.DataFrame(
        {
            "iteration": np.repeat(rows.iteration, n),
            "epoch": np.repeat(rows.epoch, n),
            "attempt": np.repeat(rows.attempt, n),
            "parameter": names_of(n) * len(rows),
            **flat,
            "state": [STATES[place] for place in flat["state"]],
            "nonfinite": flat["nan"] + flat["posinf"] + flat["neginf"],
        }
    )


def test_doubles_are_never_null_and_counts_are_where_they_were_not_taken(folder):
    rows = random_rows(0, range(20), 3)
    folder.write(NAME, encode_rows(rows, names_of(3), "clipped"))
    table = pq.read_table(pa.BufferReader(folder.read(NAME)))
    assert table.column("norm").null_count == 0
    assert table.column("nan").null_count == np.isnan(rows.planes["nan"]).sum() > 0
    assert pa.types.is_int64(table.schema.field("nonfinite").type)
    assert set(table.column("stage").to_pylist()) == {"clipped"}


@pytest.mark.case("H11")
def test_zero_unused_frozen_nan_infinities_skipped_and_not_recorded_are_apart_in_a_file(folder):
    norm = np.array([[0.0, np.nan, np.nan, np.nan, np.inf, -np.inf, np.nan]])
    state = np.array([[0, 1, 2, 0, 0, 0, 4]], np.uint8)
    nan = np.array([[0.0, np.nan, np.nan, 3.0, 0.0, 0.0, np.nan]])
    planes = dict.fromkeys(STATISTICS, norm) | {"nan": nan, "posinf": nan, "neginf": nan, "state": state}
    rows = Rows(np.array([5]), np.array([0]), np.array([0]), planes)
    read = stored(folder, encode_rows(rows, list("abcdefg"), "backward")).planes(PLANES, slice(None), None)
    looks = list(zip(*(read[name][0].tolist() for name in ("norm", "state", "nan")), strict=True))
    assert len({str(look) for look in looks}) == 7
    assert_same(read, planes)


def test_only_the_row_groups_and_columns_that_are_asked_for_are_read(small_groups, folder, monkeypatch):
    part = stored(folder, encode_rows(random_rows(0, range(100), 5), names_of(5), "backward"))
    part.iteration  # noqa: B018 - the footer
    asked, read = [], pq.ParquetFile.read_row_group

    def counted(file, group, columns=None, **options):
        asked.append((group, columns))
        return read(file, group, columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    part.planes(["norm"], slice(33, 36), np.array([2]))
    assert asked == [(16, ["norm"]), (17, ["norm"])]
    asked.clear()
    part.planes(["norm"], slice(4, 4), None)
    part.planes(["norm"], slice(None), np.array([], np.int64))
    part.planes([], slice(None), None)
    assert not asked


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), n=st.integers(0, 4), group=st.integers(1, 30))
def test_merged_parts_hold_the_rows_of_all(lengths, n, group):
    folder, given_parts, given_rows, begin = open_folder(f"memory://{uuid.uuid4()}"), [], [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP", group)
        for k, length in enumerate(lengths):
            rows = random_rows(k, range(begin, begin + 2 * length, 2), n, attempt=1)
            begin += 2 * length + k
            given_rows.append(rows)
            given_parts.append(stored(folder, encode_rows(rows, names_of(n), "backward"), f"a-{k:08d}-{k:08d}.parquet"))
        merged = stored(folder, merge_rows(given_parts), "a-00000000-00000009.parquet")
    assert (merged.attempt, merged.n_parameters, merged.names()) == (1, n, names_of(n))
    assert merged.iteration.tolist() == [i for rows in given_rows for i in rows.iteration.tolist()]
    assert merged.epoch.tolist() == [i for rows in given_rows for i in rows.epoch.tolist()]
    assert_same(
        merged.planes(PLANES, slice(None), None),
        {name: np.concatenate([rows.planes[name] for rows in given_rows]) for name in PLANES},
    )
    assert merged.told["stage"] == "backward"


def test_parts_of_other_attempts_or_parameters_are_not_merged(folder):
    kinds = [(0, 2), (1, 2), (0, 3)]
    given_parts = [
        stored(folder, encode_rows(random_rows(0, range(3), n, attempt), names_of(n), "backward"), f"{attempt}{n}")
        for attempt, n in kinds
    ]
    for other in given_parts[1:]:
        with pytest.raises(ValueError, match="one attempt and one number"):
            merge_rows([given_parts[0], other])
    rows = random_rows(0, range(3), 2)
    rows.attempt[1] = 1
    with pytest.raises(ValueError, match="one attempt"):
        encode_rows(rows, names_of(2), "backward")


def test_a_part_reads_beside_rows_in_memory(folder):
    rows = random_rows(3, range(6), 2)
    part = stored(folder, encode_rows(rows, names_of(2), "backward"))
    read = gathered([(part, slice(1, 3)), (part, np.array([4]))], ["norm", "state"], np.array([1, 2]))
    assert read.iteration.tolist() == [1, 2, 4]
    np.testing.assert_array_equal(read.planes["norm"][:, 0], rows.planes["norm"][[1, 2, 4], 1])
    assert read.planes["state"][:, 1].tolist() == [4, 4, 4]


def test_float32_numbers_take_no_more_than_raw_float32(folder):
    rng = np.random.default_rng(0)
    norm = np.exp(rng.normal(size=(250, 1000))).astype(np.float32).astype(np.float64)
    planes = dict.fromkeys(STATISTICS, norm) | {name: np.zeros_like(norm) for name in COUNTS}
    planes["state"] = np.zeros(norm.shape, np.uint8)
    rows = Rows(np.arange(250), np.zeros(250, np.int64), np.zeros(250, np.int64), planes)
    assert encode_rows(rows, names_of(1000), "backward").size < 4 * 5 * norm.size


# Damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP", 60)
        return encode_rows(random_rows(0, range(100), 5), names_of(5), "backward").to_pybytes()


def read_all(part):
    return part.iteration, part.planes(PLANES, slice(None), None)


@pytest.mark.case("H05")
def test_a_part_that_was_cut_short_anywhere_is_named(folder, whole):
    for length in (0, 1, 4, 100, len(whole) // 2, len(whole) - 500, len(whole) - 9, len(whole) - 4, len(whole) - 1):
        part = stored(folder, whole[:length])
        with pytest.raises(HistoryError, match="skip_damaged=True") as raised:
            read_all(part)
        assert f"{NAME} is damaged" in str(raised.value)
        assert folder.address in str(raised.value)
        assert folder.exists(NAME)


@pytest.mark.parametrize("seed", range(10))
def test_a_part_whose_middle_was_overwritten_is_named_or_reads_right(folder, whole, seed):
    rng = np.random.default_rng(seed)
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    right = read_all(stored(folder, whole))[1]
    named = 0
    for _ in range(30):
        at = int(rng.integers(4, len(whole) - footer))
        try:
            read = read_all(stored(folder, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]))[1]
        except HistoryError as error:
            assert f"{NAME} is damaged" in str(error)  # noqa: PT017
            named += 1
        else:
            assert_same(read, right)  # what was hit is not read: another column, or a page's head
    assert named > 10


def test_what_a_footer_tells_is_checked(folder, whole):
    told = b'"iterations":[[0,1,100]]'
    assert told in whole
    with pytest.raises(HistoryError, match="its footer is not as it was written"):
        read_all(stored(folder, whole.replace(told, b'"iterations":[[7,1,100]]')))


def test_a_part_whose_footer_was_overwritten_is_named_or_read(folder, whole):
    footer = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - footer - 8, len(whole), 29):
        part = stored(folder, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_all(part)
        except HistoryError as error:
            assert NAME in str(error)  # noqa: PT017


def test_a_file_that_is_gone_is_not_called_damaged(folder, whole):
    part = stored(folder, whole)
    part.iteration  # noqa: B018 - it is known
    folder.remove(NAME)
    with pytest.raises(FileNotFoundError):
        part.planes(["norm"], slice(0, 1), None)


def parquet_with(told, table=None):
    table = pa.table({"norm": [1.0]}) if table is None else table
    sink = pa.BufferOutputStream()
    if told is not None:
        told = {**told, "gradviz.crc32": f"{zlib.crc32(told['gradviz'].encode()):08x}"}
    pq.write_table(table.replace_schema_metadata(told), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "is damaged: it was not written by gradviz"),
        ({"gradviz": "["}, "is damaged"),
        ({"gradviz": json.dumps({"format": 9})}, "has format 9; this gradviz .* reads format 1 .* Upgrade"),
        ({"gradviz": json.dumps({"format": 1})}, "is damaged: its footer lacks 'attempt'"),
        (
            {
                "gradviz": json.dumps(
                    {
                        "format": 1,
                        "attempt": 0,
                        "n_parameters": 1,
                        "iterations": [[0, 1, 3]],
                        "epochs": [[0, 0, 2]],
                        "blocks": [3],
                    }
                )
            },
            "contradicts itself",
        ),
        (
            {
                "gradviz": json.dumps(
                    {
                        "format": 1,
                        "attempt": 0,
                        "n_parameters": 1,
                        "iterations": [[0, 1, 3]],
                        "epochs": [[0, 0, 3]],
                        "blocks": [3],
                    }
                )
            },
            "tells of other rows",
        ),
    ],
)
def test_a_part_of_somebody_else_is_refused(folder, told, why):
    with pytest.raises(HistoryError, match=why):
        read_all(stored(folder, parquet_with(told)))


def test_a_state_that_does_not_exist_is_damage(folder):
    told = {
        "format": 1,
        "attempt": 0,
        "n_parameters": 1,
        "iterations": [[0, 1, 1]],
        "epochs": [[0, 0, 1]],
        "blocks": [1],
    }
    table = pa.table({"state": pa.array(["well"]).cast(parquet.TEXT)})
    with pytest.raises(HistoryError, match="a state is none of ok, unused"):
        stored(folder, parquet_with({"gradviz": json.dumps(told)}, table)).planes(["state"], slice(None), None)


# Tables ------------------------------------------------------------------------------------------------------------

KINDS = {
    "iteration": "integer",
    "epoch": "integer",
    "nan": "count",
    "loss": "value",
    "norm": "float",
    "skipped": "flag",
    "name": "text",
}
numbers = st.one_of(st.sampled_from(SPECIAL), st.floats())
lines = st.lists(
    st.tuples(
        st.integers(-(2**62), 2**62),
        st.integers(0, 9),
        st.none() | st.integers(0, 2**60),
        st.none() | numbers,
        numbers,
        st.booleans(),
        st.none() | st.sampled_from(["a", "β", "", "layers.0"]),
    ),
    max_size=30,
)


def table_of(rows, schema=KINDS):
    table = Table(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    masked = {"count": 0, "value": np.nan}
    table.extend(
        {
            name: np.ma.array([masked[kind] if v is None else v for v in values], mask=[v is None for v in values])
            if kind in masked
            else list(values)
            for (name, kind), values in zip(schema.items(), columns, strict=True)
        }
    )
    return table


def plain(columns, table):
    """Columns as Python has them: None where there is nothing, NaN where there is NaN."""
    told = {}
    for name, column in columns.items():
        values = column.values.tolist()
        if name in table.vocabulary:
            values = [None if place < 0 else table.vocabulary[name].texts[place] for place in values]
        missing = [False] * len(values) if column.missing is None else column.missing.tolist()
        told[name] = [repr(None if absent else value) for value, absent in zip(values, missing, strict=True)]
    return told


@settings(max_examples=80)
@given(rows=lines, group=st.integers(1, 40), data=st.data())
def test_tables_come_back_whole_and_in_pieces(rows, group, data):
    folder, table = open_folder(f"memory://{uuid.uuid4()}"), table_of(rows)
    other = Table(KINDS)
    other.vocabulary["name"].place("known before")  # places are the reader's own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP", group)
        folder.write("a", encode_table(table.read(), table.schema, table.vocabulary))
    part = TablePart(folder, "a", other)
    assert len(part) == len(rows)
    given_columns = table.read()
    assert plain(part.columns(slice(0, len(rows))), other) == plain(given_columns, table)
    start = data.draw(st.integers(0, len(rows)))
    at = slice(start, data.draw(st.integers(start, len(rows))))
    assert plain(part.columns(at), other) == plain({k: c[at] for k, c in given_columns.items()}, table)


@settings(max_examples=40)
@given(stretches=st.lists(lines, min_size=1, max_size=4), group=st.integers(1, 40))
def test_merged_tables_hold_the_rows_of_all(stretches, group):
    folder, reader, given_parts = open_folder(f"memory://{uuid.uuid4()}"), Table(KINDS), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "GROUP", group)
        for k, rows in enumerate(stretches):
            table = table_of(rows)
            folder.write(str(k), encode_table(table.read(), table.schema, table.vocabulary))
            given_parts.append(TablePart(folder, str(k), reader))
        folder.write("merged", merge_tables(given_parts))
    merged = TablePart(folder, "merged", reader)
    expected = table_of([row for rows in stretches for row in rows])
    assert plain(merged.columns(slice(0, len(merged))), reader) == plain(expected.read(), expected)


def metrics(*names):
    table = Table(METRICS)
    table.grow(["loss", *names])
    row = {"attempt": 0, "epoch": 0, "loss": np.ma.array(0.5, mask=False), "loss_scale": 1.0, "skipped": False}
    for iteration in range(3):
        table.append({**row, "iteration": iteration, **{name: float(iteration) for name in names}})
    return table


def test_a_metric_that_a_part_lacks_is_absent_and_missing_once_it_is_widened(tmp_path):
    folder, table = open_folder(tmp_path), metrics()
    folder.write(
        "metrics/metrics-00000000-00000000.parquet", encode_table(table.read(), table.schema, table.vocabulary)
    )
    newer = metrics("accuracy")
    folder.write(
        "metrics/metrics-00000001-00000001.parquet", encode_table(newer.read(), newer.schema, newer.vocabulary)
    )
    part = TablePart(folder, "metrics/metrics-00000000-00000000.parquet", newer)
    assert "accuracy" not in part.columns(slice(0, 3))
    assert "accuracy" not in pd.read_parquet(tmp_path / "metrics")  # why parts are widened
    folder.write(part.name, widened(part, newer.schema))
    again = TablePart(folder, part.name, newer)
    assert again.columns(slice(0, 3))["accuracy"].missing.tolist() == [True] * 3
    frame = pd.read_parquet(tmp_path / "metrics")
    assert frame["accuracy"].isna().tolist() == [True] * 3 + [False] * 3
    assert frame["loss"].tolist() == [0.5] * 6


def test_who_reads_a_part_while_it_is_widened_goes_on_reading_it(folder):
    table, newer = metrics(), metrics("accuracy")
    folder.write("a", encode_table(table.read(), table.schema, table.vocabulary))
    reading = TablePart(folder, "a", newer)
    before = plain(reading.columns(slice(0, 3)), newer)
    folder.write("a", widened(TablePart(folder, "a", newer), newer.schema))
    assert plain(reading.columns(slice(0, 3)), newer) == before


def test_parts_with_other_metrics_merge_into_one_with_all(folder):
    tables = [metrics(), metrics("accuracy"), metrics("auroc", "accuracy")]
    reader = metrics("accuracy", "auroc")
    for k, table in enumerate(tables):
        folder.write(str(k), encode_table(table.read(), table.schema, table.vocabulary))
    folder.write("merged", merge_tables([TablePart(folder, str(k), reader) for k in range(3)]))
    columns = TablePart(folder, "merged", reader).columns(slice(0, 9))
    assert columns["accuracy"].missing.tolist() == [True] * 3 + [False] * 6
    assert columns["auroc"].missing.tolist() == [True] * 6 + [False] * 3
    assert columns["accuracy"].values[3:].tolist() == [0.0, 1.0, 2.0] * 2


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_is_read_by_pandas_duckdb_and_polars(tmp_path, name):
    values = {"integer": 3, "count": 4, "float": np.inf, "text": "ok"}
    table = table_of([[values[kind] for kind in TABLES[name].values()]] * 2, TABLES[name])
    open_folder(tmp_path).write(f"{name}/a.parquet", encode_table(table.read(), table.schema, table.vocabulary))
    expected = [tuple(values[kind] for kind in TABLES[name].values())] * 2
    assert list(pd.read_parquet(tmp_path / name).itertuples(index=False, name=None)) == expected
    assert duckdb.sql(f"SELECT * FROM '{tmp_path}/{name}/*.parquet'").fetchall() == expected
    assert pl.read_parquet(tmp_path / name / "*.parquet").rows() == expected


def test_nan_is_not_missing_for_pandas_duckdb_and_polars_that_can_tell(tmp_path):
    table = table_of([(0, 0, None, None, np.nan, False, None), (1, 0, 0, np.nan, 0.0, True, "a")])
    (tmp_path / "a.parquet").write_bytes(encode_table(table.read(), table.schema, table.vocabulary))
    read = duckdb.sql(f"SELECT nan, loss, loss IS NULL, name FROM '{tmp_path}/a.parquet' ORDER BY iteration").fetchall()
    assert read[0] == (None, None, True, None)
    assert (read[1][0], np.isnan(read[1][1]), *read[1][2:]) == (0, True, False, "a")
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert frame["loss"].is_null().to_list() == [True, False]
    assert frame["loss"].is_nan().to_list() == [None, True]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pa.table({"iteration": ["text"]}), "its column iteration holds"),
        (pa.table({"iteration": pa.array([None], pa.int64())}), "its column iteration holds"),
        (pa.table({"name": pa.array([1])}), "its column name holds"),
    ],
)
def test_a_table_that_holds_something_else_is_damage(folder, table, why):
    folder.write("a", parquet_with({"gradviz": '{"format": 1}'}, table))
    with pytest.raises(HistoryError, match=why):
        TablePart(folder, "a", Table(KINDS)).columns(slice(0, 1))


def test_a_table_part_that_was_cut_short_is_named(folder):
    table = metrics()
    content = encode_table(table.read(), table.schema, table.vocabulary).to_pybytes()
    for length in (0, 20, len(content) // 2, len(content) - 1):
        folder.write("a", content[:length])
        with pytest.raises(HistoryError, match="a is damaged"):
            TablePart(folder, "a", table).columns(slice(0, 3))
