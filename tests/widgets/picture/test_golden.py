"""The still picture lays out as the live one does: both are held to tests/data/picture.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data import make_picture

GOLDEN = json.loads((Path(make_picture.__file__).with_name("picture.json")).read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_as_in_the_browser(name):
    make_picture.random = make_picture.np.random.default_rng(0)
    assert json.loads(json.dumps(getattr(make_picture, name)())) == GOLDEN[name]
