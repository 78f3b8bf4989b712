# Two commands matter: `make demo` and `make test`. Each builds what it needs first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  ?= s3

.PHONY: install demo test lint bench clean

install: $(VENV)/.installed
$(VENV)/.installed: pyproject.toml setup.py $(wildcard aiostream_data/_native/*.pyx)
	@echo "== installing aiostream_data with its native core and all extras into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -c "from aiostream_data import _native as n; print('== native core:', 'built' if n.HAVE_NATIVE else 'NOT built (no C compiler?): running on the slower pure-Python twins')"
	@touch $@

demo: install
	@echo "== demo: TFRecord shards of real images, streamed from STORE=$(STORE) into a small model"
	@$(BIN)/python examples/quickstart/train.py --store $(STORE)

test: install
	@echo "== the whole test suite, with embedded S3 and GCS servers"
	@$(BIN)/python -m pytest

lint: install
	@echo "== ruff, mypy --strict, import contracts"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy aiostream_data tests examples
	@$(BIN)/lint-imports

bench: install
	@$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build dist *.egg-info aiostream_data/_native/*.c aiostream_data/_native/*.so
