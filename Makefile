# The main targets. CMake and its presets do the work; docs/testing.md says what each test is for.
#
#   make build      build/moeflux, as users run it (the default)
#   make demo       build it and run it on the bundled model
#   make test       all tests, which every change must pass
#   make test-full  make test, then every compiler and sanitizer, fuzzing, formatting and linting
#   make bench      build and run the benchmarks
#   make format     clang-format over the sources
#   make clean      remove build/
#
#   JOBS=2          number of parallel processes (default: all processors)
#   FUZZ_SECONDS=60 how long make test-full fuzzes snapshots; the other targets share the same time

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
export JOBS

SOURCES = find include src tests bench -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'
say = @echo "== $(1)"
# Warnings and errors of the configuration are shown, its progress is not.
configure = @cmake --preset $(1) >/dev/null
build = @cmake --build --preset $(1) --parallel $(JOBS)
run_tests = @ctest --preset $(1) --parallel $(JOBS) --output-log build/$(1).log

.PHONY: build demo test test-full bench format clean
.PHONY: bootstrap test-dev test-long test-release test-asan test-tsan test-clang check-format check-tidy

build: bootstrap
	$(call say,build/moeflux)
	$(call configure,release)
	$(call build,release) --target moeflux
	@ln -sfn release/bin/moeflux build/moeflux

# Packs the bundled checkpoint, lets it tell a story and has a conversation with it. A quarter of the experts
# fit in the cache.
define DEMO_CONVERSATION
Hi, my name is Ada and I like tea.
What is 12 plus 30?
What is my name, and what do I like?
endef
export DEMO_CONVERSATION

demo: build
	@rm -rf build/demo
	build/moeflux inspect models/tern
	build/moeflux pack models/tern build/demo
	build/moeflux run -m build/demo --temp 0 --expert-cache 7M -p 'Tell me a story about a dragon and a lighthouse.'
	@echo
	@echo "build/moeflux chat -m build/demo --temp 0 --expert-cache 7M"
	@echo "$$DEMO_CONVERSATION" | build/moeflux chat -m build/demo --temp 0 --expert-cache 7M
	@echo
	@echo "Talk with it yourself: build/moeflux chat"

# Repeats the summary of ctest at the end of the output.
test: bootstrap test-dev
	@echo "== all passed:"
	@sed -n '/tests passed/,$$p' build/dev.log

test-full: check-format test test-long test-release test-asan test-tsan test-clang check-tidy
	$(call say,the same bits: every way of every golden)
	@/usr/bin/python3 -B tests/forward/same_bits_test.py build/release/bin/moeflux --full
	@/usr/bin/python3 -B tests/forward/streaming_bits_test.py build/release/bin/moeflux --full
	$(call say,tokenizers: 100000 texts)
	@/usr/bin/python3 -B tests/text/tokenizer_oracle_test.py build/release/bin/moeflux --strings 100000 \
	  --modules build/dev/tests/text/oracle || test $$? = 77
	$(call say,headers alone)
	@tools/check_headers.sh
	$(call say,fuzzing: $(FUZZ_SECONDS) s)
	@tools/fuzz.sh --total $(FUZZ_SECONDS) --long snapshot
	$(call say,everything passed)

bench: bootstrap
	$(call say,benchmarks)
	$(call configure,release) -DMOEFLUX_BENCH=ON
	$(call build,release)
	@for program in build/release/bin/*_bench; do echo "== $$program"; "$$program"; done
	$(call say,speed: a model of 6 GB in build/bench)
	@bench/speed_bench.py build/release/bin/moeflux
	$(call say,packing 5 GB)
	@bench/pack_bench.py build/release/bin/moeflux
	$(call say,streaming experts: models of 6 and 9 GB in build/bench)
	@bench/streaming_bench.py build/release/bin/moeflux

format: bootstrap
	@$(SOURCES) | xargs clang-format -i

clean:
	rm -rf build

bootstrap:
	@tools/bootstrap.sh

test-dev:
	$(call say,dev: all tests)
	$(call configure,dev)
	$(call build,dev)
	$(call run_tests,dev) --label-exclude long

test-long:
	$(call say,dev: the long tests)
	@ctest --preset dev --parallel $(JOBS) --label-regex long

test-release:
	$(call say,release: with benchmarks)
	$(call configure,release) -DMOEFLUX_BENCH=ON
	$(call build,release)

test-asan:
	$(call say,asan: all tests)
	$(call configure,asan)
	$(call build,asan)
	$(call run_tests,asan)

test-tsan:
	$(call say,tsan: all tests)
	$(call configure,tsan)
	$(call build,tsan)
	$(call run_tests,tsan)

test-clang:
	$(call say,clang: all tests and thread-safety analysis)
	$(call configure,clang)
	$(call build,clang)
	$(call run_tests,clang)

check-format:
	$(call say,clang-format)
	@$(SOURCES) | xargs clang-format --dry-run --Werror

# Uses the compile commands of the clang build; headers are checked through the sources that include them.
check-tidy:
	$(call say,clang-tidy)
	$(call configure,clang)
	$(call build,clang) --target moeflux_test_pch
	@find src -name '*.cpp' -not -name '*_test.cpp' -print0 | \
	  xargs -0 -n 1 -P $(JOBS) clang-tidy -p build/clang --quiet --warnings-as-errors='*'
