# The first target sets a bare machine up; nothing changed means seconds.
#   make build test demo bench docs fuzz wheel check format stubs clean
#   PYTHON=python3.12 make build       JOBS=8 make build

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.SUFFIXES:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMPS := $(VENV)/stamps
JOBS ?= $(shell nproc)
# A terminal shows the progress of the build; a log needs only what went wrong.
NINJA_FLAGS := $(if $(CI),-- --quiet)
FUZZ_SECONDS ?= 60
SHADOW_TESTS ?= *
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: setup prepare package build test test-cpp test-python build-asan build-tsan test-asan \
        test-tsan build-races test-races build-portable test-portable build-libcxx \
        test-libcxx nightly build-aarch64 test-aarch64 test-shadow coverage demo bench docs fuzz \
        wheel test-wheel check format stubs clean

setup:
	@tools/setup

$(PY): | setup ;

# One stamp an extra or dependency group: its requirements are installed again when pyproject.toml changes.
$(STAMPS)/extra-%: pyproject.toml tools/install_requirements.py | setup
	@mkdir -p $(STAMPS)
	@echo "python packages: $*"
	@$(PY) tools/install_requirements.py $(filter-out build,$*)
	@touch $@

build/dev/build.ninja: CMakePresets.json | $(STAMPS)/extra-build
	@cmake --preset dev -DPython_EXECUTABLE=$(CURDIR)/$(PY) --log-level=WARNING
	@touch $@

$(STAMPS)/install: pyproject.toml tools/install_dev.py | $(STAMPS)/extra-build
	@mkdir -p $(STAMPS)
	@$(PY) tools/install_dev.py build/dev
	@touch $@

build: prepare
	@cmake --build build/dev $(NINJA_FLAGS)

# What Python and the command line need, without tests and examples.
package: prepare
	@cmake --build build/dev --target _core headrace_cli $(NINJA_FLAGS)

prepare: $(STAMPS)/extra-build build/dev/build.ninja $(STAMPS)/install

test: check test-cpp test-python

test-cpp: build
	@ctest --preset dev -j $(JOBS)

test-python: build $(STAMPS)/extra-test $(STAMPS)/extra-frameworks
	@$(PY) -m pytest $(PYTEST_ARGS)

build-asan build-tsan: build-%: $(STAMPS)/extra-build
	@cmake --preset $* --log-level=WARNING
	@cmake --build build/$* $(NINJA_FLAGS)

test-asan test-tsan: test-%: build-%
	@$(if $(filter tsan,$*),$(NO_ASLR)) ctest --preset $* -j $(JOBS)

# A kernel with 32 bits of address randomness (vm.mmap_rnd_bits) puts memory where the run time of
# GCC 12 cannot have it: there without randomness.
NO_ASLR := $(shell [ "$$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -le 28 ] || echo "setarch -R")

# What of test-tsan fits into continuous integration: tests/races.cmake.
build-races: $(STAMPS)/extra-build
	@cmake --preset tsan --log-level=WARNING
	@cmake --build build/tsan --target races $(NINJA_FLAGS)

test-races: build-races
	@$(NO_ASLR) tests/run_races build/tsan/tests

# What a Mac would compile, on this machine: docs/mac.md. The module is in a copy of the package.
build-portable: $(STAMPS)/extra-build
	@cmake --preset portable -DPython_EXECUTABLE=$(CURDIR)/$(PY) --log-level=WARNING
	@cmake --build build/portable $(NINJA_FLAGS)

test-portable: build-portable $(STAMPS)/extra-test $(STAMPS)/extra-frameworks
	@ctest --preset portable -j $(JOBS)
	@tools/test_portable build/portable $(PYTEST_ARGS)

# The same by clang and libc++ 19 or newer, with the C++ tests: cmake/libcxx.cmake.
build-libcxx: $(STAMPS)/extra-build
	@tools/setup libcxx
	@cmake --preset libcxx -DCMAKE_CXX_COMPILER=$$(tools/libcxx_clang) --log-level=WARNING -Wno-deprecated
	@cmake --build build/libcxx $(NINJA_FLAGS)

test-libcxx: build-libcxx
	@ctest --preset libcxx -j $(JOBS)

# All of continuous integration, and what takes too long for it. NIGHTLY="fuzz portable": these parts.
nightly:
	@.ci/nightly $(NIGHTLY)

# For Linux on 64-bit ARM, cross-compiled. In QEMU run the C++ tests, the README's quick start and some
# of Python's tests: tools/test_aarch64.
build-aarch64: $(STAMPS)/extra-build
	@tools/setup aarch64
	@tools/aarch64_root
	@cmake --preset aarch64 --log-level=WARNING
	@cmake --build build/aarch64 $(NINJA_FLAGS)

test-aarch64: build-aarch64
	@ctest --preset aarch64 -j $(JOBS)
	@tools/test_aarch64 $(PYTEST_ARGS)

# Races between the CTAs of a kernel: src/simt/shadow.h. SHADOW_TESTS is a filter of gtest.
test-shadow: prepare
	@cmake --build build/dev --target kernel_shadow_tests $(NINJA_FLAGS)
	@HEADRACE_TEST_PLACE=simt build/dev/tests/kernel_shadow_tests --gtest_brief=1 \
	  --gtest_filter='$(SHADOW_TESTS)'

# Lines that the tests run: tools/coverage.py. COVERAGE_ARGS=python: of one half.
coverage: build $(STAMPS)/extra-test $(STAMPS)/extra-frameworks $(STAMPS)/extra-coverage
	@$(PY) tools/coverage.py $(COVERAGE_ARGS)

demo: package $(STAMPS)/extra-demo
	@$(PY) examples/demo/demo.py $(DEMO_ARGS)

bench: build $(STAMPS)/extra-bench
	@cmake --preset bench --log-level=WARNING
	@cmake --build build/bench $(NINJA_FLAGS)
	@build/bench/bench/micro/headrace_bench $(MICRO_ARGS)
	@$(PY) bench/run.py e2e -- $(BENCH_ARGS)

# The command is built for its help, which is a page; Python's reference is read from the sources.
docs: package $(STAMPS)/extra-docs
	@# Not --quiet: --strict counts warnings only where they are shown.
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict 2>&1 | { grep -v '^INFO ' || true; }
	@$(PY) tools/check_site.py site

fuzz: $(STAMPS)/extra-build
	@tools/setup fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build build/fuzz $(NINJA_FLAGS)
	@tools/fuzz build/fuzz/tests/fuzz $(FUZZ_SECONDS)

wheel: $(STAMPS)/extra-dev
	@tools/wheel $(PYTHONS)

# Python's tests with the wheel for the Python of .venv, as users have it.
test-wheel: wheel $(STAMPS)/extra-test $(STAMPS)/extra-frameworks
	@tools/test_wheel $(PYTEST_ARGS)

check: build $(STAMPS)/extra-dev
	@tools/check

format: $(STAMPS)/extra-dev
	@tools/check --fix

stubs: build
	@tools/stubs

clean:
	rm -rf build dist site python/headrace/*.so
