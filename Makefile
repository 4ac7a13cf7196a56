# Two commands matter: `make up` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Starts take ten times as long when Python may not keep its compiled modules.
unexport PYTHONDONTWRITEBYTECODE

ifdef CI
# Other work on the machine can starve a test, so a failed one runs once more. pytest prints the failed try.
export PYTEST_ADDOPTS := --reruns 1 --rerun-exclude-path=tests/core --rerun-show-tracebacks -rsR $(PYTEST_ADDOPTS)
endif

UV_VERSION = 0.13.8
BIN = .venv/bin
DIST = build/dist
NODE_MODULES = frontend/node_modules/.installed
FRONTEND_SOURCES = $(shell find frontend/src frontend/public frontend/index.html frontend/docs.html -type f 2>/dev/null) \
  frontend/vite.config.ts frontend/tsconfig.json

.PHONY: up papers test check test-python test-backend test-agent test-frontend test-browser lab-test lab-up bench-agent bench-ingest bench-history bench-fleet bench-policies bench-experiments bench-proof bench-simulation bench-steering bench-tune bench-attacks bench-crash bench-faults bench-upgrade bench-fuzz bench-pages dist packages test-packages test-first-hour docs types lock format clean

up: .venv/.installed frontend/dist/.built  ## start everything on this machine; Ctrl-C stops it
	@exec $(BIN)/coresteer up

papers: .venv/.installed  ## repeat the papers' measurements here, about 45 min; ARGUMENTS="--quick --to FILE.md"
	@exec $(BIN)/coresteer papers $(ARGUMENTS)

test: check test-python test-frontend test-browser lab-test  ## everything that CI runs

check: .venv/.installed $(NODE_MODULES)  ## formatting, lint and types, Python and TypeScript
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/hadolint agent/Dockerfile backend/Dockerfile
	cd frontend && npm run --silent check
	@$(MAKE) --silent docs
	@$(MAKE) --silent types && git diff --exit-code --stat -- frontend/src/api backend/coresteer/cli/operations.json || \
	  { echo "frontend/src/api or cli/operations.json is not what the backend's API, the settings, the metrics and the constants say: run 'make types' and commit it."; exit 1; }

test-python: .venv/.installed  ## in two halves at once: the backend's wait for a database, the others compute
	@$(MAKE) --silent --jobs 2 --output-sync=target test-backend test-agent

test-backend:
	$(BIN)/pytest --durations=5 --numprocesses 2 --dist loadfile tests/backend

test-agent:
	$(BIN)/pytest --durations=5 --ignore tests/lab --ignore tests/backend

test-frontend: $(NODE_MODULES)
	cd frontend && npm run --silent test

test-browser: .venv/.installed frontend/dist/.built
	@tests/e2e/run

lab-test: .venv/.installed frontend/dist/.built  ## virtual machines with NUMA nodes and multi-queue NICs
	@tests/lab/run

lab-up: .venv/.installed frontend/dist/.built  ## one of them in the browser: MACHINE=two_socket|small_vm|trio TRAFFIC=udp|tcp|request
	@exec $(BIN)/python -m tests.lab.up $(or $(MACHINE),two_socket) $(if $(TRAFFIC),--traffic $(TRAFFIC))

bench-agent: .venv/.installed  ## the agent's CPU and memory, here and on a large captured tree
	$(BIN)/python -m tests.bench.bench_agent

bench-ingest: .venv/.installed  ## 1,000 and 5,000 simulated nodes into one backend
	$(BIN)/python -m tests.bench.bench_ingest

bench-history: .venv/.installed  ## a heat map while idle and beside ingest, and bytes of samples beside their entropy
	$(BIN)/python -m tests.bench.bench_history
	$(BIN)/python -m tests.bench.bench_entropy

bench-fleet: .venv/.installed  ## 1, 2 and 4 backends with NATS: CPU a sample, latency of samples and commands across; ARGUMENTS="--nodes 100"
	$(BIN)/python -m tests.bench.bench_fleet $(ARGUMENTS)

bench-policies: .venv/.installed  ## how near the best network-process places, and what a round of the policies costs
	$(BIN)/python -m tests.bench.bench_policies

bench-crash: .venv/.installed  ## 1,000 kills of backend, database and agent: what is lost
	$(BIN)/python -m tests.bench.bench_crash $(ARGUMENTS)

bench-upgrade: .venv/.installed  ## 200 nodes of the previous release are upgraded during a rollout; ARGUMENTS="--nodes 20 --groups 4"
	$(BIN)/python -m tests.bench.bench_upgrade $(ARGUMENTS)

bench-faults: .venv/.installed  ## kills, freezes and partitions of replicas, NATS and database: what is lost; takes 50 min
	$(BIN)/python -m tests.bench.bench_faults $(ARGUMENTS)

bench-steering: .venv/.installed  ## CPU time a gigabit over a veth pair under RPS, RFS and flow-steering, as root; ARGUMENTS="--blocks 12"
	$(BIN)/python -m tests.bench.bench_steering $(ARGUMENTS)

bench-tune: .venv/.installed  ## how near the best setting a tune comes, next to random search and successive halving
	$(BIN)/python -m tests.bench.bench_tune

bench-experiments: .venv/.installed  ## how often experiments find a difference where none is, and one of 10 %
	$(BIN)/python -m tests.bench.bench_false_alarms

bench-proof: .venv/.installed  ## how often the proof of policies finds an effect where none is, and how soon a planted one
	$(BIN)/python -m tests.bench.bench_proof

bench-simulation: .venv/.installed  ## events per second of the coscheduling simulation, and all 24 schemes at quick scale
	$(BIN)/python -m tests.bench.bench_simulation
	$(BIN)/coresteer simulation run --quick --schemes all --seeds 3

bench-attacks: .venv/.installed  ## floods of every peer, with an honest client beside; ARGUMENTS="--seconds 10 --only NAME"
	$(BIN)/python -m tests.bench.bench_attacks $(ARGUMENTS)

bench-fuzz: .venv/.installed  ## mutated inputs of every parser of untrusted data: how many exceptions are unexpected
	$(BIN)/python -m tests.bench.bench_fuzz_frames
	$(BIN)/python -m tests.bench.bench_fuzz_gate
	$(BIN)/python -m tests.bench.bench_fuzz_parsers

bench-pages: .venv/.installed frontend/dist/.built  ## FCP, CLS, longest task, requests, bytes and heap of each page; MINUTES=10 ONLY=^node
	@MINUTES=$(or $(MINUTES),1) tests/e2e/run figures.test.ts --silent=false --disable-console-intercept

dist: .venv/.installed frontend/dist/.built  ## the wheels of all distributions; the same commit gives the same bytes
	rm -rf $(DIST)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
	  $(BIN)/uv build --quiet --all-packages --wheel --no-build-isolation --python $(BIN)/python --out-dir $(DIST)

docs: .venv/.installed  ## the documentation as a site in build/site; a broken link is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs . build/site

packages: dist  ## deb and rpm of agent and backend, beside the wheels; RELEASE=2 for others of the same version
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
	  $(BIN)/python packaging/packages/build.py $(DIST) build/packages --release $(or $(RELEASE),1)

test-first-hour: packages  ## every command of docs/FIRST_HOUR.md on four clean Debian systems; as root, about 10 minutes
	@tests/packaging/run first_hour.py

test-packages: packages  ## install, upgrade, remove and purge them in a clean Debian 12, and boot it; as root, about 10 minutes
	@tests/packaging/run cycle.py

types: .venv/.installed $(NODE_MODULES)  ## the front end's API types, kinds of settings, metrics, constants and bounds, and the commands of the API, from the backend's OpenAPI and the core
	@mkdir -p build
	@$(BIN)/python -m coresteer.telemetry.metrics_ts > build/metrics.ts
	@$(BIN)/coresteer openapi > build/openapi.json && cd frontend && npm run --silent types > /dev/null
	@$(BIN)/python -m coresteer.cli.constants_ts build/openapi.json > build/constants.ts
	@$(BIN)/python -m coresteer.cli.operations build/openapi.json > build/operations.json
	@mv build/operations.json backend/coresteer/cli/
	@$(BIN)/python -c 'from coresteer_core.settings import schema; print(schema.kinds_as_json())' > build/settings.json
	@mv build/metrics.ts build/constants.ts build/settings.json frontend/src/api/

format: .venv/.installed $(NODE_MODULES)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cd frontend && npx biome check --write .

lock: .venv/.installed  ## newer versions of the Python packages
	$(BIN)/uv pip compile --quiet --universal --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-emit-package coresteer-agent --no-emit-package coresteer-core --python-version 3.11 --group pyproject.toml:dev --extra embedded --extra otlp --extra pdf --extra simulation \
	  agent/coresteer-core/pyproject.toml agent/pyproject.toml backend/pyproject.toml --output-file requirements.lock

clean:  ## what make made, but not the state of a running installation
	rm -rf .venv build frontend/node_modules frontend/dist

.venv/.installed: requirements.lock agent/pyproject.toml agent/coresteer_agent/version.py agent/coresteer-core/pyproject.toml agent/coresteer-gate/pyproject.toml backend/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Coresteer needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps \
	  --editable agent/coresteer-core --editable agent/coresteer-gate --editable agent --editable backend
	@touch $@

$(NODE_MODULES): frontend/package-lock.json frontend/package.json
	@node -e 'const [a, b] = process.versions.node.split(".").map(Number); if (!(a === 20 && b >= 19 || a === 22 && b >= 12 || a > 22)) process.exit(1)' || \
	  { echo "Coresteer's front end needs Node.js 20.19 or a newer 20, or 22.12 or newer."; exit 1; }
	cd frontend && npm ci --silent
	@touch $@

frontend/dist/.built: $(NODE_MODULES) $(FRONTEND_SOURCES)
	cd frontend && npm run --silent build
	@touch $@
