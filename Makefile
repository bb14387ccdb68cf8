# gleak: every target works from a fresh clone with Python 3.11+ and pip.
#   make demo     photographs recovered from one gradient    make help          this list
#   make figures  all figures of all studies (quick scale)   make check         format, lint, types (make lint), unit tests
#   make report   one HTML file with everything              make test          that, contracts, examples, workflow
#   make graph    the rule graph in docs/                    make test-slow     the tests that it leaves out
#   make results  the pages of recorded runs in docs/        make test-all      all tests, Flower and fuzzing
#   make setup    the environment alone                      make test-slurm    on a SLURM of its own
#   make weights  the weights of LPIPS, downloaded           make test-flower   with Flower and FLARE, in an environment of their own
#   make bench    timings, and this machine's speed          make test-nightly  all of these, docs-check, rehearsals, report
#   make docs     the documentation in docs/_build/html      make docs-check    that, and each page opened in Chromium
#   make clean    deletes the environments                   make fuzz          INPUTS malformed artifacts read (default 100,000)
#   make gpu-check  a GPU's results against a CPU's, its speed and memory, in half an hour
#   make schemas  the JSON Schemas of studies, configuration, deployments and report.json, for editors

PYTHON ?= python3
CORES ?= all
ARGS ?=
INPUTS ?= 100000
STUDY ?= $(patsubst docs/results/%/,%,$(sort $(dir $(patsubst %/,%,$(dir $(wildcard docs/results/*/*/conditions.yaml))))))
EXTRAS :=
BIN := .venv/bin
LIBRARY := .venv/.library
READY := .venv/.ready
DOCS := .venv/.docs
SITE := docs/_build/html
FLOWER := .venv-flower
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
CONTRACTS := $(wildcard tests/*/test_*contract.py)
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n auto

.PHONY: schemas help demo figures lint check test test-slow test-all test-slurm test-flower test-nightly fuzz setup weights results report bench gpu-check graph docs docs-check clean

# The library with EXTRAS, in the versions of the lock file, in the folder of the target.
define install_library
	$(PYTHON) -c "import sys; sys.exit('gleak needs Python 3.11 or newer: make PYTHON=python3.12' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet "$$(grep '^torch==' envs/requirements.lock)"
	$(@D)/bin/pip install --quiet --constraint envs/requirements.lock --editable '.$(EXTRAS)'
endef

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

demo: $(LIBRARY)
	$(BIN)/gleak demo $(ARGS)

figures: $(READY)
	$(SNAKEMAKE) $(ARGS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy

check: lint
	$(PYTEST) --dist worksteal -m "not slow" --ignore tests/workflow --ignore tests/docs --ignore-glob "*contract.py" $(ARGS)

test: check
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m "not slow" $(CONTRACTS) tests/docs tests/workflow $(ARGS)

test-slow: $(READY)
	$(PYTEST) --dist loadfile -m slow $(ARGS)

test-all: lint
	HYPOTHESIS_PROFILE=thorough $(PYTEST) --dist loadfile $(ARGS)
	$(MAKE) test-flower fuzz

test-slurm: $(READY)
	$(BIN)/pytest tests/slurm -rs $(ARGS)

test-flower: BIN := $(FLOWER)/bin
test-flower: $(FLOWER)/.ready
	$(PYTEST) --dist worksteal tests/captures/frameworks tests/workflow/test_flower_guide.py $(ARGS)

test-nightly: docs-check test-all test-slurm report
	$(BIN)/gleak rehearse --scale paper
	$(SNAKEMAKE) --dry-run 2>&1 | awk '{ print } /Nothing to be done/ { nothing = 1 } END { exit !nothing }'

fuzz: $(READY)
	$(BIN)/pip install --quiet atheris==3.0.0
	$(BIN)/python tests/fuzz/run.py --inputs $(INPUTS) $(ARGS)

setup: $(READY)

schemas: $(READY)
	$(BIN)/python -m gleak.cli.json_schemas

weights: $(READY)
	$(BIN)/gleak weights

results: $(READY)
	$(foreach study,$(STUDY),$(BIN)/gleak results $(study) &&) true

report: figures
	$(SNAKEMAKE) --report results/report.html $(ARGS)

bench: $(READY)
	$(BIN)/gleak plan --measure
	OMP_NUM_THREADS=1 $(BIN)/pytest benchmarks --benchmark-json=benchmarks/latest.json $(ARGS)

gpu-check: $(READY)
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

graph: $(READY)
	$(BIN)/python docs/draw_rulegraph.py docs/rulegraph.svg

docs: $(DOCS)
	rm -rf docs/_build
	$(BIN)/python -m sphinx -W --keep-going -b html docs $(SITE)

docs-check: docs
	$(BIN)/python docs/check_site.py $(SITE)

$(LIBRARY): envs/requirements.lock pyproject.toml
	$(install_library)
	touch $@

$(READY): $(LIBRARY)
	$(BIN)/pip install --quiet --requirement envs/requirements.lock
	$(BIN)/python -m gleak.cli.json_schemas
	touch $@

$(DOCS): $(READY) envs/requirements-docs.lock
	$(BIN)/pip install --quiet --no-deps -r envs/requirements-docs.lock
	touch $(DOCS)

$(FLOWER)/.ready: EXTRAS := [flower,nvflare]
$(FLOWER)/.ready: envs/requirements.lock pyproject.toml
	$(install_library)
	$(@D)/bin/pip install --quiet --requirement envs/requirements.lock
	touch $@

clean:
	rm -rf .venv $(FLOWER) .snakemake
