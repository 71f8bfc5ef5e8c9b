"""The command line: ``python -m gradviz open runs/a``, ``demo`` and ``doctor``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gradviz.errors import GradvizError


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; 0 if it went well, 1 if not, after a line on stderr, and 130 after Ctrl-C."""
    wish = _parser().parse_args(arguments)
    try:
        if wish.command == "open":
            from gradviz.widgets.serve import serve

            serve(wish.run, port=wish.port, browse=not wish.no_browser)
        elif wish.command == "demo":
            from gradviz.demo import demo

            demo()
        else:
            from gradviz.widgets.doctor import doctor

            doctor()
    except GradvizError as error:
        print(f"gradviz: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gradviz", description="See the gradients of a PyTorch run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    show = commands.add_parser("open", help="show a recorded run in the browser, also while it is written")
    show.add_argument("run", help='its folder, as in save_to="runs/a"')
    show.add_argument("--port", type=_port, default=0, help="on this machine; a free one, if not given")
    show.add_argument("--no-browser", action="store_true", help="only say where it is")
    commands.add_parser("demo", help="train a small net, and save its page as gradviz-demo.html")
    commands.add_parser("doctor", help="say which versions there are, and what a widget is missing")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535; got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
