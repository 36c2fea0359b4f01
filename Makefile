# One command each, the same here and in CI. `make demo` and `make test` need Python >= 3.11, no more.
PY := .venv/bin/python
READY := .venv/ready
.DEFAULT_GOAL := help
# uv trusts what this machine trusts (a company's proxy signs with a key of its own).
export UV_SYSTEM_CERTS := 1
export UV_NATIVE_TLS := 1

.PHONY: help demo test check test-real storm bench mutants docs constraints clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1|/p' Makefile | column -t -s '|' 2>/dev/null

$(READY): pyproject.toml constraints.txt scripts/venv
	@echo "making .venv (once)"
	@scripts/venv

# Other people's programs live in environments of their own; where one can't be made its tests skip.
CLIENTS := light inside train wandb torch skypilot tpunicorn tpucare ray
VENVS := PATH="$(CURDIR)/.venv/bin:$$PATH" PYTHON="$(CURDIR)/$(PY)" sh tests/integration/clients/make_venv.sh

demo: $(READY)  ## a training on a spot TPU pod is preempted and finishes all the same, on this machine
	@$(VENVS) inside || echo "JAX could not be installed: the demo goes on without"
	@$(PY) examples/demo/demo.py --offer .venv-clients/inside

# Most tests wait for processes most of the time: three files at once keep two cores busy.
WORKERS := 3
test: $(READY)  ## everything that runs on this machine as it is; ends with what was skipped and why
	@$(VENVS) light inside || echo "some clients could not be installed: their tests are skipped"
	@$(PY) -m pytest -m "not heavy" -n $(WORKERS) --dist loadfile $(ARGS)

check: $(READY)  ## lint, format, types, import contracts, house rules
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo --no-cache
	@$(PY) -m pytest tests/rules $(ARGS)

test-real: $(READY)  ## other people's heavy clients, each in an environment of its own
	@$(VENVS) $(CLIENTS) || true
	@$(PY) -m pytest -m heavy $(ARGS)

SEEDS := 200
storm: $(READY)  ## the engine: all single faults, PAIRS a lifecycle (300), SEEDS storms (200)
	@$(PY) -m tests.simulated.engine_storm --singles --pairs $(or $(PAIRS),300) --seeds $(SEEDS) $(ARGS)

bench: $(READY)  ## every figure that the README quotes
	@for file in bench/*.py; do $(PY) $$file || exit 1; done

mutants: $(READY)  ## small changes of the planner: do the tests notice them?
	@$(PY) scripts/mutants $(ARGS)

docs: $(READY)  ## write the generated pages of docs/reference
	@$(PY) docs/generate.py

constraints:  ## choose the newest versions anew (needs uv)
	@uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
	    --no-header --no-emit-index-url --no-annotate --output-file constraints.txt pyproject.toml

clean:  ## remove what these commands made
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
