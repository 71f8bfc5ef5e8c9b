"""A layout that is told in few words."""

from __future__ import annotations

from gradviz.widgets.layout import Layout


def test_what_is_not_set_is_not_sent_but_what_is_unset_is():
    layout = Layout(height="100px")
    assert layout.get_state().keys() - {key for key in layout.keys if key.startswith("_")} == {"height"}
    assert layout.get_state("height") == {"height": "100px"}
    layout.height = None
    assert layout.get_state("height") == {"height": None}
    layout.close()
