# All set-up happens in .venv, in this checkout, on first use.

PYTHON ?= python3
JOBS ?= 2
# Which places are broken, and how far is gone for a test that notices: `python -m tools.mutation --help`.
MUTATIONS ?= --draw 100 --seed 1 --tier regress
BOARD ?= ulx3s-85f
BIN := .venv/bin
# A test that hangs ends after a quarter of an hour; the netlist of the largest board takes as much to be built.
REGRESS_TIME_LIMIT_S := 3600
# `make regress SHARE=3/20` runs a part of what `make test` leaves out; the names of the tests alone decide which.
SHARE ?=
# Python compiles what it imports, and keeps it whatever this shell says; most of what pip installs is never imported.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Tests of one file share what they compute first, so that a process keeps neighbours and takes over others' last ones.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist=worksteal --durations=20

# The version that is tested. pip takes a CPU build where it finds one; on Linux, PyPI alone has the one for GPUs, of several
# gigabytes: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu gets the small one.
TORCH ?= torch==2.13.0

.PHONY: help demo test core test-train check cocotb regress mutations synth bitstream requirements browser clean distclean

help:
	@echo "make demo     classify handwritten digits on the simulated accelerator"
	@echo "make test     make check and the tests of every day (JOBS=$(JOBS) at a time)"
	@echo "make check    form, lint and types, without simulation"
	@echo "make core     networks on the default core, in the simulator that make demo builds"
	@echo "make test-train  set up PyTorch (CPU), and test the training"
	@echo "make cocotb   the cocotb regression: components and the core in Verilator"
	@echo "make regress  everything: hours; SHARE=3/20 runs a part of what make test leaves out"
	@echo "make mutations  break the project in single places, and see that a test notices: hours"
	@echo "make synth    area and clock of the default configuration, with yosys and nextpnr"
	@echo "make bitstream  build/$(BOARD).bit for a board (BOARD=$(BOARD)): a quarter of an hour and more"
	@echo "make clean    remove caches; make distclean removes .venv as well"

demo: .venv/installed
	@$(BIN)/lutterfly demo

test: check
	$(PYTEST) --quick-build $(PYTEST_OPTIONS)

core: .venv/installed-test
	$(PYTEST) -m "demo_core and not regress" $(PYTEST_OPTIONS)

test-train: .venv/installed-train
	$(PYTEST) cocotb_tests/train $(PYTEST_OPTIONS)

check: .venv/installed-test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	@mkdir -p .venv/types && ln -sfn ../.. .venv/types/lutterfly
	$(BIN)/mypy

cocotb: .venv/installed-test .venv/installed-synth
	$(PYTEST) --simulator=verilator -m cocotb -o faulthandler_timeout=$(REGRESS_TIME_LIMIT_S) $(PYTEST_OPTIONS)

# Components run in Verilator here. A share has all that `make test` does not do, except the few tests that take longest.
# With `=`, as pytest takes a word after an option for a path as long as it does not know the option.
regress: check .venv/installed-synth browser
	$(PYTEST) --simulator=verilator -o faulthandler_timeout=$(REGRESS_TIME_LIMIT_S) \
	    $(if $(SHARE),-m "(regress or demo_core or cocotb) and not long" --share=$(SHARE),-m "regress or not regress") $(PYTEST_OPTIONS)

# Resumes where it was ended; remove mutations.jsonl to begin anew.
mutations: .venv/installed-test .venv/installed-synth .venv/installed-train
	$(BIN)/python -m tools.mutation --jobs $(JOBS) $(MUTATIONS)

synth: .venv/installed-synth
	@$(BIN)/lutterfly synth --device ecp5-85k

bitstream: .venv/installed-synth
	@mkdir -p build
	@$(BIN)/lutterfly bitstream --board $(BOARD) -o build/$(BOARD).bit

# Says everything that is missing at once. `make` is in the list because the simulator is built with it under that name.
requirements:
	@missing=; \
	for program in g++ make perl; do command -v $$program >/dev/null || missing="$$missing\n  $$program"; done; \
	if ! command -v $(PYTHON) >/dev/null; then \
	    missing="$$missing\n  Python 3.11 or later (as $(PYTHON); another one: make PYTHON=python3.12)"; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    missing="$$missing\n  Python 3.11 or later ($(PYTHON) is older; another one: make PYTHON=python3.12)"; \
	elif ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	    missing="$$missing\n  Python's venv (on Debian and Ubuntu: apt install python3-venv)"; \
	fi; \
	if [ -n "$$missing" ]; then printf "Lutterfly needs, and this machine lacks:$$missing\n" >&2; exit 1; fi

# Reports are opened in Chromium. Where there is none, root gets it on Debian; elsewhere that test is skipped and says so.
browser:
	@for program in chromium chromium-browser google-chrome; do command -v $$program >/dev/null && exit; done; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "Installing Chromium, to open reports in: about a minute, once"; \
	    { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 400 \
	        apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true; \
	fi

# Order-only: the check runs every time, and does not by itself cause a new installation.
.venv/installed: pyproject.toml | requirements
	@echo "Setting up .venv: half a minute, once"
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --editable '.[report]'
	@touch $@

# All at once, also where the above is there: less is looked up than one after the other.
.venv/installed-test: pyproject.toml | requirements
	@echo "Setting up .venv for tests: about a minute, once"
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --editable '.[test]'
	@touch .venv/installed $@

.venv/installed-synth: pyproject.toml .venv/installed
	@$(PIP_INSTALL) --editable '.[synth,board]'
	@touch $@

# PyTorch first and alone, so that what needs it is content with the version that is there.
.venv/installed-train: pyproject.toml .venv/installed-test
	@echo "Setting up PyTorch in .venv: a minute or two, once"
	@$(PIP_INSTALL) '$(TORCH)'
	@$(PIP_INSTALL) --editable '.[train]'
	@touch $@

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
