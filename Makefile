# gleak: every target works from a fresh clone with Python 3.11+ and pip.
#   make figures  all figures of all studies (quick scale)   make test   ruff, snakefmt, mypy, pytest
#   make report   one HTML file with everything               make bench  timings, as JSON
#   make graph    the rule graph in docs/                     make setup  the environment alone

PYTHON ?= python3
CORES ?= all
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)

.PHONY: figures test setup report bench graph clean

figures: $(READY)
	$(SNAKEMAKE) $(ARGS)

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist loadfile $(ARGS)

setup: $(READY)

report: figures
	$(SNAKEMAKE) --report results/report.html $(ARGS)

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest benchmarks --benchmark-json=benchmarks/latest.json $(ARGS)

graph: $(READY)
	$(BIN)/python docs/draw_rulegraph.py docs/rulegraph.svg

$(READY): envs/requirements.lock pyproject.toml
	$(PYTHON) -c "import sys; sys.exit('gleak needs Python 3.11 or newer: make PYTHON=python3.12' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$$(grep '^torch==' envs/requirements.lock)"
	$(BIN)/pip install --quiet -r envs/requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

clean:
	rm -rf .venv .snakemake
