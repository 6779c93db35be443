# Everything runs in a virtual environment that these targets make themselves.
PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
STAMP = $(VENV)/.installed
BENCH = $(VENV)-bench/.installed
# Of packages, besides the usual one: PyTorch for processors alone saves gigabytes.
TORCH_INDEX ?=

.PHONY: demo test check lines docs bench clean

demo: $(STAMP)  ## train a small GPT on Python's own source for two minutes
	$(VENV)/bin/weft demo

# One worker a core; BLAS threads on top of that would wait for each other.
test: $(STAMP) check  ## run everything
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n auto

check: $(STAMP)  ## format, lint, types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

lines: $(STAMP)  ## scorecards: lines to read, lines to write, speed
	$(PY) tools/lines.py

bench: $(BENCH)  ## compare with PyTorch, JAX, tinygrad: make bench ARGS="--only mlp"
	$(VENV)-bench/bin/python -m benchmarks.suite $(ARGS)

$(BENCH): pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install -q -e ".[bench]" \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	touch $@

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
