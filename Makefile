# What a Training Run Sees. Every target makes what it needs in .venv, from requirements.lock.
#   make book                the book, executed and rendered into _book/
#   make test                linters, types and the test suite
#   make help                the other targets

PYTHON ?= python3
PROFILE ?= default
CHAPTERS ?=
# An extra package index with another build of torch (README.md says when): make book TORCH_INDEX=...
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c requirements.lock
INDEX = $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
CODE := gllm_lib tests chapters figures
BROWSERS := chromium chromium-browser google-chrome

# One thread per process: the same numbers and comparable times on every run.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/build/hypothesis
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book pdf epub test test-all test-quarto lint lab lock bench clean

help:
	@echo "make book         execute the chapters and render the book into _book/"
	@echo "                    PROFILE=smoke|default|full   CHAPTERS='04-sample-complexity ...'"
	@echo "make pdf          the book as a PDF, into build/print/; make epub for e-readers"
	@echo "make test         linters, types, the book's own checks, and the tests"
	@echo "make test-all     make test, and the tests that need a Chromium or transformers"
	@echo "make test-quarto  the tests that need Quarto, two of them a Chromium as well"
	@echo "make lint         linters, types and the book's own checks alone"
	@echo "make lab          open the chapters in JupyterLab"
	@echo "make bench        the benchmarks, as ratios"
	@echo "make lock         renew requirements.lock (UPGRADE=--upgrade for the newest versions)"
	@echo "make clean        remove build/, _book/ and caches; .venv stays"
	@echo "PYTHON=python3.12 chooses the Python that makes .venv; TORCH_INDEX=... adds a package index for torch."

book: $(VENV)/.core
	$(BIN)/gllm render --profile $(PROFILE) $(CHAPTERS)

pdf: $(VENV)/.print
	$(BIN)/gllm render --to pdf --profile $(PROFILE) $(CHAPTERS)

epub: $(VENV)/.core
	$(BIN)/gllm render --to epub --profile $(PROFILE) $(CHAPTERS)

test: lint
	$(BIN)/python -m pytest -m "not browser and not huggingface and not quarto"

test-all: lint
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	echo "make test-all drives a browser and finds none of: $(BROWSERS). Install one, or use make test." >&2; exit 1
	$(BIN)/python -m pytest -m "not quarto"

test-quarto: $(VENV)/.test
	@command -v quarto >/dev/null || { \
	echo "make test-quarto needs Quarto on the PATH; environment.yml brings it." >&2; exit 1; }
	$(BIN)/python -m pytest -m quarto

lint: $(VENV)/.test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/gllm check

lab: $(VENV)/.lab
	$(BIN)/jupyter lab chapters

bench: $(VENV)/.test
	@for script in tests/benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

lock:
	$(PYTHON) -m venv build/pins
	build/pins/bin/python -m pip --disable-pip-version-check install --quiet uv
	cp requirements.lock build/pins/all.txt
	build/pins/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras --prerelease disallow \
	  $(UPGRADE) --quiet --no-header --no-annotate --output-file build/pins/all.txt
	{ sed -n '/^#/p;/^[^#]/q' requirements.lock; grep -v -E '^(nvidia|cuda|triton)' build/pins/all.txt; } > build/pins/new.txt
	mv build/pins/new.txt requirements.lock

clean:
	rm -rf build _book .quarto .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find gllm_lib tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A stamp in .venv says which set of packages is there; a newer lock or pyproject.toml outdates it.
$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { \
	echo "$(PYTHON) is not on the PATH; this book needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	echo "$(PYTHON) is $$($(PYTHON) --version 2>&1); this book needs 3.11, 3.12 or 3.13: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) cannot make virtual environments with pip: on Debian or Ubuntu, install the package python3-venv." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml requirements.lock | $(VENV)/pyvenv.cfg
	@echo "Installing the book's packages into $(VENV) (once; a few minutes, PyTorch is the large one)"
	$(PIP) $(INDEX) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@echo "Installing the packages of the tests into $(VENV) (once)"
	$(PIP) $(INDEX) -e '.[test]'
	@touch $@

$(VENV)/.print: $(VENV)/.core
	$(PIP) $(INDEX) -e '.[print]'
	@touch $@

$(VENV)/.lab: $(VENV)/.core
	$(PIP) $(INDEX) -e '.[lab]'
	@touch $@
