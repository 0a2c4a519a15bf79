# Developer interface. `make demo` and `make test` set up what is missing; nothing is installed outside .venv/ (torch: .venv-torch/).
# `make PYTHON=python3.12 demo` chooses; what the environment calls so is meant for another program.
ifeq ($(origin PYTHON),environment)
NOT_TAKEN := ; the PYTHON of the environment is not taken, make PYTHON=... is
endif
PYTHON := python3
VENV := .venv
TORCH := .venv-torch
BIN := $(VENV)/bin
OUT := report
ARGS :=
unexport PYTHONHOME PYTHONPATH  # packages come from .venv/ alone

.PHONY: help demo test test-slow test-torch test-real lint faults wheel chart lock clean
help:
	@echo "make demo       run the trial on the embedded cluster (sim:healthy) and leave the report in $(OUT)/"
	@echo "make test       run the quick half of the tests, minutes; ARGS=... goes to pytest: ARGS=tests/logs"
	@echo "make test-slow  run the others, twice as long: every scenario, the pages' commands, scheduled runs; CI runs both"
	@echo "make test-torch  run the bench's tests, on torch and gloo: fetches 2.3 GB and takes 4 GB of disk ($(TORCH)/)"
	@echo "make test-real  build a real Kubernetes and run tests on it, with Go: MINOR=1.37 chooses which; on a cluster that"
	@echo "                is there: CLUSTER=KUBECONFIG, and REGISTRY=... where it pulls the images from; ARGS=\"-k cronjob\""
	@echo "make lint       ruff (format and rules) and mypy --strict"
	@echo "make faults     write what the pods get of the fault catalogue: seatrial/logs/reader/events/symptoms.json"
	@echo "make wheel      build the wheels of the suite and of the lab into dist/; deploy/Containerfile takes the first"
	@echo "make chart      renew what the Helm chart takes over from the kustomizations"
	@echo "make lock       renew the lock files"
	@echo "make clean      remove .venv/, the report and what was built"
	@echo "PYTHON=python3.12 behind make chooses the Python of .venv/"

demo: $(VENV)/.runtime
	@echo "Starting the embedded cluster, and the trial on it: about ten seconds, on a busy machine a minute."
	$(BIN)/python -m checks accept --cluster sim:healthy --out "$(OUT)"
	@echo "The report is in $(OUT)/: open $(OUT)/report.html in a browser; $(OUT)/report.json is for machines."

test: $(VENV)/.dev
	@echo "The quick half of the tests: rules, log reader, embedded cluster, some whole trials. On two idle cores three to four"
	@echo "minutes, less on more. No root, network, GPU or cluster is needed; what is left out, and why, is said at the end."
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow" $(ARGS)
	@echo "make test-slow runs the others: every scenario and command of the pages, about ten minutes on two idle cores."

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m slow $(ARGS)

# With another Python that has torch: SEATRIAL_TORCH_PYTHON=... make test-torch
test-torch: $(VENV)/.dev $(if $(SEATRIAL_TORCH_PYTHON),,$(TORCH)/.done)
	$(BIN)/python -m pytest -n 2 -m torch tests/pod $(ARGS)

# Everything is in .real/. Another cluster's nodes must offer what tests/real_cluster/kind.py gives its own.
MINOR :=
CLUSTER :=
REGISTRY :=
test-real: export SEATRIAL_REAL_REGISTRY := $(REGISTRY)
test-real: $(VENV)/.dev
	$(BIN)/python -m tests.real_cluster $(MINOR:%=--minor %) $(CLUSTER:%=--kubeconfig %) $(if $(PAGE),--page) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check .
	$(BIN)/mypy

faults: $(VENV)/.dev
	$(BIN)/python -m seatrial.faults

wheel: $(VENV)/.dev
	$(BIN)/python -m hatchling build -t wheel -d dist
	cd lab && ../$(BIN)/python -m hatchling build -t wheel -d ../dist

FILES := deploy/helm/seatrial/files
RBAC := $(BIN)/python -m checks rbac --cron --namespace release-namespace --profile deploy/base/profile.yaml
chart: $(VENV)/.runtime
	cp deploy/base/cronjob.yaml deploy/serve/serve.yaml $(FILES)
	cp deploy/overlays/cluster/priorityclass.yaml deploy/overlays/results-pvc/claim.yaml $(FILES)
	$(RBAC) --tenant >$(FILES)/rights-tenant.yaml
	$(RBAC) --tenant --queue kueue:any >$(FILES)/rights-tenant-kueue.yaml
	$(RBAC) --cluster >$(FILES)/rights-cluster.yaml
	$(RBAC) --cluster --queue kueue:any >$(FILES)/rights-cluster-kueue.yaml
	$(RBAC) --cluster --new-nodes any >$(FILES)/rights-cluster-new-nodes.yaml

# What torch needs only on a GPU, and is not linked with.
NOT_LINKED := triton nvidia-cusolver cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cuda-cccl nvidia-nvtx setuptools
lock: $(VENV)/.dev
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml lab/pyproject.toml -o requirements-lab.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml lab/pyproject.toml --group dev -o requirements-dev.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header --group torch $(NOT_LINKED:%=--no-emit-package %) -o requirements-torch.lock

clean:
	rm -rf $(VENV) $(TORCH) $(OUT) dist build .pytest_cache .mypy_cache .ruff_cache

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "Setting up $(VENV)/ with $$($(PYTHON) --version)$(NOT_TAKEN)."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# pip warns of a cache that it cannot write or does not own: there it gets none. Some sites set PIP_USER, which no .venv/ allows.
define install
@echo "Installing $(words $(shell grep -o '^[a-z][^ ]*==' $<)) packages into $(VENV)/, as $< has them: a minute or two."
@home=$${XDG_CACHE_HOME:-$$HOME}; test -O "$$home" && test -w "$$home" || without=--no-cache-dir; \
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-user $$without --require-hashes -r $<
endef

$(VENV)/.runtime: requirements-lab.lock | $(BIN)/pip
	$(install)
	@touch $@

$(VENV)/.dev: requirements-dev.lock | $(BIN)/pip
	$(install)
	@touch $@ $(VENV)/.runtime

$(TORCH)/.done: requirements-torch.lock | $(VENV)/.dev
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(TORCH)
	$(BIN)/uv pip sync -q --require-hashes --cache-dir $(TORCH)/cache --python $(TORCH)/bin/python requirements-torch.lock
	@rm -rf $(TORCH)/cache
	@touch $@
