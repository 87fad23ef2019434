# Everything happens in a virtual environment inside the project; all it takes is Python >= 3.10.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo test lint bench clean

help:
	@echo "make demo    set up, then download 20,000 files from a TLS server on loopback"
	@echo "make test    set up, then run the tests (SLOW=1: the long ones too)"
	@echo "make lint    set up, then check formatting, lint and types"
	@echo "make bench   set up, then measure this and others side by side (QUICK=1: three minutes; FRESH=1: anew)"
	@echo "make clean   remove all that the others made"

$(STAMP): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m downloader demo

test: $(STAMP)
	$(BIN)/python -m pytest $(if $(SLOW),,-m 'not slow')

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(FRESH),--fresh)

clean:
	rm -rf $(VENV) *.egg-info build .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-files
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
