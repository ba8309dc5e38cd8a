# Two commands: `make check` judges a real engine, `make test` runs every test. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A machine with CUDA keeps whatever torch its user chose; elsewhere the CPU build is pinned, since the default
# wheel brings several gigabytes of CUDA libraries along.
CONSTRAINTS := $(if $(shell command -v nvidia-smi 2>/dev/null),,-c constraints-cpu.txt)

.PHONY: check test lint selftest third-party docs clean

check: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/specverify check transformers

test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -q

selftest: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/specverify selftest

# Verify functions of other people's packages, which go into a folder of their own, without their dependencies.
third-party: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .third-party -r tests/third_party/packages.txt
	OMP_NUM_THREADS=1 SPECVERIFY_THIRD_PARTY=1 PYTHONPATH=.third-party $(BIN)/python -m pytest tests/third_party -q --durations=20

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
	rm -rf $(VENV) .third-party build *.egg-info
