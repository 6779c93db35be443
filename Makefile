# Everything runs in a virtual environment that these targets make themselves.
PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
STAMP = $(VENV)/.installed
DOCS = $(VENV)-docs/.installed
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

docs: $(DOCS)  ## the documentation and the API reference as a site
	$(VENV)-docs/bin/sphinx-build -q -W --keep-going -j auto docs build/docs
	@echo "open build/docs/index.html"

bench: $(BENCH)  ## compare with PyTorch, JAX, tinygrad: make bench ARGS="--only mlp"
	$(VENV)-bench/bin/python -m benchmarks.suite $(ARGS)

$(BENCH): pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install -q -e ".[bench]" \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	touch $@

$(DOCS): pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install -q -e ".[docs]"
	touch $@

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-docs $(VENV)-bench build docs/reference dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
