# `make demo` shows the package, `make test` tests it; CONTRIBUTING.md lists what developers use. Each installs what it needs first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  ?= s3
EXAMPLES ?= 10
PLANS  ?= 1000
FIRST  ?= $(shell date +%s)
# Tests wait half of their time, so three of them run on two cores.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(8, 3 * (os.cpu_count() or 1) // 2))')
NATIVE := $(wildcard aiostream_data/_native/*.pyx aiostream_data/_native/*.pxd aiostream_data/_native/*.h)

.PHONY: install demo check lint quick test test-long test-cupy sanitize differential bench bench-environments clean

# Runs again only when the dependencies or the native core's sources have changed.
install: $(VENV)/.installed
$(VENV)/.installed: pyproject.toml setup.py $(NATIVE)
	@echo "== installing aiostream_data, its native core and all extras into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@$(BIN)/aiostream-data doctor --native
	@touch $@

demo: install
	@echo "== demo: PNG images in TFRecord shards, streamed from STORE=$(STORE) into a small model"
	@$(BIN)/python examples/quickstart/train.py --store $(STORE)

# Tests that measure time or memory, or end processes, run beside each other only.
test: install
	@echo "== the test suite, with S3 and GCS servers on this machine"
	@$(BIN)/python -m compileall -q aiostream_data tests # many tests start Python
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 25 --ignore tests/lifecycle
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile tests/lifecycle

# Without a GPU: names, signatures and kernels. Says so loudly where CuPy cannot be installed.
test-cupy: install
	@echo "== the device stage beside real CuPy, two major versions, and JAX"
	@$(BIN)/python .ci/test_cupy.py

# Static checks, several at a time.
check: install
	@echo "== format, lint, types, import contracts, links, spelling, tree, size, public names"
	@$(BIN)/python .ci/check.py

lint: check

# The unit tests of the rooms that differ from main.
quick: install
	@$(BIN)/python .ci/quick.py

# More draws of each property, and others than in a usual run; all cases of tests that have many.
test-long: install
	@echo "== slow tests with all of their cases, and $(EXAMPLES) times as many draws"
	@ASD_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile \
		tests/properties tests/fuzz tests/integration
	@ASD_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest --numprocesses 3 --dist loadfile tests/lifecycle

# The native core with checks of memory and of undefined behaviour: needs gcc on Linux.
sanitize: install
	@echo "== the native core under AddressSanitizer and UndefinedBehaviorSanitizer"
	@$(BIN)/python .ci/sanitize.py

# Random plans in tf.data and in this package, and tf.data's docstring examples. FIRST is the seed of the first plan.
differential: install .venv-bench/.installed
	@echo "== $(PLANS) new plans in tf.data and here, from seed $(FIRST)"
	@TF_CPP_MIN_LOG_LEVEL=3 PYTHONPATH=.:tests/properties .venv-bench/bin/python -m differential --plans $(PLANS) --first $(FIRST)
	@echo "== the examples in the docstrings of tf.data, in tf.data and here"
	@TF_CPP_MIN_LOG_LEVEL=3 PYTHONPATH=.:tests/properties .venv-bench/bin/python -m differential.docstrings

bench: install .venv-bench/.installed
	@echo "== benchmarks against other loaders: every one in its own process, taking turns"
	@.venv-bench/bin/python -m benchmarks.run

# One environment for each set of packages that exclude those of another; see benchmarks/README.md.
bench-environments: .venv-bench/.installed .venv-bench-clients/.installed .venv-bench-datasets/.installed .venv-bench-images/.installed .venv-bench-formats/.installed
.venv-bench/.installed: benchmarks/requirements.txt
.venv-bench-clients/.installed: benchmarks/requirements-clients.txt
.venv-bench-datasets/.installed: benchmarks/requirements-datasets.txt
.venv-bench-images/.installed: benchmarks/requirements-images.txt
.venv-bench-formats/.installed: benchmarks/requirements-formats.txt
.venv-bench/.installed .venv-bench-clients/.installed .venv-bench-datasets/.installed .venv-bench-images/.installed .venv-bench-formats/.installed: $(VENV)/.installed
	@echo "== installing $(filter benchmarks/%,$^) into $(@D)"
	@test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $(filter benchmarks/%,$^)
	@touch $@

clean:
	rm -rf $(VENV) .venv-cupy* build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f aiostream_data/_native/*.c aiostream_data/_native/*.so
