# Everything from a fresh clone: `make demo` shows it, `make test` proves it. scripts/setup installs what is missing,
# and does nothing when nothing has changed since.

PYTHON_ENV := .venv/bin/python
SOURCES := src tests bench scripts hatch_build.py
# Two more than there are processors: many tests wait for brokers, and leave theirs idle.
WORKERS := $(shell expr $$(nproc) + 2)
# In the order of tests/workorder.py.
PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# Tests start hundreds of brokers. Where Python writes no bytecode (PYTHONDONTWRITEBYTECODE), each would compile it all.
COMPILE := $(PYTHON_ENV) -m compileall -q $(SOURCES)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench clean distclean
.NOTPARALLEL:

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv and install what is missing, the system's packages included
	@scripts/setup test

demo: ## five cities as real brokers, troubles, what became of messages; STAY=1 leaves all running
	@scripts/setup demo
	@.venv/bin/overlane demo $(if $(STAY),--stay)

check: setup ## format, lint, strict types and fast tests
	@$(COMPILE)
	scripts/check-and-test $(SOURCES) -- -q $(PARALLEL) --hypothesis-profile quick -m "not slow"

test: setup ## all of check, and the slow tests
	@$(COMPILE)
	scripts/check-and-test $(SOURCES) -- -q $(PARALLEL)

format: setup ## put the code into its format, and mend what the linter can mend
	.venv/bin/ruff check --fix $(SOURCES)
	.venv/bin/ruff format $(SOURCES)

bench: setup ## run every benchmark in bench/
	@scripts/run-benchmarks

clean: ## remove caches and build output
	rm -rf build dist bench/out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too, as in a fresh clone
	rm -rf .venv
