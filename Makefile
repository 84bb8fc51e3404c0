# What a developer does, one line each. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= auto

demo: .venv/.demo           ## set up, compile a GEMM, run the CUDA on the CPU and compare
	$(BIN)/tilec compile samples/article_gemm.py -o build/article_gemm.cu --header build/article_gemm.h
	$(BIN)/tilec run samples/article_gemm.py -q -D M=256 -D N=384 -D K=96
	@echo "build/article_gemm.cu is the CUDA file: read it, or compile it with nvcc -arch=sm_80 -c"

test: .venv/.dev            ## set up and run every test
	$(BIN)/python -m pytest -n $(JOBS) -q

check: .venv/.dev           ## types, lint, layers: the quick part of the tests
	$(BIN)/python -m pytest -q tests/house

samples: .venv/.demo        ## compile every sample
	for s in samples/*.py; do $(BIN)/tilec compile -q $$s -D M=256 -D N=256 -D K=128 -o build/$$(basename $$s .py).cu || exit 1; done

startup: .venv/.dev         ## how long tilec takes from the start of the process
	$(BIN)/python benchmarks/startup.py

gpu-check: .venv/.demo      ## on a machine with a GPU and CuPy: the bundle, both sample projects, launchers, Python functions
	$(BIN)/python benchmarks/make_bundle.py build/bundle
	$(PYTHON) build/bundle/check.py
	$(MAKE) -C samples/cpp_project TILEC=$(CURDIR)/$(BIN)/tilec run
	cmake -S samples/cmake_project -B build/cmake_project -DTILEC_EXECUTABLE=$(CURDIR)/$(BIN)/tilec
	cmake --build build/cmake_project && build/cmake_project/program && build/cmake_project/wide
	$(MAKE) -C benchmarks/launchers TILEC=$(CURDIR)/$(BIN)/tilec run
	$(BIN)/python benchmarks/python_callable.py --write build/callables
	$(PYTHON) benchmarks/python_callable.py --from build/callables

.venv/.demo: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e '.[cpu]'
	mkdir -p build && touch $@

.venv/.dev: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e '.[dev]'
	mkdir -p build && touch $@ .venv/.demo

gpu-bench: .venv/.demo      ## on a machine with a GPU, CuPy and torch: try bench and tune
	PYTHON=$(PYTHON) benchmarks/bench_and_tune.sh build/bench_and_tune

.PHONY: demo test check samples startup gpu-check gpu-bench
