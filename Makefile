# The two commands of the README, and what they are made of.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := cluster diagnosis probe audit stacks lab tools bench cli.py app.py

.PHONY: demo test setup doctor lint unit bench docs clean

## demo: a cluster on this machine, proven (set-up included). On a terminal it stays up until Ctrl-C
demo: setup
	@if test -t 0 && test -t 1; then $(BIN)/fullmesh demo --keep; else $(BIN)/fullmesh demo; fi

## test: everything that continuous integration checks
test: setup lint unit

## setup: install what the project needs into this checkout
setup: doctor
	@PYTHON=$(PYTHON) tools/setup.sh

## doctor: can this machine run the lab? (2 s, nothing is downloaded)
doctor:
	@$(PYTHON) -m lab.doctor --before-setup

## lint: style, types, import rules, shell, docs that are generated
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES)
	$(BIN)/vermin --quiet --no-tips --eval-annotations --violations --target=3.9- cluster diagnosis probe
	$(BIN)/lint-imports
	$(BIN)/shellcheck tools/*.sh userdata/*.sh .ci/run

## unit: the tests; the lab tests among them need namespaces and nft
unit: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest

## bench: the figures of the README, measured side by side on this machine
bench: setup
	$(BIN)/python -m bench

## docs: write again what is generated
docs: setup
	$(BIN)/python -m diagnosis.docs > docs/causes.md
	$(BIN)/python tools/configuration_page.py > docs/configuration.md
	$(BIN)/python tools/figures.py --write

## clean: remove what set-up and runs left in this checkout
clean:
	rm -rf .venv node_modules .fullmesh cdk.out cdk.out.* build *.egg-info
