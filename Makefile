# What can be done with a checkout. Everything lands in .venv and .cache; the first use of a target sets up what it needs,
# by way of PyPI and npm, and a change of pyproject.toml sets it up again.

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# The module that runs tests. With `tools.repeat` failed tests are repeated alone.
PYTEST ?= pytest
# As in an activated environment: examples and tests start `gemel` by its name.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.NOTPARALLEL:
.PHONY: help demo test test-quick test-long check check-quick check-format check-lint check-mypy check-pyright check-shape shape conformance hostile reliability http-differential fuzz mutants load soak cluster interop interop-matrix interop-tests interop-auth interop-agents agent-clients agent-adapters bare-path extras bench bench-quick bench-page browser hosts coverage-ids site packages release-check newcomer pythons lowest migrate-servers all-checks format clean distclean

help:
	@echo "make demo          run examples/demo.py"
	@echo "make test          run the tests, two processes per processor; says which were skipped, and why; FILE=tests/… for one file or test"
	@echo "make test-quick    the tests that belong to what differs from main, without those that take long"
	@echo "make test-long     those that take many seconds: outages, processes that are killed, long documents, the built site, heavy load"
	@echo "make check         formatting, lint, types, layers, structure, public names; check-quick looks at the types of what differs from main"
	@echo "make shape         what the rules of structure find, files and lines of each folder, and the path of a call"
	@echo "make conformance   the official conformance suite against server and client (needs npm)"
	@echo "make hostile       some 2,300 malicious and malformed messages and requests against server and client, and what is taken from one server to another"
	@echo "make reliability   the same against servers of other SDKs, for docs/reliability.md; takes 20 minutes (needs npm)"
	@echo "make fuzz          coverage-guided fuzzing of what has no I/O, FUZZ_SECONDS=60 for each target (needs atheris)"
	@echo "make mutants       changes of the source that no test notices: MUTANTS=60 of them, chosen by SEED, which is the date; ends within 8 minutes"
	@echo "make http-differential  raw requests to Gemel's HTTP server, to others, and through nginx and haproxy"
	@echo "make load soak     streams, calls, slow readers, sessions on a server, with bounds on what it holds"
	@echo "make cluster       foreign clients on four processes behind haproxy that are killed meanwhile, over SQLite and Redis (needs npm, haproxy, redis-server), then two tenants on a store that is full, and one that loses writes; CLUSTER=--short for 40 s, CLUSTER='--seconds 600' for long"
	@echo "make interop       Gemel and foreign servers and clients with each other (needs npm); INTEROP=--short for current SDKs only"
	@echo "make interop-auth  logins at a real authorization server, with a browser and the official clients (needs npm, chromium)"
	@echo "make interop-agents  the MCP clients of agent frameworks on Gemel's server, their agents on Gemel's adapters (needs npm)"
	@echo "make extras        each extra alone in a clean environment: it is installed, and used once; EXTRAS='otel redis' for some"
	@echo "make bare-path     the tests in DIR=tests/server with no other program than those of Python and coreutils"
	@echo "make browser       the page of gemel dev in Chromium (needs chromium, npm); PICTURES=1 renews the pictures of the documentation"
	@echo "make hosts         Claude Code, Codex and Gemini CLI list and start what gemel install wrote, without a login (needs npm)"
	@echo "make bench         Gemel beside its peers; bench-quick takes 3 minutes, ceilings on functions, instructions and bytes included (needs valgrind)"
	@echo "make bench-page    how soon the page of gemel dev is painted (needs chromium)"
	@echo "make coverage-ids  which requirements the tests cite"
	@echo "make packages      the wheel, pipx, the sdist, zip applications, a frozen program, what commands write for others; used without the repository"
	@echo "make release-check what a release needs: the packages, built twice, looked at, installed, uploaded to an index on this machine (needs npm)"
	@echo "make pythons       the tests that depend on it on each supported Python of this machine; WHOLE=1 for all tests, VERSIONS=3.13 PART=servers for some"
	@echo "make lowest        the same tests with the lowest versions of the dependencies that pyproject.toml allows"
	@echo "make migrate-servers  published servers at fixed versions, migrated and compared with their originals; takes 30 minutes at first, 10 afterwards; SERVERS='mcp-server-time …' for some (needs git, redis-server)"
	@echo "make newcomer      types README, tutorial and how-tos as printed, with the wheel only; NEWCOMER=--short for the first two"
	@echo "make site          the documentation as a web site, in site/; the text for language models has a bound (needs npm)"
	@echo "make all-checks    everything above"
	@echo "make format        format and fix what can be fixed"
	@echo "make clean         remove what tools leave behind; distclean also .venv and .cache"

demo: .venv/.demo
	$(PY) examples/demo.py

# What the code looks like, as tests: `make check` runs them.
STRUCTURE := $(addprefix tests/test_,layering.py shape.py unfinished.py exports.py public_api.py dependencies.py)

FILE ?=
test: .venv/.test
	$(PY) -m $(PYTEST) -rs $(if $(FILE),"$(FILE)",-n auto --dist worksteal -m "not long" $(STRUCTURE:%=--ignore=%) --ignore=tests/browser)

test-quick: .venv/.test
	$(PY) -m tools.changed test $(STRUCTURE)

test-long: .venv/.test
	$(PY) -m $(PYTEST) -n auto --dist worksteal -rs -m long --ignore=tests/browser

check: check-format check-lint check-mypy check-pyright check-shape  # `make -k check` tells all that is wrong

check-quick: .venv/.check
	$(PY) -m tools.changed check $(STRUCTURE)

check-format: .venv/.check
	$(PY) -m ruff format --check

check-lint: .venv/.check
	$(PY) -m ruff check

check-mypy: .venv/.check
	$(PY) -m mypy

check-pyright: .venv/.check
	$(PY) -m pyright

check-shape: .venv/.check
	$(PY) -m $(PYTEST) -q $(STRUCTURE)

shape: .venv/.check
	$(PY) -m tools.shape
	$(PY) -m tools.call_path

conformance: .venv/.test
	$(PY) -m tests.conformance.run

all-checks: test test-long check shape demo conformance hostile http-differential fuzz mutants load soak cluster interop interop-agents browser hosts bench packages release-check extras newcomer pythons lowest migrate-servers coverage-ids

hostile: .venv/.test
	$(PY) -m tests.hostile.run
	$(PY) -m tests.hostile.clients
	$(PY) -m tests.hostile.neighbours

FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
fuzz: .venv/.test
	$(PIP) atheris
	mkdir -p .cache
	printf '%s\n' message server client head events values recording agreement | xargs -P 2 -I% sh -c '\
		PYTHONHASHSEED=$(FUZZ_SEED) $(PY) -m tests.fuzz.coverage % --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) > .cache/fuzz-%.log 2>&1 || { cat .cache/fuzz-%.log; exit 1; }; \
		echo "%: $$(tail -n 1 .cache/fuzz-%.log)"'

MUTANTS ?= 60
SEED ?=
mutants: .venv/.test
	$(PY) -m tools.mutants --count $(MUTANTS) $(SEED:%=--seed %)

http-differential: .venv/.test
	$(PIP) granian
	$(PY) -m tests.http_differential.run

load: .venv/.test
	$(PY) -m tests.load.run streams calls slow_readers hints pipelines sessions wrong_bodies wrong_bodies_by_schema wrong_results given_up given_up_stdio given_up_inside left_behind

soak: .venv/.test
	$(PY) -m tests.load.run soak

CLUSTER ?=
cluster: .venv/.test
	$(PY) -m tests.cluster.run $(CLUSTER)
	$(PY) -m tests.cluster.troubles

reliability: .venv/.test
	$(PY) -m tests.hostile.compare

interop: interop-matrix interop-tests interop-auth

INTEROP ?=
interop-matrix: .venv/.test  # installs the peers that interop-tests needs
	$(PY) -m tests.interop.run $(INTEROP)

interop-tests: .venv/.test
	REQUIRE_PEERS=1 $(PY) -m $(PYTEST) -n auto --dist loadfile -rs tests/proxy/test_chain.py tests/proxy/test_sse_peers.py tests/testing/test_foreign.py tests/migrate/test_originals.py tests/migrate/test_tables.py tests/migrate/test_lists.py tests/migrate/test_knowledge.py tests/interop/test_twins.py tests/interop/test_tasks.py tests/cluster/test_round_robin.py tests/docs/test_gateway_examples.py

interop-auth: .venv/.test
	$(PY) -m tests.interop.peers node peers examples > /dev/null
	REQUIRE_PEERS=1 $(PY) -m $(PYTEST) -n auto --dist loadfile -rs tests/auth/real tests/auth/client/test_providers.py

interop-agents: agent-clients agent-adapters

agent-clients: .venv/.demo
	$(PY) -m tests.interop.run --agents

AGENTS ?=
agent-adapters: .venv/.check
	$(PY) -m tests.adapters.run $(AGENTS)

bench: .venv/.test
	$(PY) -m benchmarks.run
	$(PY) -m benchmarks.scale

bench-quick: .venv/.test
	$(PY) -m benchmarks.ceilings
	$(PY) -m benchmarks.run --quick --check

bench-page: .venv/.test
	$(PIP) --group browser
	$(PY) -m benchmarks.page

coverage-ids: .venv/.demo
	$(PY) tools/requirement_coverage.py

PICTURES ?=
browser: .venv/.test
	$(PIP) --group browser
	npm install --silent --no-audit --no-fund --no-save --prefix .cache/browser axe-core@4.14.1
	$(PY) -m tests.interop.peers node peers fastmcp > /dev/null
	REQUIRE_BROWSER=1 PICTURES=$(PICTURES) $(PY) -m $(PYTEST) -n 2 --dist loadfile -rs tests/browser

HOST_PROGRAMS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 @google/gemini-cli@0.61.0
hosts: .venv/.test
	npm install --silent --no-audit --no-fund --no-save --prefix .cache/hosts $(HOST_PROGRAMS)
	REQUIRE_HOSTS=1 $(PY) -m $(PYTEST) -rs tests/install/test_host_programs.py

PACKAGES ?=
packages: .venv/.demo
	$(PY) -m tests.packages.run $(PACKAGES)

release-check: .venv/.test
	$(PIP) --group release
	$(PY) -m tools.release check

# Other Pythons are taken from PATH, pyenv, uv, and the variable PYTHONS (their programs, separated by colons).
WHOLE ?=
VERSIONS ?=
PART ?=
pythons: .venv/.test
	$(PY) -m tools.pythons $(VERSIONS) $(if $(WHOLE),--whole) $(PART:%=--part %)

lowest: .venv/.test
	$(PY) -m tools.pythons --lowest $(if $(WHOLE),--whole) $(PART:%=--part %)

DIR ?= tests/server
bare-path: .venv/.test
	PATH="$$($(PY) -m tests.programs .cache/programs)" $(PY) -m $(PYTEST) -n auto --dist worksteal -rs $(STRUCTURE:%=--ignore=%) $(DIR)

EXTRAS ?=
extras: .venv/.demo
	$(PY) -m tests.extras.run $(EXTRAS)

SERVERS ?=
migrate-servers: .venv/.test
	$(PY) -m tests.migrate_servers.run $(SERVERS)

NEWCOMER ?=
newcomer: .venv/.demo
	$(PY) -m tests.newcomer.run $(NEWCOMER)

site: .venv/.test
	$(PY) -m tools.site
	@echo "The pages are in site/. To read them: $(PY) -m http.server --bind 127.0.0.1 --directory site"

format: .venv/.check
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

clean:
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find src tests tools examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf .venv .cache

# One environment, and a stamp for each set of packages in it. `--group` needs a newer pip than Python 3.11 brings.
.venv/.made:
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade "pip>=25.1"
	@touch $@

.venv/.demo: .venv/.made pyproject.toml
	$(PIP) --editable .
	@touch $@

.venv/.test: .venv/.made pyproject.toml
	$(PIP) --editable . --group test
	@touch $@ .venv/.demo

.venv/.check: .venv/.made pyproject.toml
	$(PIP) --editable . --group check
	@touch $@ .venv/.test .venv/.demo
