# SPDX-License-Identifier: BSD-2-Clause
#
# make help lists the targets.

PREFIX ?= /usr/local
prefix ?= $(PREFIX)
exec_prefix ?= $(prefix)
bindir ?= $(exec_prefix)/bin
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
datarootdir ?= $(prefix)/share
mandir ?= $(datarootdir)/man
completionsdir ?= $(datarootdir)/bash-completion/completions
DESTDIR ?=

INSTALL ?= install
CLANG ?= clang
CLANG_TIDY ?= clang-tidy
CLANG_FORMAT ?= clang-format
OBJCOPY ?= objcopy
LD ?= ld
NM ?= nm
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# Debian's static jemalloc for shared libraries, 5.3.x; JEMALLOC_A names another.
JEMALLOC_A ?= /usr/lib/$(shell $(CC) -print-multiarch)/libjemalloc_pic.a

# liburing is linked in whole, its symbols hidden: a preloaded library may need libc alone.
URING_A ?= -l:liburing.a

# BUILD is where everything goes; FLAVOUR is what differs between a build and its siblings below it.
BUILD := build

WERROR ?= -Werror
CFLAGS ?= -O2 -g
CXXFLAGS ?= -O2 -g -std=c++17 -Wall -Wextra $(WERROR)
WARNINGS := -Wall -Wextra $(WERROR) -Wformat=2 -Wno-format-nonliteral -Wmissing-prototypes \
	-Wpointer-arith -Wshadow -Wstrict-prototypes -Wundef -Wvla -Wwrite-strings
# For "..." only: interpose/malloc.h must not stand in for <malloc.h>.
INCLUDES := -iquote allocator -iquote interpose -iquote aio
override CPPFLAGS += -D_GNU_SOURCE $(INCLUDES)
override CFLAGS += -std=gnu11 $(WARNINGS)

# initial-exec: a preloaded library's thread-local storage is part of each thread's block, and
# looking it up must not allocate. no-builtin: gcc may otherwise turn malloc+memset into calloc
# inside calloc, and drop pairs of calls that a test is about.
NO_BUILTIN := -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
LIB_CFLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec $(NO_BUILTIN)
LIB_LDFLAGS := -shared -static-libgcc -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete -Wl,-z,relro \
	-Wl,-z,noexecstack -Wl,--as-needed

ALLOCATOR_SRCS := $(sort $(wildcard allocator/*.c))
INTERPOSE_SRCS := $(sort $(wildcard interpose/*.c interpose/*.S))
AIO_SRCS := $(sort $(wildcard aio/*.c aio/*.S))
# What takes the place of the C library's and libaio's functions: for the preloaded library alone.
AIO_ENTRY_SRCS := aio/entry.c aio/process.c aio/raw.c aio/syscall.S
TOOLS_SRCS := $(sort $(wildcard tools/*.c))
UNIT_SRCS := $(sort $(wildcard tests/unit/test_*.c))
# Helpers that several unit tests share are tests/unit/*.c not named test_*.
UNIT_LIB_SRCS := $(sort $(filter-out $(UNIT_SRCS),$(wildcard tests/unit/*.c)))
PRELOAD_SRCS := $(sort $(wildcard tests/preload/*.c))
AIO_TEST_SRCS := $(sort $(wildcard tests/aio/*.c))
# *_rt.c are linked with the fake runtime and *_drv.c with the fake driver.
CUDA_SRCS := $(sort $(wildcard tests/cuda/*.c))
FAKE_SRCS := $(sort $(wildcard tests/fakes/*.c))
GPU_SRCS := $(sort $(wildcard tests/gpu/*.c))
BENCH_SRCS := $(sort $(wildcard tests/bench/*.c))
PROGRAM_SRCS := $(sort $(wildcard tests/programs/*.c))
SCRIPT_TESTS := $(sort $(wildcard tests/aio/*.sh tests/cuda/*.sh tests/gpu/*.sh tests/preload/*.sh tests/programs/*.sh))
HEADERS := $(sort $(wildcard allocator/*.h interpose/*.h aio/*.h tools/*.h tests/*/*.h))
PUBLIC_HEADERS := $(wildcard interpose/pinshim.h allocator/pinshim_table.h \
	allocator/pinshim_table_reader.h aio/pinshim_aio.h)
C_SRCS := $(filter %.c,$(ALLOCATOR_SRCS) $(INTERPOSE_SRCS) $(AIO_SRCS) $(TOOLS_SRCS) $(UNIT_SRCS) \
	$(UNIT_LIB_SRCS) $(PRELOAD_SRCS) $(AIO_TEST_SRCS) $(CUDA_SRCS) $(FAKE_SRCS) $(GPU_SRCS) $(BENCH_SRCS) \
	$(PROGRAM_SRCS))
MAN_PAGES := $(sort $(wildcard */*.[1357]))
SCRIPTS := $(shell grep -lsE '^\#!.*\b(ba)?sh$$' .ci/* scripts/* tests/run tests/*/*)

UNIT_TESTS = $(UNIT_SRCS:tests/unit/%.c=$(1)/tests/unit/%)
PRELOAD_PROGRAMS := $(PRELOAD_SRCS:%.c=$(BUILD)/%)
# lookup_*.sh, stack.sh and watch.sh build what they need themselves.
CUDA_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(filter-out tests/cuda/lookup_% tests/cuda/stack% tests/cuda/watch%,$(CUDA_SRCS)))
# handle.sh and next.sh build what they need themselves.
AIO_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(filter-out tests/aio/linked% tests/aio/next%,$(AIO_TEST_SRCS)))
BENCH_PROGRAMS := $(BENCH_SRCS:%.c=$(BUILD)/%) $(patsubst %.cc,$(BUILD)/%,$(wildcard tests/bench/*.cc))
PROGRAM_PROGRAMS := $(PROGRAM_SRCS:%.c=$(BUILD)/%)

# A target whose sources are not there is left out.
LIBRARY := $(if $(INTERPOSE_SRCS),libpinshim.so)
AIO_LIBRARY := $(if $(AIO_SRCS),libpinshim-aio.so)
TOOL := $(if $(TOOLS_SRCS),pinshim)
PRODUCTS := $(addprefix $(BUILD)/,$(LIBRARY) $(AIO_LIBRARY) $(TOOL))

ifeq ($(V),1)
Q :=
say := @:
else
Q := @
say = @printf '%8s %s\n'
endif

.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
.PHONY: all tests gpu demo check check-built check-asan check-clients check-clients-built bench bench-built
.PHONY: check-cgroup2 install clean help
.PHONY: lint lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-format lint-man format

all: $(PRODUCTS) $(BUILD)/allocator.a

$(BUILD)/jemalloc.o: scripts/private-jemalloc $(wildcard $(JEMALLOC_A))
	$(say) JEMALLOC $@
	$(Q)LD='$(LD)' NM='$(NM)' OBJCOPY='$(OBJCOPY)' AR='$(AR)' $< '$(JEMALLOC_A)' $@

# $(1) the directory of a flavour, $(2) its flags for compiling and linking, $(3) for compiling only.
define flavour
$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$$(say) CC $$@
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(LIB_CFLAGS) $(2) $(3) -MMD -MP -c -o $$@ $$<

$(1)/%.o: %.S
	@mkdir -p $$(@D)
	$$(say) AS $$@
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(LIB_CFLAGS) -MMD -MP -c -o $$@ $$<

$(1)/allocator.a: $$(patsubst %.c,$(1)/%.o,$$(ALLOCATOR_SRCS)) $$(BUILD)/jemalloc.o
	$$(say) AR $$@
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^

$(1)/libpinshim.so: $$(patsubst %,$(1)/%.o,$$(basename $$(ALLOCATOR_SRCS) $$(INTERPOSE_SRCS))) \
		$$(BUILD)/jemalloc.o $$(wildcard interpose/pinshim.map) scripts/check-library
	$$(say) LD $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(LIB_LDFLAGS) $(2) -Wl,-soname,$$(@F) \
		$$(addprefix -Wl$$(comma)--version-script=,$$(filter %.map,$$^)) \
		-o $$@.new $$(filter %.o,$$^) $$(LIBS)
	$$(Q)scripts/check-library $$@.new
	$$(Q)mv $$@.new $$@

$(1)/aio.a: $$(patsubst %.c,$(1)/%.o,$$(filter-out $$(AIO_ENTRY_SRCS),$$(AIO_SRCS)))
	$$(say) AR $$@
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^

$(1)/libpinshim-aio.so: $$(patsubst %,$(1)/%.o,$$(basename $$(AIO_SRCS) interpose/exec.c interpose/address_limit.c)) $(1)/allocator.a \
		$$(wildcard aio/pinshim-aio.map) scripts/check-library
	$$(say) LD $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(LIB_LDFLAGS) $(2) -Wl,-soname,$$(@F) \
		$$(addprefix -Wl$$(comma)--version-script=,$$(filter %.map,$$^)) \
		-o $$@.new $$(filter %.o %.a,$$^) $$(URING_A) $$(LIBS)
	$$(Q)scripts/check-library $$@.new
	$$(Q)mv $$@.new $$@

endef

# $(1) where the unit tests go, $(2) the directory of their flavour, $(3) its flags for linking.
define unit_tests
$(1)/tests/unit/test_%: $(2)/tests/unit/test_%.o $$(UNIT_LIB_SRCS:%.c=$(2)/%.o) $(2)/aio.a \
		$(2)/allocator.a
	@mkdir -p $$(@D)
	$$(say) LD $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $(3) -o $$@ $$^ $$(URING_A) $$(shell pkg-config --libs check) $$(LIBS)
endef
comma := ,

$(eval $(call flavour,$(BUILD),,))
# In which tests can make every call to the system fail (allocator/fault.h).
$(eval $(call flavour,$(BUILD)/fault,,-DPS_FAULT_INJECTION))
$(eval $(call unit_tests,$(BUILD),$(BUILD)/fault,))
# In which blocks are not counted, to measure what that costs.
$(eval $(call flavour,$(BUILD)/uncounted,,-DPS_UNCOUNTED))

# The sanitizers are for the allocator's unit tests: an interposer cannot be preloaded under them.
ASAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
# gcc's does not know fences, and says so; the table's sequence is one.
TSAN_FLAGS := -fsanitize=thread -Wno-tsan
$(eval $(call flavour,$(BUILD)/asan,$(ASAN_FLAGS),-DPS_FAULT_INJECTION -Wno-error))
$(eval $(call unit_tests,$(BUILD)/asan,$(BUILD)/asan,$(ASAN_FLAGS)))
$(eval $(call flavour,$(BUILD)/tsan,$(TSAN_FLAGS),-DPS_FAULT_INJECTION -Wno-error))
$(eval $(call unit_tests,$(BUILD)/tsan,$(BUILD)/tsan,$(TSAN_FLAGS)))

$(BUILD)/pinshim: $(TOOLS_SRCS:%.c=$(BUILD)/%.o) $(BUILD)/aio.a $(BUILD)/allocator.a
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(URING_A) $(LIBS)

# Small unmodified programs: nothing of ours is linked in.
$(BUILD)/tests/preload/% $(BUILD)/tests/bench/%: CFLAGS += $(NO_BUILTIN)
$(BUILD)/tests/preload/%: tests/preload/%.c
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -pthread -o $@ $< -ldl

# As programs that use libaio are linked.
$(BUILD)/tests/aio/%: tests/aio/%.c
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -pthread -o $@ $< -laio -ldl

$(BUILD)/tests/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -pthread -o $@ $< \
		$(filter %.a,$^) $(if $(filter %/split %/loops,$@),-laio) $(if $(filter %/sequential %/loops,$@),$(URING_A)) -ldl

$(BUILD)/tests/bench/%: tests/bench/%.cc
	@mkdir -p $(@D)
	$(say) CXX $@
	$(Q)$(CXX) $(CXXFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $<

# It reads the table as other processes do.
$(BUILD)/tests/bench/lookup: $(BUILD)/allocator.a

$(BUILD)/tests/programs/%: tests/programs/%.c
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $<

# CUDA without a GPU. Found through LD_LIBRARY_PATH, as the driver's directory of a container is.
FAKES := $(BUILD)/tests/fakes
# A second copy of the runtime has the kind of name that it has in PyTorch's wheels.
FAKE_LIBRARIES := $(if $(FAKE_SRCS),$(addprefix $(FAKES)/,libcuda.so.1 libcuda.so libcudart.so.13 libcudart.so \
	copy/libcudart-1a2b3c4d.so.13))
FAKE_RUNTIME_SRCS := $(filter tests/fakes/runtime%,$(FAKE_SRCS))
FAKE_DRIVER_SRCS := $(filter-out $(FAKE_RUNTIME_SRCS),$(FAKE_SRCS))
FAKE_LDFLAGS := -shared -pthread -Wl,-z,defs -Wl,-Bsymbolic

$(FAKES)/%.o: LIB_CFLAGS := -fPIC -fvisibility=hidden

$(FAKES)/libcuda.so.1: $(FAKE_DRIVER_SRCS:%.c=$(BUILD)/%.o)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(FAKE_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^

$(FAKES)/libcudart.so.13: $(FAKE_RUNTIME_SRCS:%.c=$(BUILD)/%.o) tests/fakes/libcudart.map
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(FAKE_LDFLAGS) -Wl,-soname,$(@F) \
		-Wl,--version-script=$(filter %.map,$^) -o $@ $(filter %.o,$^) -ldl

$(FAKES)/libcuda.so: $(FAKES)/libcuda.so.1
	$(Q)ln -sf $(<F) $@

$(FAKES)/libcudart.so: $(FAKES)/libcudart.so.13
	$(Q)ln -sf $(<F) $@

# By name only: the soname of a hashed library is changed, too.
$(FAKES)/copy/libcudart-1a2b3c4d.so.13: $(FAKE_RUNTIME_SRCS:%.c=$(BUILD)/%.o) tests/fakes/libcudart.map
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(FAKE_LDFLAGS) -Wl,-soname,$(@F) \
		-Wl,--version-script=$(filter %.map,$^) -o $@ $(filter %.o,$^) -ldl

$(BUILD)/tests/cuda/%: CFLAGS += $(NO_BUILTIN)
$(BUILD)/tests/cuda/%: tests/cuda/%.c $(FAKE_LIBRARIES)
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -pthread -o $@ $< \
		$(if $(filter %_rt,$@),-L$(FAKES) -lcudart) $(if $(filter %_drv,$@),-L$(FAKES) -lcuda) -ldl

# What scripts/gpu-check runs on NVIDIA's libraries is linked as programs of their users are: with a
# runtime by the name of a CUDA release, for which the fake one stands in.
GPU_RELEASES := 12 13
GPU_PROGRAMS := $(foreach release,$(GPU_RELEASES),$(GPU_SRCS:tests/gpu/%.c=$(BUILD)/tests/gpu/$(release)/%))

$(BUILD)/tests/gpu/%/libcudart.so: $(FAKE_RUNTIME_SRCS:%.c=$(BUILD)/%.o) tests/fakes/libcudart.map
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)sed 's/13/$*/' $(filter %.map,$^) >$(@D)/libcudart.map
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(FAKE_LDFLAGS) -Wl,-soname,$(@F).$* \
		-Wl,--version-script=$(@D)/libcudart.map -o $@ $(filter %.o,$^) -ldl

define gpu_programs
$$(BUILD)/tests/gpu/$(1)/%: CFLAGS += $$(NO_BUILTIN)
$$(BUILD)/tests/gpu/$(1)/%: tests/gpu/%.c $$(BUILD)/tests/gpu/$(1)/libcudart.so $$(FAKES)/libcuda.so
	@mkdir -p $$(@D)
	$$(say) CC $$@
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) -MMD -MP -MF $$@.d $$(LDFLAGS) -pthread -o $$@ $$< \
		-Wl,--as-needed -L$$(BUILD)/tests/gpu/$(1) -lcudart -L$$(FAKES) -lcuda -ldl

endef
$(foreach release,$(GPU_RELEASES),$(eval $(call gpu_programs,$(release))))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

tests: all $(addprefix $(BUILD)/fault/,$(LIBRARY) $(AIO_LIBRARY)) $(call UNIT_TESTS,$(BUILD)) $(PRELOAD_PROGRAMS) \
	$(AIO_PROGRAMS) $(PROGRAM_PROGRAMS) $(FAKE_LIBRARIES) $(CUDA_PROGRAMS) $(GPU_PROGRAMS)

# What scripts/gpu-check needs.
gpu: $(PRODUCTS) $(FAKE_LIBRARIES) $(GPU_PROGRAMS)

# The targets below that install something must do so before the rest is looked at.
again = +$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))

demo:
	scripts/setup --build --demo
	$(again) all
	scripts/demo

check:
	scripts/setup --build --test
	$(again) check-built

check-built: tests $(call UNIT_TESTS,$(BUILD)/asan) $(call UNIT_TESTS,$(BUILD)/tsan)
	tests/run $(call UNIT_TESTS,$(BUILD)) $(call UNIT_TESTS,$(BUILD)/asan) \
		$(call UNIT_TESTS,$(BUILD)/tsan) $(SCRIPT_TESTS)

check-asan: $(call UNIT_TESTS,$(BUILD)/asan) $(call UNIT_TESTS,$(BUILD)/tsan)
	tests/run $^

# Programs that are large to install. CLIENTS_SECONDS is the most that pip may take for that, and again
# the most for all the tests. Status 3 is setup's for what only pip can install.
CLIENTS_SECONDS ?= 3600
check-clients:
	CLIENTS_SECONDS=$(CLIENTS_SECONDS) scripts/setup --build --test --clients || test $$? = 3
	$(again) check-clients-built

check-clients-built: tests
	tests/run -t 360 -T $(CLIENTS_SECONDS) $(sort $(wildcard tests/clients/*.sh))

# In a virtual machine, where this one has the memory controller in version 1.
check-cgroup2: tests
	scripts/cgroup2-check

# BENCH_OPTIONS are for tests/bench/run: --quick, --long, --only=GROUP,...
bench:
	scripts/setup --build --bench
	$(again) bench-built

bench-built: all $(BENCH_PROGRAMS) $(PRELOAD_PROGRAMS) $(BUILD)/uncounted/libpinshim.so
	tests/bench/run $(BENCH_OPTIONS)

lint: lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-format lint-man

# The two compilers look at both sides of PS_FAULT_INJECTION between them.
syntax = xargs -P $(JOBS) -n 8 scripts/lint-syntax
lint-gcc:
	$(say) LINT $(CC)
	$(Q)printf '%s\n' $(C_SRCS) $(HEADERS) | $(syntax) $(CC) $(CPPFLAGS) $(WARNINGS) --

lint-clang:
	$(say) LINT $(CLANG)
	$(Q)printf '%s\n' $(C_SRCS) $(HEADERS) | \
		$(syntax) $(CLANG) $(CPPFLAGS) $(WARNINGS) -DPS_FAULT_INJECTION --
	$(Q)$(foreach header,$(PUBLIC_HEADERS),$(CLANG) -fsyntax-only $(INCLUDES) -Wall -Wextra -Werror \
		-Wno-unused-function -x c++ $(header) &&) :

lint-tidy:
	$(say) LINT $(CLANG_TIDY)
	$(Q)printf '%s\n' $(C_SRCS) | \
		xargs -P $(JOBS) -n 1 scripts/lint-tidy $(CLANG_TIDY) $(CPPFLAGS) -DPS_FAULT_INJECTION --

lint-cppcheck:
	$(say) LINT cppcheck
	$(Q)mkdir -p $(BUILD)/cppcheck
	$(Q)cppcheck --quiet -j $(JOBS) --cppcheck-build-dir=$(BUILD)/cppcheck --std=c11 \
		--library=gnu --enable=warning,performance,portability --inline-suppr \
		--suppressions-list=.cppcheck --error-exitcode=1 -Iallocator -Iinterpose -Iaio -D_GNU_SOURCE \
		-D__x86_64__ $(C_SRCS)

lint-shell:
	$(say) LINT shellcheck
	$(Q)shellcheck -x -P SCRIPTDIR $(SCRIPTS) $(wildcard tests/lib/*.sh tests/*/*.bash tools/*.bash-completion)

lint-format:
	$(say) LINT $(CLANG_FORMAT)
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(C_SRCS) $(HEADERS)

lint-man:
	$(say) LINT mandoc
	$(if $(MAN_PAGES),$(Q)mandoc -T lint -W warning $(MAN_PAGES))

format:
	$(CLANG_FORMAT) -i $(C_SRCS) $(HEADERS)

install: all
	$(INSTALL) -d $(DESTDIR)$(libdir) $(DESTDIR)$(bindir) $(DESTDIR)$(includedir)
	$(if $(LIBRARY)$(AIO_LIBRARY),$(INSTALL) -m 755 \
		$(addprefix $(BUILD)/,$(LIBRARY) $(AIO_LIBRARY)) $(DESTDIR)$(libdir))
	$(if $(TOOL),$(INSTALL) -m 755 $(BUILD)/$(TOOL) $(DESTDIR)$(bindir))
	$(if $(TOOL),$(INSTALL) -D -m 644 tools/pinshim.bash-completion $(DESTDIR)$(completionsdir)/pinshim)
	$(if $(PUBLIC_HEADERS),$(INSTALL) -m 644 $(PUBLIC_HEADERS) $(DESTDIR)$(includedir))
	$(foreach page,$(MAN_PAGES),$(INSTALL) -D -m 644 $(page) \
		$(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)) &&) :

clean:
	rm -rf $(BUILD)

help:
	@echo 'all         $(BUILD)/libpinshim.so, $(BUILD)/pinshim (the default)'
	@echo 'demo        installs what is missing, builds, and shows plain against pinned'
	@echo 'check       installs what is missing, builds, and runs every test'
	@echo 'check-asan  the unit tests under ASan+UBSan, and again under TSan'
	@echo 'check-clients  installs what is missing (6 GB), and runs PyTorch, DeepSpeed and other real'
	@echo '            programs with the libraries and without'
	@echo 'check-cgroup2  memory limits of cgroup version 2, in a virtual machine (scripts/setup --vm)'
	@echo 'tests       builds what the tests need without running them'
	@echo 'bench       installs what is missing, builds, and runs the benchmarks (ten minutes)'
	@echo 'gpu         builds what scripts/gpu-check runs on a machine with a GPU'
	@echo 'lint        gcc, clang, clang-tidy, cppcheck, shellcheck, clang-format, mandoc'
	@echo 'format      lays the sources out as lint wants them'
	@echo 'install     honours PREFIX (or prefix, libdir, ...) and DESTDIR'
	@echo 'clean       removes $(BUILD)/'
	@echo
	@echo 'V=1 shows whole commands; WERROR= lets warnings pass; JEMALLOC_A=FILE is another'
	@echo 'libjemalloc_pic.a 5.3.x; CC, CFLAGS, LDFLAGS are honoured.'
