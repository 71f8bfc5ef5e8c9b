"""`run.json`: read back as written, and refused with words."""

from __future__ import annotations

import json
import math
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradviz.errors import HistoryError
from gradviz.history.run.folder import open_folder
from gradviz.history.run.form import version
from gradviz.history.run.manifest import Began, Manifest
from gradviz.history.schema import Parameter

TIME = "2026-01-31T12:00:00+00:00"
times = st.datetimes().map(lambda time: time.isoformat())
whole = st.integers(0, 2**62)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.fixture
def run(tmp_path):
    folder = open_folder(tmp_path / "a")
    manifest = Manifest(
        began=TIME,
        parameters=[Parameter(name="head.weight", shape=(10, 3), dtype="float32")],
        attempts=[Began(begins=0, at=TIME)],
        progress={"iteration": 3, "loss": float("nan")},
        libraries={"torch": "2.13.0"},
    )
    manifest.write(folder)
    return folder


@given(
    st.builds(
        Manifest,
        began=times,
        ended=st.none() | times,
        parameters=st.lists(
            st.builds(
                Parameter,
                name=st.text(),
                shape=st.lists(whole).map(tuple).filter(lambda shape: math.prod(shape) < 2**63),
                dtype=st.text(),
            ),
            unique_by=lambda parameter: parameter["name"],
        ),
        attempts=st.lists(st.builds(Began, begins=whole, at=times)),
        status=st.text(),
        seed=st.none() | st.integers(),
        progress=st.dictionaries(st.text(), plain),
        gradviz=st.text(),
        libraries=st.dictionaries(st.text(), st.text()),
    )
)
def test_what_is_written_is_read(manifest):
    read = Manifest.from_json(manifest.to_json(), "runs/a")
    assert repr(read) == repr(manifest)  # which also compares NaN


def test_the_file_is_json_for_everybody(run):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    told = json.loads(run.read("run.json"), parse_constant=refuse)
    assert (told["format"], told["gradviz"], told["parameters"][0]["shape"]) == (1, version(), [10, 3])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"format": 2},
            r"has format 2; this gradviz \(.*\) reads format 1 .* Upgrade it: pip install -U gradviz-jupyter",
        ),
        ({"format": True}, "has no format that gradviz knows"),
        ({"format": None}, "has no format that gradviz knows"),
        ({"began": 3}, "'began' is an ISO time; got '3'"),
        ({"began": "yesterday"}, "'began' is an ISO time; got 'yesterday'"),
        ({"ended": 3}, "'ended' is an ISO time, or null"),
        ({"parameters": {}}, "'parameters' is a list of names, shapes and dtypes"),
        ({"parameters": [{"name": "w"}]}, "'parameters' is"),
        ({"parameters": [{"name": "w", "shape": [-1], "dtype": "float32"}]}, "'parameters' is"),
        ({"parameters": [{"name": 3, "shape": [], "dtype": "float32"}]}, "'parameters' is"),
        ({"attempts": [{"begins": 0.5, "at": TIME}]}, "'attempts' is a list of iterations and ISO times"),
        ({"attempts": [0]}, "'attempts' is"),
        ({"status": None}, "'status' is a text"),
        ({"seed": "7"}, "'seed' is a whole number"),
        ({"seed": True}, "'seed' is a whole number"),
        ({"progress": []}, "'progress' is an object"),
        ({"gradviz": 1}, "'gradviz' is a text"),
        ({"libraries": {"torch": 2}}, "'libraries' is an object of texts"),
    ],
)
def test_what_does_not_fit_is_named(run, changes, why):
    told = json.loads(run.read("run.json")) | changes
    run.write("run.json", json.dumps(told).encode())
    with pytest.raises(HistoryError, match=why) as raised:
        Manifest.read(run)
    assert f"{run.address}: run.json" in str(raised.value)


@pytest.mark.parametrize("name", ["began", "parameters", "progress", "format"])
def test_what_is_lacking_is_named(run, name):
    told = json.loads(run.read("run.json"))
    del told[name]
    run.write("run.json", json.dumps(told).encode())
    with pytest.raises(HistoryError, match="no format" if name == "format" else f"lacks '{name}'"):
        Manifest.read(run)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[1]", b"null", b'{"not finite": "x"}', b"[" * 100_000]
)
def test_what_is_no_manifest_is_damage(run, content):
    run.write("run.json", content)
    with pytest.raises(HistoryError, match=r"run\.json is damaged: it (is no JSON|holds)"):
        Manifest.read(run)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_overwritten_is_a_clear_error_or_reads(run, seed):
    content, rng = run.read("run.json"), np.random.default_rng(seed)
    for _ in range(100):
        broken = bytearray(content)
        broken[rng.integers(len(content))] = rng.integers(256)
        run.write("run.json", bytes(broken[: rng.integers(len(content) // 2, len(content) + 1)]))
        try:
            Manifest.read(run)
        except HistoryError as error:
            assert "run.json" in str(error)  # noqa: PT017


@pytest.mark.parametrize("remote", [False, True])
def test_a_folder_that_is_no_run_or_not_there_is_named(tmp_path, remote):
    folder = open_folder(f"memory://{uuid.uuid4()}" if remote else tmp_path / "a")
    with pytest.raises(HistoryError, match=f"There is no folder {folder.address}"):
        Manifest.read(folder)
    folder.write("something", b"1")
    with pytest.raises(HistoryError, match=rf"{folder.address} is no run: it has no run\.json"):
        Manifest.read(folder)


def test_a_file_in_the_place_of_a_run_is_named(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(HistoryError, match=r"a is no run: it has no run\.json"):
        Manifest.read(open_folder(tmp_path / "a"))


def test_a_manifest_that_leads_out_is_not_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "other.json").write_bytes(Manifest(began=TIME).to_json())
    (tmp_path / "a" / "run.json").symlink_to("../other.json")
    with pytest.raises(HistoryError, match="leads out"):
        Manifest.read(open_folder(tmp_path / "a"))
