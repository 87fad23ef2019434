# Everything runs in a virtual environment inside the project; the only requirement is Python >= 3.10.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRA  ?= test
IMAGES := .venv-img2dataset

# The tests start thousands of processes: without bytecode each of them would compile every module.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-short install lint bench matrix matrix-native mutants fuzz chaos powercut soak verdicts audit clean \
	diagnostics.pyz https_inspection.whl

help:
	@echo "make demo    set up, then download 20,000 files from a TLS server on loopback"
	@echo "make test    set up, then run the tests (SLOW=1: the long ones too)"
	@echo "make test-short   a minute of them, for another Python (PYTHON=python3.13 VENV=.venv-other EXTRA=test-short)"
	@echo "make lint    set up, then check formatting, lint and types"
	@echo "make bench   set up, then measure this and others side by side (QUICK=1: three minutes; FRESH=1: anew)"
	@echo "make matrix-native   HTTPS on every Python of this machine, old and new packages (CELLS='stage-*')"
	@echo "make matrix          the same in containers; gets an engine where there is none and one can be had"
	@echo "make mutants         put known bugs back, one at a time, and see that a test catches each"
	@echo "make fuzz            five minutes of it; make chaos N=1000: kills; make powercut N=50: cuts"
	@echo "make soak            an hour at a constant rate with 1 % faults (MINUTES=60)"
	@echo "make verdicts        diagnoses of 300 healthy and 300 serial programs on a busy machine (N=300)"
	@echo "make diagnostics.pyz   the diagnostics as one file; make https_inspection.whl: what an application has of them"
	@echo "make audit           known vulnerabilities of what is installed"
	@echo "make clean           remove all that the others made"

VERSION := 'import sys; print("%d.%d" % sys.version_info[:2])'

# One that works stays: made anew by another Python of its version it would have parts of both.
$(STAMP): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@if $(BIN)/python -m pip --version > /dev/null 2>&1; then \
	  has=$$($(BIN)/python -c $(VERSION)); wanted=$$($(PYTHON) -c $(VERSION)); [ "$$has" = "$$wanted" ] || \
	  { echo "$(VENV) is of Python $$has; for $$wanted name another (VENV=.venv-$$wanted), or run: make clean"; exit 1; }; \
	else \
	  echo $(PYTHON) -m venv $(VENV); $(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRA)]'
	@touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m downloader demo

# The tests wait more than they compute: two processes per core. JOBS=0 runs them in this process. Adjacent tests
# stay together (worksteal), so that the set-up of a file is not repeated in every process.
test: $(STAMP)
	$(BIN)/python -m pytest -n $(or $(JOBS),$(shell expr 2 '*' $$(nproc))) --dist worksteal --durations=12 \
		-m 'not alone$(if $(SLOW),, and not slow)'
	$(BIN)/python -m pytest -n 0 -m 'alone$(if $(SLOW),, and not slow)'

# What depends on the version of Python most, in a minute, with few packages: for another one than that of `test`.
#     make test-short PYTHON=python3.13 VENV=.venv-other EXTRA=test-short
test-short: $(STAMP)
	$(BIN)/python -m pytest -n $(or $(JOBS),$(shell expr 2 '*' $$(nproc))) --dist worksteal -m 'not alone and not slow' \
		$(addprefix --ignore tests/unit/test_,known_mutants.py core_goodput.py supply_chain.py) tests/unit \
		tests/isolation tests/faults/test_tls_settings.py tests/integration/test_begun_before.py \
		tests/integration/test_inspection.py

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Has large dependencies, some of which lag behind the newest Python; without it, its cell is left out.
$(IMAGES)/bin/img2dataset:
	-$(PYTHON) -m venv $(IMAGES) && $(IMAGES)/bin/python -m pip install --quiet 'img2dataset >= 1.47'

bench: $(STAMP) $(if $(QUICK),,$(IMAGES)/bin/img2dataset)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(FRESH),--fresh)

matrix: $(STAMP)
	PYTHON=$(BIN)/python docker/matrix.sh $(CELLS)

matrix-native: $(STAMP)
	$(BIN)/python -m docker.native $(CELLS)

mutants: $(STAMP)
	$(BIN)/python tests/mutants/run.py $(if $(ONLY),--only $(ONLY))

fuzz: $(STAMP)
	FUZZ_SECONDS=$(or $(SECONDS),300) $(BIN)/python -m pytest -n 0 --timeout 900 tests/fuzz

chaos: $(STAMP)
	CHAOS=$(or $(N),1000) CHAOS_SHARDS=$(or $(N),1000) \
		$(BIN)/python -m pytest -n 0 -rP tests/faults/test_kill.py tests/faults/test_shard_kills.py

powercut: $(STAMP)
	POWERCUTS=$(or $(N),50) $(BIN)/python -m pytest -n 0 -rP tests/faults/test_powercut.py tests/faults/test_shard_powercut.py

soak: $(STAMP)
	$(BIN)/python tests/soak/soak.py --minutes $(or $(MINUTES),60)

verdicts: $(STAMP)
	$(BIN)/python tests/soak/verdicts.py --runs $(or $(N),300)

# Audits the installed packages with --strict: otherwise a package that is missing from the database, or a database
# that cannot be reached, would count as having no vulnerabilities.
# One file for any Python >= 3.10, without an installation.
diagnostics.pyz: $(STAMP)
	$(BIN)/python -m diagnostics.pack $@

# One file, https_inspection.py, for the environment of an application: any Python from 2.7 on.
https_inspection.whl: $(STAMP)
	$(BIN)/python -m diagnostics.pack --inspection build

audit: $(STAMP)
	$(BIN)/python -m pip install --quiet pip-audit
	mkdir -p build
	$(BIN)/python -m pip freeze --exclude-editable > build/audited.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r build/audited.txt || \
		{ echo "not audited, or with vulnerabilities: see above; where the database cannot be reached, nothing was audited"; exit 1; }

clean:
	rm -rf $(VENV) .venv-other $(IMAGES) *.egg-info build .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-files docker/.cache soak diagnostics.pyz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
