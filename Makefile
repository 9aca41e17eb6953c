# A short front for CMake: `make help` lists what it does. It writes only under build*/, except
# `make install` (PREFIX, DESTDIR) and `make format` (the sources).
# JOBS: how many compilers and tests run at the same time.
PREFIX ?= /usr/local
JOBS ?= 2
VENV = build-peers/venv
QUIET = sh scripts/quiet.sh
MAKEFLAGS += --no-print-directory

.NOTPARALLEL:
.PHONY: all demo test test-cuda test-peers bench-peers fuzz install asan format format-check clean help

all: ## check the dependencies, configure and build into build/
	@sh scripts/deps.sh build
	@cmake --preset cpu
	@cmake --build --preset cpu -j $(JOBS)

demo: ## build the program and run its demonstration
	@sh scripts/deps.sh build
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS) --target dro_cli
	@sh scripts/demo.sh

test: ## all tests, the fast ones again under the sanitizers, and the formatting
	@sh scripts/deps.sh test
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS)
	@$(QUIET) "test" ctest --preset cpu -j $(JOBS)
	@$(QUIET) "configure (sanitizers)" cmake --preset asan
	@$(QUIET) "build (sanitizers)" cmake --build --preset asan -j $(JOBS)
	@$(QUIET) "test (sanitizers, fast)" ctest --preset asan -j $(JOBS) -L fast
	@if command -v nvcc >/dev/null 2>&1; then $(MAKE) --no-print-directory test-cuda; fi
	@sh scripts/format.sh check

asan: ## all tests under the address and undefined-behaviour sanitizers
	@sh scripts/deps.sh test
	@$(QUIET) "configure (sanitizers)" cmake --preset asan
	@$(QUIET) "build (sanitizers)" cmake --build --preset asan -j $(JOBS)
	@$(QUIET) "test (sanitizers)" ctest --preset asan -j $(JOBS)

test-cuda: ## the cuda backend against the reference; needs nvcc, and an NVIDIA GPU for most of it
	@sh scripts/deps.sh test
	@$(QUIET) "configure (cuda)" cmake --preset cuda
	@$(QUIET) "build (cuda)" cmake --build --preset cuda -j $(JOBS)
	@$(QUIET) "test (cuda)" ctest --preset cuda -R "test_cuda|test_conv3"

fuzz: ## every parser's fuzz target for ten million inputs (RUNS=N for another number)
	@sh scripts/deps.sh test
	@JOBS=$(JOBS) sh scripts/fuzz.sh $(or $(RUNS),10000000)

test-peers: all $(VENV)/.done ## compare with the Python libraries of tests/peers
	@PYTHON="$(CURDIR)/$(VENV)/bin/python" DRO="$(CURDIR)/build/dro" sh tests/peers/run.sh

bench-peers: all $(VENV)/.done ## a training step against PyTorch's, interleaved
	@$(VENV)/bin/python tests/peers/step_speed.py build/dro

$(VENV)/.done: tests/peers/requirements.txt
	@sh scripts/deps.sh peers
	@python3 -m venv $(VENV)
	@$(QUIET) "pip install" $(VENV)/bin/python -m pip install -r tests/peers/requirements.txt
	@touch $@

install: all ## install under PREFIX (default /usr/local), staged in DESTDIR
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(abspath $(PREFIX))"

format: ## rewrite the tracked .c and .h files in the project's style
	@sh scripts/format.sh fix

format-check: ## say which tracked .c and .h files are not in the project's style
	@sh scripts/format.sh check

clean: ## remove every build folder
	@rm -rf build build-ref build-asan build-cuda build-peers build-fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | \
	  awk -F'|' '{ sub(/make all$$/, "make", $$1); printf "%-18s %s\n", $$1, $$2 }'
