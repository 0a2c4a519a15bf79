# Developer interface. `make demo` and `make test` set up what is missing; nothing is installed outside .venv/ (torch: .venv-torch/).
PYTHON ?= python3
VENV := .venv
TORCH := .venv-torch
BIN := $(VENV)/bin
OUT ?= report

.PHONY: help demo test test-slow test-torch lint wheel chart lock clean
help:
	@echo "make demo   run the trial on the embedded cluster (sim:healthy) and leave the report in $(OUT)/"
	@echo "make test   run the tests that take minutes"
	@echo "make test-slow  run the others: every scenario, the pages' commands, scheduled runs; CI runs both"
	@echo "make test-torch  run the bench's tests, on torch and gloo: fetches 2.3 GB and takes 4 GB of disk ($(TORCH)/)"
	@echo "make lint   ruff (format and rules) and mypy --strict"
	@echo "make wheel  build the wheels of the suite and of the lab into dist/; deploy/Containerfile takes the first"
	@echo "make chart  renew what the Helm chart takes over from the kustomizations"
	@echo "make lock   renew the lock files"

demo: $(VENV)/.runtime
	$(BIN)/python -m checks accept --cluster sim:healthy --out $(OUT)
	@echo "The report is in $(OUT)/: open $(OUT)/report.html in a browser; $(OUT)/report.json is for machines."

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 6 --dist worksteal -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 6 --dist worksteal -m slow $(ARGS)

# With another Python that has torch: SEATRIAL_TORCH_PYTHON=... make test-torch
test-torch: $(VENV)/.dev $(if $(SEATRIAL_TORCH_PYTHON),,$(TORCH)/.done)
	$(BIN)/python -m pytest -n 2 -m torch tests/pod $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check .
	$(BIN)/mypy

wheel: $(VENV)/.dev
	SEATRIAL_RELEASE=1 $(BIN)/python -m hatchling build -t wheel -d dist
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

# What torch needs only on a GPU, and is not linked with.
NOT_LINKED := triton nvidia-cusolver cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cuda-cccl nvidia-nvtx setuptools
lock: $(VENV)/.dev
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml lab/pyproject.toml -o requirements-lab.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml lab/pyproject.toml --group dev -o requirements-dev.lock
	$(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header --group torch $(NOT_LINKED:%=--no-emit-package %) -o requirements-torch.lock

clean:
	rm -rf $(VENV) $(TORCH) $(OUT) dist build .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: requirements-lab.lock | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-lab.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@ $(VENV)/.runtime

$(TORCH)/.done: requirements-torch.lock | $(VENV)/.dev
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(TORCH)
	$(BIN)/uv pip sync -q --require-hashes --cache-dir $(TORCH)/cache --python $(TORCH)/bin/python requirements-torch.lock
	@rm -rf $(TORCH)/cache
	@touch $@
