"""The Chromium that the browser tests drive: ``find()`` it, or run this file to install it where we may."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

APT = "apt-get install chromium fonts-dejavu-core"


def find() -> str | None:
    """Path of Chromium: ``GRADVIZ_CHROMIUM`` only, if it is set; else the system's; else Playwright's own."""
    named = os.environ.get("GRADVIZ_CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome"]
    for name in names:
        if path := shutil.which(name):
            return path
    return None if named else _playwrights_own()


def install() -> None:
    """Install Chromium: Debian's where we may, else Playwright's."""
    print("Installing Chromium for the browser tests", flush=True)
    if shutil.which("apt-get") and os.geteuid() == 0:
        _quietly("apt-get", "update")
        _quietly(*APT.split(), "-y", "--no-install-recommends")
    if find() is None:
        _quietly(sys.executable, "-m", "playwright", "install", "chromium")


def _quietly(*command: str) -> None:
    # Whether it worked shows in there being a Chromium; its words would bury the line that says what to do.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, check=False, capture_output=True)


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def main() -> int:
    """Make sure that there is a Chromium, and say which; else say in one line what to install."""
    if named := os.environ.get("GRADVIZ_CHROMIUM"):
        trouble = f"GRADVIZ_CHROMIUM is {named!r}, which is no program. Unset it, or name one that is."
    else:
        trouble = f"The browser tests need Chromium. Install it: {APT}, or name one: GRADVIZ_CHROMIUM=/path/to/it"
        if find() is None:
            install()
    path = find()
    print(path or trouble, file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
