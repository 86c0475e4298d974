# The words that a person types in a clone. Everything runs in .venv, which run.py makes and keeps up to date.

# Letters of docs/requirements.md whose rules are done: each of them must have a test.
RULES = S I

BIN = .venv/bin
GATES = format lint types floors size phrases rooms states rules

.PHONY: help setup check test e2e crash heart bench run lock rooms-write states-write $(GATES)

help: ## say what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

setup: ## make the environment, once
	@python3 run.py setup

check: setup ## every gate short of the tests; all are run, whichever fails
	@$(MAKE) --no-print-directory --keep-going $(GATES)

test: ## all tests
	@python3 run.py test

e2e: ## only the tests on real agents, real clients and a real browser
	@python3 run.py test tests/e2e

crash: ## only the tests that kill real processes
	@python3 run.py test -m crash

heart: setup ## the heart at ten thousand histories, with every planted fault
	@HEART_HISTORIES=10000 python3 run.py test tests/core/test_machine.py

bench: setup ## the speed of Turns against plain Celery
	@$(BIN)/amux bench turns --json

run: ## the sandbox, with everything it needs
	@python3 run.py demo

lock: ## resolve uv.lock anew, from the public index alone
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS uv lock --no-config

rooms-write: ## write docs/rooms.md anew, from what the modules say
	@$(BIN)/python -m tests.gates.rooms --write

states-write: ## draw docs/states.md anew, from what the machine does
	@$(BIN)/python -m tests.gates.states --write

format:
	@$(BIN)/ruff format --check .

lint:
	@$(BIN)/ruff check .

types:
	@$(BIN)/mypy

floors:
	@$(BIN)/lint-imports --no-cache --no-logo

size:
	@$(BIN)/python -m tests.gates.size

phrases:
	@$(BIN)/python -m tests.gates.phrases

rooms:
	@$(BIN)/python -m tests.gates.rooms

states:
	@$(BIN)/python -m tests.gates.states

rules:
	@$(BIN)/python -m pytest -p no:cacheprovider --snapshot-warn-unused --rules --rules-due "$(RULES)"
