# axtrain: `make help` lists the targets.
#
#   CC=clang-16        another compiler          SANITIZE=address,undefined | thread
#   BUILD=dir          another build folder      OPT="-O0 -g"      V=1  show the commands
#   DEPS=dir           libraries in dir/include, dir/lib           WERROR=1  warnings are errors
#   PREFIX=dir         for make install (/usr/local)               DESTDIR=dir in front of it
#   TEST_ROOMS="base ckpt"  only the tests of these folders
#   GLOO=              without libaxtrain-gloo.so (default: if there are a C++ compiler and Gloo)
#   CUDA=              without CUDA (default: nvcc if it is found)
#   CUDNN_INCLUDE=dirs cudnn_frontend.h, cudnn.h, nvrtc.h (default: looked for; without, cuDNN is left out)
#   CUDA_ARCHS="80 90a"  GPUs to compile for, as well as for the first one's successors

SHELL := /bin/bash
Q := $(if $(V),,@)
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
SANITIZE ?=
ARM := $(findstring aarch64,$(shell $(CC) -dumpmachine 2>/dev/null))
TEST_ROOMS ?= *
comma := ,
BUILD ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(findstring clang,$(CC)),-clang)
# Sanitizers find the same at -O1, which compiles in two thirds of the time. Tests take as long at -O0, which compiles in
# a third. Lines (-g1) are what a back trace and a profile need, and a fifth less to compile; for a debugger: OPT="-O0 -g".
ifeq ($(origin OPT),undefined)
OPT := $(if $(SANITIZE),-O1,-O2) -g1
TEST_OPT := -O0 -g1
VEC_OPT := $(if $(SANITIZE),-O1,-O3) -g1
EMULATED_OPT := -O1 -g1
endif
TEST_OPT ?= $(OPT)
VEC_OPT ?= $(OPT) $(if $(SANITIZE),,-O3)
EMULATED_OPT ?= $(OPT) $(if $(SANITIZE),,-O1)
# Only for parallel/fabric/comm_gloo.cpp and kernels/cuda/attention/cudnn_shim.cpp: the C++ compiler that matches CC. They are
# built as separate libraries, so that only who uses them needs Gloo, cuDNN and the C++ library.
CXX := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),$(subst gcc,g++,$(CC)))
ifeq ($(origin GLOO),undefined)
GLOO := $(shell $(CXX) $(if $(DEPS),-I"$(DEPS)/include") -x c++ -include gloo/config.h -E /dev/null \
    >/dev/null 2>&1 && echo yes)
endif
VERSION := 0.1.0
COMMIT := $(shell tools/commit)

WARN := -Wall -Wextra -Wshadow -Wconversion $(if $(WERROR),-Werror)
ifneq ($(findstring clang,$(CC)),)
WARN += -Wno-implicit-int-float-conversion -Wno-enum-float-conversion -Wno-pass-failed
else # at -O1 gcc does not know the ranges of what is printed, nor what a status says of a variable
WARN_O1 := -Wno-format-truncation -Wno-restrict -Wno-maybe-uninitialized
WARN += $(if $(SANITIZE),$(WARN_O1))
endif
OMP := -fopenmp
SAN := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
CPPFLAGS := -I. $(if $(DEPS),-I"$(DEPS)/include") -D_GNU_SOURCE -DAX_VERSION='"$(VERSION)"'
CFLAGS = -std=c11 $(OPT) $(WARN) $(OMP) $(SAN) -fPIC -fno-semantic-interposition -fno-math-errno -ffp-contract=off -pthread -MMD -MP
CXXFLAGS = $(filter-out -std=c11 $(OMP),$(CFLAGS)) -std=c++17 -fvisibility=hidden
DEPS_LD := $(if $(DEPS),-L"$(DEPS)/lib" -Wl$(comma)-rpath$(comma)"$(DEPS)/lib")
# Libraries that are opened at run time are beside the binary, or in lib/axtrain of its prefix. A
# sanitizer opens them on the program's behalf, which needs tags that apply to every opener.
DTAGS := $(if $(SANITIZE),--disable-new-dtags,--enable-new-dtags)
# Libgomp is linked statically, if possible, so that main.c can set how long it spins. (ThreadSanitizer's
# build replaces functions of the shared one.)
GOMP := $(if $(findstring thread,$(SANITIZE))$(findstring clang,$(CC)),,$(filter /%,$(shell $(CC) -print-file-name=libgomp.a 2>/dev/null)))
LDFLAGS := $(if $(GOMP),,$(OMP)) $(SAN) -pthread $(DEPS_LD) -Wl,$(DTAGS),-rpath,'$$ORIGIN:$$ORIGIN/../lib/axtrain'
LIBS := jansson yaml pcre2-8 utf8proc zstd z
LDLIBS := $(LIBS:%=-l%) $(if $(GOMP),-l:libgomp.a) -lm -ldl
# For make dist: a binary that needs only the C library.
ifdef STATIC
LDFLAGS += -static-libgcc
LDLIBS := $(LIBS:%=-l:lib%.a) $(if $(GOMP),-l:libgomp.a,$(error STATIC needs libgomp.a)) -lm -ldl
endif
PREFIX ?= /usr/local

# Instruction sets: kernels/cpu/vec/ is compiled once for each (see kernels/cpu/vec/vec.h). The sets with
# tiles have only *_tiles.c and the files that these change; the rest of their ops is avx512bf16's.
ISA_avx2 := -mavx2 -mfma -mf16c -mprefer-vector-width=256
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_avx512bf16 := $(ISA_avx512) -mavx512bf16
ISA_amx := $(ISA_avx512bf16) -DAX_TILES -mamx-tile -mamx-bf16
ISA_amx_emulated := $(ISA_avx512bf16) -DAX_TILES
ISA_neon :=
ISAS := $(if $(ARM),neon,avx2 avx512 avx512bf16)
TILE_ISAS := $(if $(ARM),,amx amx_emulated)

# The backend cuda: by nvcc, or absent.
ifeq ($(origin CUDA),undefined)
CUDA := $(if $(SANITIZE)$(ARM)$(STATIC),,$(shell command -v nvcc))
endif
CUDA_ARCHS ?= 80
# nvcc may be a link or a script: it knows where its toolkit is.
CUDA_HOME := $(if $(CUDA),$(shell $(CUDA) --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#$$ TOP=//p'))
CUDA_LIBS := $(if $(CUDA),-L$(CUDA_HOME)/lib64 -lcudart_static -lrt)
LDLIBS += $(CUDA_LIBS)
sources = $(shell find $(1) -name '$(2)' | LC_ALL=C sort)
CUDA_SRC := $(filter-out kernels/cuda/absent.c,$(call sources,kernels/cuda,*.c))
CUDA_KERNELS := $(call sources,kernels/cuda,*.cu)
# For tests, the same kernels on the host: tests/doubles/cuda/ has what they include and link of NVIDIA's.
EMULATED_SRC := $(filter-out kernels/cuda/libraries.c,$(CUDA_SRC)) $(CUDA_KERNELS) $(wildcard tests/doubles/cuda/*.cpp) \
    parallel/fabric/comm_nccl.c
EMULATED := -DAX_CUDA_EMULATED -Itests/doubles/cuda
# Headers of cuDNN, its frontend and NVRTC, in whatever folders these have: the toolkit's, tools/get-cudnn's, or
# Python packages'.
CUDNN_PLACES := $(CUDA_HOME)/include /usr/include \
    $(addprefix $(HOME)/.local/lib/axtrain/cudnn/,include nvidia/cudnn/include nvidia/cu13/include) $(foreach d,$(subst :, ,$(PATH)),$(foreach p,site-packages dist-packages,\
    $(foreach i,include nvidia/cudnn/include nvidia/cu13/include,$(wildcard $(d)/../lib/python3*/$(p)/$(i)))))
cudnn_header = $(firstword $(wildcard $(addsuffix /$(1),$(CUDNN_PLACES))))
CUDNN_HEADERS := $(foreach h,cudnn_frontend.h cudnn.h nvrtc.h,$(call cudnn_header,$(h)))
CUDNN_INCLUDE ?= $(if $(filter 3,$(words $(CUDNN_HEADERS))),$(sort $(dir $(CUDNN_HEADERS))))

ROOMS := base kernels parallel ckpt data model optim cmd
SRC := $(filter-out cmd/commit.c kernels/cpu/vec/% kernels/cuda/% parallel/fabric/comm_nccl$(if $(CUDA),_absent).c,$(call sources,$(ROOMS),*.c)) \
       $(if $(CUDA),$(CUDA_SRC),kernels/cuda/absent.c)
VEC := $(call sources,kernels/cpu/vec,*.c)
TILE_ONLY := $(filter %_tiles.c,$(VEC))
TILE_SRC := $(TILE_ONLY) $(patsubst %,kernels/cpu/vec/gemm/%.c,gemm gemm_store packed_gemm) \
            $(patsubst %,kernels/cpu/vec/attention/attention_%.c,plan pack forward backward)
VEC_SRC := $(filter-out $(TILE_ONLY),$(VEC))
OBJ := $(SRC:%.c=$(BUILD)/%.o) \
       $(foreach isa,$(ISAS),$(VEC_SRC:%.c=$(BUILD)/%.$(isa).o)) \
       $(foreach isa,$(TILE_ISAS),$(TILE_SRC:%.c=$(BUILD)/%.$(isa).o)) \
       $(if $(CUDA),$(CUDA_KERNELS:%.cu=$(BUILD)/%.cu.o))
LIB := $(BUILD)/libaxtrain.a
# All tests share one copy of the product: linked into each, they would fill gigabytes.
TEST_LIB := $(BUILD)/libaxtrain.so
BIN := $(BUILD)/axtrain
SHIM := $(if $(GLOO),$(BUILD)/libaxtrain-gloo.so) \
        $(if $(CUDA),$(if $(strip $(CUDNN_INCLUDE)),$(BUILD)/libaxtrain-cudnn.so))

TEST_SRC := $(filter-out $(if $(ARM),%/test_tiles.c),$(wildcard $(TEST_ROOMS:%=tests/%/test_*.c)))
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
LONG_BIN := $(filter $(patsubst %,$(BUILD)/tests/%,$(shell grep -v '^#' tests/long.txt)),$(TEST_BIN))
# Of these, programs that `make test` runs, too, but for some of their tests.
MIXED_BIN := $(patsubst %.c,$(BUILD)/%,$(shell grep -l '"tests/long.h"' tests/*/test_*.c))
# What compares with goldens, and finds them: a library, of which each test takes what it needs.
GOLDEN_SRC := $(filter-out %/replay.c tests/goldens/test_%.c,$(wildcard tests/goldens/*.c))
REPLAY := $(BUILD)/tests/goldens/replay
GOLDENS := $(BUILD)/tests/goldens/libgoldens.a
# What stands in for a part of the product, and what measures it: likewise.
BENCHES := bench plan_score sandbox
DOUBLE_SRC := $(filter-out tests/doubles/far.c $(BENCHES:%=tests/bench/%.c),$(wildcard tests/doubles/*.c tests/bench/*.c))
DOUBLES := $(BUILD)/tests/doubles/libdoubles.a
BENCH_BIN := $(BENCHES:%=$(BUILD)/tests/bench/%)
# far.c adds a backend where it is linked: every test has it.
TEST_HELP := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*.c) tests/doubles/far.c) $(GOLDENS) $(DOUBLES)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=build-fuzz/%)

.PHONY: all help bootstrap demo test test-long peers test-peers test-all test-arm soak check format docs fuzz bench-peers goldens mutate clean tests-built
.PHONY: install uninstall dist wheel bundle kernels gpu-check gpu-bench FORCE
all: $(BIN) $(SHIM) ## build axtrain

# Compiles, and keeps the compiler's messages beside the object for `make check`.
compile = $(Q)$(1) -c -o $@ $< 2>$@.said; status=$$?; cat $@.said >&2; exit $$status

# What demo and tests are built with: they run here; without an NVIDIA device, nvcc would take half as long as all else.
HERE := $(if $(filter file,$(origin CUDA)),$(if $(wildcard /dev/nvidia* /dev/dxg $(BUILD)/kernels/cuda/find.o),,CUDA=))

demo: ## set up, build, and show what axtrain does
	@tools/bootstrap build demo
	@$(MAKE) --no-print-directory -j$$(nproc) $(HERE) all
	@$(if $(and $(HERE),$(CUDA)),echo "This machine has no NVIDIA device: built without CUDA (make adds it)")
	@tools/demo $(BIN)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

bootstrap: ## install what all targets but test-arm need, or SETS="build test" (Debian; elsewhere it prints a list)
	@tools/bootstrap $(or $(SETS),build demo test lint dist parquet sandbox cudnn)

# Only commit.o contains the commit, so that a new one costs only one link.
MAIN := $(BUILD)/main.o $(BUILD)/cmd/commit.o
$(BUILD)/cmd/commit.o: $(BUILD)/commit
$(BUILD)/cmd/commit.o: CPPFLAGS += -DAX_COMMIT='"$(COMMIT)"'
$(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@echo $(COMMIT) | cmp -s - $@ || echo $(COMMIT) >$@

$(BIN): $(MAIN) $(LIB)
	@echo "LD $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# A header that Gloo's own headers include, and its packages forget.
$(BUILD)/absent/gloo/common/memory.h:
	@mkdir -p $(@D)
	@echo '#include "parallel/fabric/gloo_memory.h"' >$@
$(BUILD)/parallel/fabric/comm_gloo.o: CPPFLAGS += -idirafter $(BUILD)/absent
$(BUILD)/parallel/fabric/comm_gloo.o: | $(BUILD)/absent/gloo/common/memory.h
$(BUILD)/libaxtrain-gloo.so: $(BUILD)/parallel/fabric/comm_gloo.o
	@echo "LD $@"
	$(Q)$(CXX) $(SAN) -shared -pthread $(DEPS_LD) -o $@ $< -lgloo

# Attention by cuDNN. Its frontend's headers are half a minute's work, and what they are made of is not ours
# to warn of. The C++ library is inside, as systems have older ones; libgcc_s is cuDNN's as well.
$(BUILD)/kernels/cuda/attention/cudnn_shim.o: CPPFLAGS += -DNV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING -DNV_CUDNN_FRONTEND_DISABLE_LOGGING \
    $(addprefix -isystem ,$(CUDNN_INCLUDE) $(CUDA_HOME)/include)
$(BUILD)/kernels/cuda/attention/cudnn_shim.o: OPT := -O1
$(BUILD)/libaxtrain-cudnn.so: $(BUILD)/kernels/cuda/attention/cudnn_shim.o
	@echo "LD $@"
	$(Q)$(CXX) $(SAN) -shared -pthread -static-libstdc++ -shared-libgcc -Wl,--exclude-libs,ALL -o $@ $< -ldl

# A build with CUDA and one without have different objects, none of which may be newer than the library.
$(BUILD)/objects: FORCE
	@mkdir -p $(@D)
	@echo $(OBJ) | cmp -s - $@ || echo $(OBJ) >$@

$(LIB): $(OBJ) $(BUILD)/objects
	@rm -f $@
	@ar rcs $@ $(OBJ)

$(TEST_LIB): $(OBJ) $(BUILD)/objects
	@echo "LD $@"
	$(Q)$(CC) $(OMP) $(SAN) -shared -pthread $(DEPS_LD) -Wl,-soname,$(@F),$(DTAGS),-rpath,'$$ORIGIN' -o $@ $(OBJ) $(LIBS:%=-l%) \
	    $(CUDA_LIBS) -lm -ldl

define compile_isa
$(BUILD)/kernels/cpu/vec/%.$(1).o: kernels/cpu/vec/%.c
	@mkdir -p $$(@D)
	@echo "CC $$< ($(1))"
	$$(call compile,$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_$(1)) -DAX_ISA=$(1) -DAX_ISA_$(1))
$(BUILD)/kernels/cpu/vec/%.$(1).o: OPT = $$(VEC_OPT)
endef
$(foreach isa,$(ISAS) $(TILE_ISAS),$(eval $(call compile_isa,$(isa))))

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "CC $<"
	$(call compile,$(CC) $(CPPFLAGS) $(CFLAGS))

$(BUILD)/tests/%.o: OPT = $(TEST_OPT)
# What is much of the goldens' time.
$(BUILD)/tests/goldens/digest.o: OPT := $(OPT)
$(BUILD)/tests/%.o: WARN += $(WARN_O1)
$(BUILD)/emulated/%.o $(BUILD)/emulated-sanitized/%.o: OPT = $(EMULATED_OPT)
$(BUILD)/cmd/tracker/tracker.o: cmd/tracker/tracker.py
$(BUILD)/data/reward/sandbox/snapshot.o: data/reward/sandbox/harness.py
$(BUILD)/data/reward/child.o: data/reward/python.py
$(BUILD)/cmd/harness/harness.o: cmd/harness/harness.py
$(BUILD)/tests/bench/sandbox.o: tests/bench/attacks.txt tests/bench/cheats.txt tests/bench/more_cheats.txt

$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "CXX $<"
	$(call compile,$(CXX) $(CPPFLAGS) $(CXXFLAGS))

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_HELP) $(TEST_LIB)
	@echo "LD $@"
	$(Q)$(CC) $(OMP) $(SAN) -pthread $(DEPS_LD) -Wl,$(DTAGS),-rpath,'$$ORIGIN/../..' -o $@ $< $(TEST_HELP) \
	    $(TEST_LIB) -lcmocka $(LIBS:%=-l%) -lm -ldl
$(TEST_BIN): | $(SHIM)
# For a machine without our libraries, in a bundle.
$(BUILD)/gpu/replay: $(BUILD)/tests/goldens/replay.o $(GOLDENS) $(LIB)
	@mkdir -p $(@D)
	@echo "LD $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(GOLDENS): $(GOLDEN_SRC:%.c=$(BUILD)/%.o)
$(DOUBLES): $(DOUBLE_SRC:%.c=$(BUILD)/%.o)
$(GOLDENS) $(DOUBLES):
	@rm -f $@
	@ar rcs $@ $^
$(filter $(BUILD)/tests/goldens/%,$(TEST_BIN)): | $(REPLAY)

# Stubs of DuckDB's library, and of libaxtrain-gloo.so of another version.
$(BUILD)/tests/data/test_duckdb: $(BUILD)/tests/data/stub_duckdb.so
$(BUILD)/tests/cmd/test_install: $(BUILD)/tests/cmd/stub_gloo.so
$(BUILD)/tests/%.so: tests/%.c
	@mkdir -p $(@D)
	@echo "LD $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fPIC -shared -o $@ $<

# Kernels by nvcc: for these GPUs, and the first one's PTX for those that come.
NVCC_FLAGS = -std=c++17 -O3 -lineinfo $(WERROR:%=-Werror all-warnings) $(CPPFLAGS) -MD -MP \
    $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(firstword $(CUDA_ARCHS)),code=compute_$(firstword $(CUDA_ARCHS)) \
    --compiler-options -fPIC,-Wall,-Wextra,-fno-exceptions,-fno-threadsafe-statics,-ffp-contract=off $(NVCC_MORE)
kernels: $(CUDA_KERNELS:%.cu=$(BUILD)/%.cu.o)
# Number formats have the same bits everywhere: no product is fused with a sum.
$(BUILD)/kernels/cuda/quant/%.cu.o: NVCC_FLAGS += -fmad=false
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "NVCC $<"
	$(call compile,$(CUDA) $(NVCC_FLAGS))
$(CUDA_SRC:%.c=$(BUILD)/%.o): CPPFLAGS += $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include)
$(BUILD)/kernels/cuda/find.o: CPPFLAGS += -DAX_CUDA_ARCHS='"$(CUDA_ARCHS)"'

# The same for the host, and once more with sanitizers, which only tests/cuda/ links.
$(BUILD)/emulated/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "CC $< (emulated)"
	$(call compile,$(CC) $(CPPFLAGS) $(EMULATED) $(CFLAGS))
$(BUILD)/emulated/%.o: %
	@mkdir -p $(@D)
	@echo "CXX $< (emulated)"
	$(call compile,$(CXX) -x c++ $(CPPFLAGS) $(EMULATED) $(EMULATED_CXXFLAGS))
# A copy of a barrier that the compiler makes for some threads would look like another barrier.
EMULATED_CXXFLAGS = $(filter-out -Wconversion -Wshadow,$(CXXFLAGS)) -fno-exceptions -fno-thread-jumps \
    -ftls-model=initial-exec
# Not all of `undefined`, which takes twice the time to compile and finds what ASan does (a null pointer) or what tests are
# too small for (an integer that overflows); SANITIZE=address,undefined has it.
EMULATED_SAN := -fsanitize=address,alignment,bounds,integer-divide-by-zero,shift -fno-omit-frame-pointer
# The machine itself is most of the emulated kernels' time; how threads take turns needs no sanitizers.
EMULATOR := $(patsubst %,%.o,$(wildcard tests/doubles/cuda/*.cpp))
UNCHECKED := $(filter %/fibres.cpp.o %/mma.cpp.o %/wgmma.cpp.o,$(EMULATOR))
$(EMULATOR:%=$(BUILD)/emulated/%) $(EMULATOR:%=$(BUILD)/emulated-sanitized/%): OPT := $(if $(SANITIZE),$(OPT),-O3 -g1)
$(UNCHECKED:%=$(BUILD)/emulated-sanitized/%): EMULATED_SAN := -DAX_FIBRES_OF_SANITIZED -fno-omit-frame-pointer
$(BUILD)/emulated-sanitized/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "CC $< (emulated, sanitized)"
	$(call compile,$(CC) $(CPPFLAGS) $(EMULATED) $(CFLAGS) $(EMULATED_SAN))
$(BUILD)/emulated-sanitized/%.o: %
	@mkdir -p $(@D)
	@echo "CXX $< (emulated, sanitized)"
	$(call compile,$(CXX) -x c++ $(CPPFLAGS) $(EMULATED) $(EMULATED_CXXFLAGS) $(EMULATED_SAN))

# axtrain as it is, but with the emulated backend in front of the library's: for tests.
$(BUILD)/axtrain-emulated: $(MAIN) $(addprefix $(BUILD)/emulated/,$(addsuffix .o,$(EMULATED_SRC))) $(LIB)
	@echo "LD $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lstdc++
$(BUILD)/tests/cuda/test_train $(BUILD)/tests/cuda/test_meshes: | $(BUILD)/axtrain-emulated
$(BUILD)/tests/cuda/%.o: CPPFLAGS += $(EMULATED)
$(BUILD)/tests/cuda/test_broken: $(BUILD)/emulated-sanitized/tests/cuda/broken.cu.o
$(BUILD)/tests/cuda/test_mma: $(BUILD)/emulated-sanitized/tests/cuda/mma_probe.cu.o
# With NVIDIA's own headers, for tools/test-peers.
$(BUILD)/tests/peers/cublaslt_api.o $(BUILD)/tests/peers/nccl_api.o: CPPFLAGS += $(addprefix -isystem ,$(CUDA_INCLUDE))
$(filter $(BUILD)/tests/cuda/%,$(TEST_BIN)): $(BUILD)/tests/cuda/%: $(BUILD)/tests/cuda/%.o $(TEST_HELP) \
    $(addprefix $(BUILD)/emulated-sanitized/,$(addsuffix .o,$(EMULATED_SRC))) $(LIB)
	@echo "LD $@"
	$(Q)$(CC) $(LDFLAGS) $(EMULATED_SAN) -o $@ $^ -lcmocka $(LDLIBS) -lstdc++

# Some of them for a GPU.
GPU_TESTS := test_ops test_graphs test_mma test_train
$(BUILD)/gpu/test_graphs: $(BUILD)/tests/tiny.o
$(BUILD)/gpu/test_mma: $(BUILD)/tests/cuda/mma_probe.cu.o
$(BUILD)/tests/cuda/mma_probe.cu.o: EMULATED :=
$(BUILD)/gpu/%: tests/cuda/%.c $(BUILD)/tests/golden_files.o $(GOLDENS) $(LIB)
	@mkdir -p $(@D)
	@echo "LD $@"
	$(Q)$(CC) $(CPPFLAGS) $(addprefix -isystem ,$(CUDA_HOME:%=%/include)) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c %.o,$^) $(GOLDENS) $(LIB) -lcmocka $(LDLIBS)
gpu-check: all $(GPU_TESTS:%=$(BUILD)/gpu/%) $(BUILD)/gpu/replay ## on a GPU: ops, goldens, trainings, compute-sanitizer
	@tools/gpu-check $(BUILD)
gpu-bench: all ## on a GPU: speeds
	@tools/gpu-bench $(BUILD)

install: all ## install into PREFIX (/usr/local): binary, man page, completions, configs
	@tools/stage $(BIN) "$(DESTDIR)$(PREFIX)"
	@echo "installed in $(DESTDIR)$(PREFIX)"

uninstall: ## remove what `make install` wrote
	@tools/stage --remove "$(DESTDIR)$(PREFIX)"

DIST := $(BUILD)-dist
RELEASE := axtrain-$(VERSION)-linux-x86_64
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),315532800)
dist: ## build-dist/axtrain-VERSION-linux-x86_64.tar.gz: runs on glibc >= 2.34 with nothing installed
	@tools/bootstrap build dist
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(DIST) OPT=-O2 STATIC=1 CUDA= all
	@tools/make-dist $(DIST)/axtrain $(RELEASE) $(EPOCH)

# For a machine with a GPU that has none of our libraries.
BUNDLE := $(BUILD)-bundle
BUNDLE_ARCHS ?= 80 90a 100 120
bundle: ## build-bundle/axtrain-VERSION-cuda-linux-x86_64.tar.xz: checks and measures axtrain where a GPU is
	@tools/bootstrap build test dist cudnn
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUNDLE) OPT=-O2 STATIC=1 CUDA=$(or $(CUDA),nvcc) CUDA_ARCHS="$(BUNDLE_ARCHS)" \
	    all $(GPU_TESTS:%=$(BUNDLE)/gpu/%) $(BUNDLE)/gpu/replay
	@tools/make-bundle $(BUNDLE)/axtrain axtrain-$(VERSION)-cuda-linux-x86_64 $(EPOCH)

wheel: dist ## build-dist/axtrain-VERSION-….whl: `pip install` gives the command
	@tools/make-wheel $(DIST)/$(RELEASE) $(VERSION) $(EPOCH) $(DIST)
	@tools/check-wheel $(DIST)/axtrain-$(VERSION)-*.whl

NOW = $(TEST_BIN)
tests-built: $(BIN) $(SHIM) $(REPLAY) $(BENCH_BIN) $(NOW)

test: ## build and run the tests but the longest (about ten minutes on 2 cores)
test-long: ## build and run the longest tests: meshes, trainings, ops in the GPU's emulator (about ten minutes)
test: NOW = $(filter-out $(filter-out $(MIXED_BIN),$(LONG_BIN)),$(TEST_BIN))
test: export AXTRAIN_TESTS := quick
test-long: NOW = $(LONG_BIN)
test-long: export AXTRAIN_TESTS := long
test test-long:
	@tools/bootstrap build test parquet sandbox-parts smollm2
	@$(MAKE) --no-print-directory -j$$(nproc) $(HERE) NOW="$(NOW)" tests-built
	@$(if $(NOW),tools/run-tests $(BUILD) $(NOW),echo "none in TEST_ROOMS")

peers: ## install what test-peers compares with: PyTorch, transformers, PEFT (a few GB)
	@tools/bootstrap build test peers
	@tools/make-peers

test-peers: $(if $(AXTRAIN_PYTHON),,peers) ## comparison with PyTorch, transformers, PEFT
	@tools/test-peers $(BUILD)

test-all: ## sanitizers, both compilers, masked CPUs, sweeps, PEFT, fuzzing (≤ 60 minutes)
	@tools/bootstrap build test lint dist
	@tools/test-all

soak: $(BIN) $(SHIM) ## small meshes under random faults for SOAK_SECONDS (3600): all resume to the same bits
	@tools/soak --seconds $(or $(SOAK_SECONDS),3600) $(BIN)

test-arm: ## the aarch64 build under qemu: kernel tests, golden files, a small training (in test-all)
	@tools/bootstrap build test arm
	@tools/test-arm

check: ## formatting, warnings, clang-tidy, layers, file sizes, generated docs
	@tools/bootstrap build lint
	@tools/check

format: ## rewrite the sources with clang-format
	clang-format-16 -i $$(git ls-files '*.c' '*.cpp' '*.h' '*.cu' '*.cuh')

docs: $(BIN) ## regenerate the generated documents
	@tools/generate-docs $(BIN)

fuzz: $(FUZZ_BIN) ## run every fuzz target FUZZ_SECONDS (60) each
	@tools/run-fuzz $(FUZZ_BIN)

# Always runs: the code under test is in the library, and the inner make knows whether that is current.
build-fuzz/%: tests/fuzz/%.c FORCE
	@mkdir -p $(@D)
	@$(MAKE) --no-print-directory CC=clang-16 SANITIZE=address,undefined BUILD=build-fuzz/obj \
	    OPT="-O1 -g -fsanitize=fuzzer-no-link" build-fuzz/obj/libaxtrain.a
	clang-16 $(CPPFLAGS) -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -o $@ $< \
	    build-fuzz/obj/libaxtrain.a -fopenmp $(filter-out %libgomp.a,$(LDLIBS)) -pthread

FORCE:

bench-peers: $(BIN) $(if $(AXTRAIN_PYTHON),,peers) ## PyTorch, TRL, transformers, llama.cpp alternating with axtrain: MODEL=folder, PAIRS=5, AXTRAIN_PYTHON
	@test -n "$(MODEL)" || { echo "name a model folder: make bench-peers MODEL=smollm2/"; exit 2; }
	$(or $(AXTRAIN_PYTHON),$(HOME)/.local/lib/axtrain/peers/bin/python) tests/peers/bench_peers.py $(BIN) "$(MODEL)" --pairs $(or $(PAIRS),5) $(if $(PARTS),--parts $(PARTS)) --table docs/results/cpu.md

goldens: ## make tests/goldens again with PyTorch, transformers and TRL, and compare (Python 3.11; minutes)
	@BUILD=$(BUILD) tests/goldens/make/run $(if $(ONLY),--only $(ONLY))

mutate: ## mutation testing: MUTANTS=100 SEED=1 (docs/mutate.md); the last line is "caught N of M"
	@tools/mutate --mutants $(or $(MUTANTS),100) --seed $(or $(SEED),1)

clean: ## remove build folders
	rm -rf build build-*

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)
