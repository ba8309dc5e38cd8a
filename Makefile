# Two commands: `make check` judges a real engine, `make test` runs every test. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A machine with CUDA keeps whatever torch its user chose; elsewhere the CPU build is pinned, since the default
# wheel brings several gigabytes of CUDA libraries along.
CONSTRAINTS := $(if $(shell command -v nvidia-smi 2>/dev/null),,-c constraints-cpu.txt)

.PHONY: check test lint selftest docs clean

check: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/specverify check transformers

test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -q

selftest: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/specverify selftest

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/installed
	$(BIN)/python docs/generate.py

$(VENV)/installed: pyproject.toml constraints-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
