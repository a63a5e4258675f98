# Commands on a fresh machine that has make and Python 3.11 or newer:
#   make quickstart   fine-tune the embedded weights on the bundled support tickets
#   make test         style, types and tests
#   make fuzz         mutated files for every reader: make fuzz CASES=10000, or SECONDS=60 a reader
#   make test-faults  kills, disk errors, signals at each call that writes: make test-faults FAULTS=10
#   make test-kills   kill -9 at random moments, of pre-training and on Ray: make test-kills KILLS=20
#   make test-relatives  answers of random models of each kind beside transformers': CASES=2000
#   make test-parity  outputs and gradients beside transformers', for all sizes up to base
#   make test-mutations  change lines at random; do the tests notice? make test-mutations COUNT=50
#   make test-processors  the numeric tests as on processors with AVX2 alone, where this has more
#   make test-versions   the tests with the lowest and the newest PyTorch
#   make test-cuda    only the tests that need a CUDA device
#   make docs         the guides and the reference as a site, in site/
# All install into .venv once, and again only when pyproject.toml changes; make clean removes it.
# Another Python: make PYTHON=python3.12 quickstart
# Another PyTorch in .venv: make TORCH=torch==2.15.0 test (a newer one may bring gigabytes of CUDA)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is used at its first use; most of what comes along is never used.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# The release that is tested; one that is in .venv already stays.
TORCH ?= torch==2.13.0
# The commands that tests start find the package compiled, whatever the shell says of bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-processors fuzz test-tokens test-relatives test-faults test-kills test-parity \
    test-mutations test-versions tests-alone test-cuda docs clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

quickstart: $(VENV)/.installed
	@$(BIN)/tidybert quickstart

test: $(VENV)/.dev $(VENV)/.weights
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/check_types.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	$(MAKE) test-processors

# The numeric tests again, as on processors that have less (LESSER=default:SSE41 for the least).
# Where the processor itself has no more than AVX2, `make test` has run them so already.
LESSER ?= $(shell grep -qsw -e avx512f -e avx_vnni /proc/cpuinfo && echo avx2:AVX2_VNNI avx2:AVX2)
NUMERIC := tests/modeling/kernels tests/inference/test_answer_precision.py \
    tests/inference/test_opened_model.py tests/inference/test_zero_shot.py

# The same bits in training, in the estimator and in the opened RUN, where others multiply.
AVX2 := tests/modeling tests/inference tests/finetuning/test_train.py \
    tests/estimators/test_every_estimator.py

test-processors: $(VENV)/.dev $(VENV)/.weights
	for each in $(LESSER); do \
	    tests="$(NUMERIC)"; [ $$each != avx2:AVX2 ] || tests="$(AVX2)"; \
	    ATEN_CPU_CAPABILITY=$${each%:*} ONEDNN_MAX_CPU_ISA=$${each#*:} OMP_NUM_THREADS=1 \
	        $(BIN)/python -m pytest -q -n 2 --dist worksteal $$tests || exit 1; \
	done

CASES ?= 1000
SECONDS ?=

fuzz: $(VENV)/.dev
	TIDYBERT_FUZZ_CASES=$(if $(SECONDS),1000000000,$(CASES)) TIDYBERT_FUZZ_SECONDS=$(SECONDS) \
	    OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz

test-tokens: $(VENV)/.dev
	TIDYBERT_TOKEN_CASES=$(CASES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
	    tests/tokenization/test_library_tokenizer.py

test-relatives: $(VENV)/.dev
	TIDYBERT_RELATIVE_CASES=$(CASES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
	    tests/inference/test_beside_transformers.py

# Calls to try for each command and fault; all of them take hours.
FAULTS ?= all

test-faults: $(VENV)/.dev
	TIDYBERT_FAULTS=$(FAULTS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults

KILLS ?= 20

test-kills: $(VENV)/.dev
	TIDYBERT_KILLS=$(KILLS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
	    tests/pretraining/test_kills.py tests/cluster tests/cli/test_cluster.py

test-parity: $(VENV)/.dev
	TIDYBERT_PARITY=tiny,mini,small,medium,base $(BIN)/python -m pytest tests/modeling/test_parity.py

COUNT ?= 500
SEED ?= 0

test-mutations: $(VENV)/.dev $(VENV)/.weights
	$(BIN)/python tests/mutations.py --count $(COUNT) --seed $(SEED) \
	    --map mutations-map.json --out mutations.jsonl

# Lowest and newest; each in an environment of its own beside .venv.
VERSIONS ?= 2.12.0 2.15.0

test-versions:
	for version in $(VERSIONS); do \
	    $(MAKE) VENV=.venv-$$version TORCH=torch==$$version tests-alone || exit 1; \
	done

tests-alone: $(VENV)/.dev $(VENV)/.weights
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-cuda: $(VENV)/.dev
	$(BIN)/python -m pytest -m cuda

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "the guides and the reference are in site/index.html" >&2

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "tidybert needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	    echo "name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)
	@touch $@

PROJECT := pyproject.toml setup.py packaging/light/pyproject.toml

# A tidybert from before tidybert-light owns the command, and would take it along when it goes.
$(VENV)/.installed: $(PROJECT) | $(VENV)/.created
	@echo "installing tidybert and what it needs into $(VENV); the first time takes some minutes" >&2
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP_INSTALL) $(TORCH)
	@$(BIN)/python -c 'import importlib.metadata as m; m.version("tidybert-light")' 2>/dev/null || \
	    $(BIN)/python -m pip uninstall --quiet --yes tidybert 2>/dev/null
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(PROJECT) | $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(PROJECT) | $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

# The names, versions and hashes of weights stand in catalog.py.
$(VENV)/.weights: src/tidybert/catalog.py | $(VENV)/.installed
	$(BIN)/tidybert download minilm
	@touch $@

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
