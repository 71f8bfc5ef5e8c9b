"""What is found of the page's side, and what is said of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gradviz.widgets.doctor import FRONT_ENDS, Server, _advice, _asked, doctor, host_of

VERSIONS = {"ipykernel": "7.4.0"}


def test_a_script_is_told_how_to_see_a_run_all_the_same(capsys):
    report = doctor()
    assert host_of() == report.host == "a script"
    assert str(report) == capsys.readouterr().out.rstrip("\n")
    assert "save_html" in report.advice[0]


@pytest.fixture
def page() -> Iterator[tuple[dict, dict]]:
    """What a server tells of itself, and the configuration that its page has."""
    config: dict = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/lab" else 404)
            self.end_headers()
            if self.path == "/lab":
                told = escape(json.dumps(config))
                self.wfile.write(f'<script id="jupyter-config-data" type="application/json">{told}</script>'.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {"url": f"http://127.0.0.1:{server.server_port}/", "token": ""}, config
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("missing", [(), ("anywidget",), tuple(FRONT_ENDS)])
def test_a_part_that_a_server_lacks_is_named_with_its_package(page, missing):
    told, config = page
    config |= {
        "appVersion": "4.6.6",
        "federated_extensions": [{"name": name} for name in FRONT_ENDS if name not in missing],
    }
    server = _asked(told)
    assert server is not None
    assert (server.version, server.lacks) == ("4.6.6", missing)
    advice = list(_advice("JupyterLab or Notebook", VERSIONS, [server]))
    assert len(advice) == bool(missing)
    assert all(FRONT_ENDS[name] in advice[0] for name in missing)


def test_a_part_that_is_switched_off_is_missing(page):
    told, config = page
    config |= {
        "federated_extensions": [{"name": name} for name in FRONT_ENDS],
        "disabledExtensions": ["@jupyter-widgets/jupyterlab-manager:plugin"],
    }
    server = _asked(told)
    assert server is not None
    assert server.lacks == ("@jupyter-widgets/jupyterlab-manager",)


def test_a_server_that_does_not_answer_is_none():
    assert _asked({"url": "http://127.0.0.1:9/", "token": ""}) is None


@pytest.mark.parametrize(
    ("host", "said"), [("VS Code", "widgetScriptSources"), ("Colab", "enable_custom"), ("IPython", "save_html")]
)
def test_each_host_has_its_advice(host, said):
    assert said in "\n".join(_advice(host, VERSIONS, []))


def test_the_line_to_write_names_the_python_of_the_server():
    server = Server("http://127.0.0.1:8888/", "4.6.6", ("anywidget",), "/opt/lab/bin/python")
    (line,) = _advice("JupyterLab or Notebook", VERSIONS, [server])
    assert "/opt/lab/bin/python -m pip install anywidget" in line
