# The same commands locally and in CI. `make demo` and `make test` need only Python >= 3.11.
PY := .venv/bin/python
READY := .venv/ready
.DEFAULT_GOAL := help
# Make uv trust this machine's certificates (a company proxy may sign with its own key).
export UV_SYSTEM_CERTS := 1
# Tests start hundreds of programs: what Python compiles once, no other process compiles again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test near accept budgets test-long check test-real storm abuse bench bench-page mutants docs site wheel release \
	screenshots constraints clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1|/p' Makefile | column -t -s '|' 2>/dev/null

$(READY): pyproject.toml constraints.txt scripts/venv
	@echo "creating .venv (once)"
	@scripts/venv

# Clients of other projects get environments of their own; without one, its tests are skipped.
CLIENTS := light inside train wandb torch tfds skypilot tpunicorn tpucare ray
VENVS := PATH="$(CURDIR)/.venv/bin:$$PATH" PYTHON="$(CURDIR)/$(PY)" sh tests/integration/clients/make_venv.sh

demo: $(READY)  ## a training job loses its simulated spot TPUs and still finishes
	@$(VENVS) inside || echo "JAX could not be installed: the demo runs without it"
	@$(PY) examples/demo/demo.py --offer .venv-clients/inside

# Tests mostly wait for processes: five files at once keep two cores busy.
WORKERS := 5
# The tests that `make test` runs, by their marks; `.ci/run` includes the long ones.
TIERS := not long and not heavy
# Nothing that tests start outlives them, nor this make.
RUN := exec $(PY) tests/supervise.py $(PY)
TESTS := $(RUN) -m pytest --ignore=tests/rules --ignore=tests/site -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(READY)  ## all tests of minutes that this machine can run; lists what was skipped and why
	@$(VENVS) light inside || echo "some clients could not be installed: their tests are skipped"
	@$(TESTS) -m "$(TIERS)" $(ARGS)

near: $(READY)  ## the short tests that import what `git diff` touched, or what changed since BASE=REVISION
	@$(RUN) scripts/near.py $(or $(BASE),HEAD) $(PY) -m pytest -n $(WORKERS) --dist loadfile -m "$(TIERS)" $(ARGS)

# The tests that compare what commands print with files in tests/scenarios/cli.
GOLDEN := $(addprefix tests/simulated/,test_help_pages.py test_wrong_commands.py test_command_output.py)
accept: $(READY)  ## write what commands print into tests/scenarios/cli; read the diff before you commit it
	@HERD_ACCEPT=1 $(PY) -m pytest $(GOLDEN) -n 2 $(ARGS)
	@git status --short tests/scenarios/cli

budgets: $(READY)  ## lower the numbers of tests/rules/budgets.toml to what is there
	@$(PY) -m tests.rules.budgets

test-long: $(READY)  ## the longer tests (tests/tiers.py), which .ci/run runs too
	@$(VENVS) light inside || echo "some clients could not be installed: their tests are skipped"
	@$(TESTS) -m "long and not heavy" $(ARGS)

check: $(READY)  ## lint, format, types, import layers, repository rules
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo --no-cache
	@$(PY) -m pytest tests/rules $(ARGS)

test-real: $(READY)  ## heavy clients of other projects, and repeats that are too long for CI
	@$(VENVS) $(CLIENTS) || true
	@$(RUN) -m pytest --ignore=tests/site -m heavy $(ARGS)

SEEDS := 200
storm: $(READY)  ## fault histories: all single faults, PAIRS per lifecycle (300), SEEDS storms (200)
	@$(PY) -m tests.simulated.engine_storm --singles --pairs $(or $(PAIRS),300) --seeds $(SEEDS) $(ARGS)

FUZZ := 10000
KILLS := 500
DAYS := 31
abuse: $(READY)  ## FUZZ altered answers and messages (10000), hostile words everywhere, DAYS of storms (31), 50 pauses of leaders, KILLS real kill -9 (500)
	@$(PY) -m tests.simulated.fuzz_answers $(FUZZ)
	@$(PY) -m tests.simulated.fuzz_messages $(FUZZ)
	@$(PY) -m tests.simulated.engine_months --days $(DAYS)
	@HERD_HOSTILE=all $(PY) -m pytest -q tests/simulated/test_hostile_commands.py
	@export HERD_LAB_PAUSES=50; $(RUN) -m pytest -q tests/integration/test_lab_pauses.py
	@$(PY) -m tests.integration.real_faults --faults $(KILLS) $(ARGS)
	@$(PY) -m tests.integration.real_faults --faults 60 --kinds cut,lock,engine $(ARGS)

bench: $(READY)  ## run the benchmarks, all or ONLY="exec sync", and write docs/benchmarks.md
	@$(VENVS) fanout inside train tpucare || echo "some clients could not be installed: results lack them"
	@$(PY) bench/run.py $(ONLY); status=$$?; $(PY) -m bench.page && exit $$status

bench-page: $(READY)  ## write docs/benchmarks.md from the results that there are
	@$(PY) -m bench.page

mutants: $(READY)  ## mutation tests of the pure packages: do the unit tests notice small changes?
	@$(PY) scripts/mutants $(ARGS)

docs: $(READY)  ## generate the pages of docs/reference
	@$(PY) docs/generate.py

site: $(READY)  ## build the documentation site into build/site/html, and test its links and search
	@scripts/site
	@$(PY) -m pytest tests/site $(ARGS)
	@echo "build/site/html: show it with $(PY) -m http.server -d build/site/html"

wheel: $(READY)  ## build the wheel and the source archive into dist/
	@rm -rf dist
	@$(PY) -m hatchling build
	@$(PY) -m pytest tests/rules/test_wheel.py $(ARGS)

release: $(READY)  ## everything that a release needs, as far as a machine can do it; uploads nothing
	@scripts/release

screenshots: $(READY)  ## take the pictures of the page that the docs show (needs chromium)
	@$(PY) scripts/screenshots $(ARGS)

constraints:  ## update the pinned dependencies (needs uv)
	@uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --extra site \
	    --no-header --no-emit-index-url --no-annotate --output-file constraints.txt pyproject.toml

clean:  ## remove everything that these commands created
	@rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
