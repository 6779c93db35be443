# Everything runs in a virtual environment that these targets make themselves.
PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
STAMP = $(VENV)/.installed

.PHONY: demo test check docs bench clean

demo: $(STAMP)  ## train a small GPT on Python's own source for two minutes
	$(VENV)/bin/weft demo

# One worker a core; BLAS threads on top of that would wait for each other.
test: $(STAMP) check  ## run everything
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n auto

check: $(STAMP)  ## format, lint, types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: $(STAMP)  ## compare with PyTorch (installs the peers into $(VENV)-bench)
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install -q -e . "torch==2.13.0"
	$(VENV)-bench/bin/python benchmarks/eager.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
