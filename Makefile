# The entry point. `make run` and `make test` need no manual steps on a fresh Debian 12; all other
# targets are parts of these.

# Without make's job server: its descriptors are not inherited.
CARGO    ?= env -u MAKEFLAGS -u MFLAGS $(shell sh guest-kernel-config/setup.sh --cargo)
GUESTS   := guest-kernel-config/payload guest-kernel-config/guest-init guest-kernel-config/guest-bench
MODEL    := guest-kernel-config/locks/model
FUZZ     := tests/fuzz
# Unit tests and end-to-end tests are built with the profile `dev`, in one build of all crates; measurements, packages and
# `make test-all` with `release`.
E2E      := $(CARGO) test --locked --quiet --workspace --test e2e
E2E_ALL  := $(CARGO) test --locked --quiet --release --workspace --test e2e
PVTICKET := target/x86_64-unknown-linux-gnu/release/pvticket

CACHE := $(or $(PVTICKET_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pvticket)

# The kernel of the emulated host in everything below: 6.1 or 7.
HOST_KERNEL ?= $(or $(PVTICKET_HOST_KERNEL),6.1)
export PVTICKET_HOST_KERNEL := $(HOST_KERNEL)

.PHONY: run test test-all test-log check e2e report fuzz fuzz-coverage miri bench soak build kernel kernel-stock kernels host busybox guest-disk trace-processor browser slurm clang setup bpf header lint check-licences dist crates package-test clean help

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# Not $(MAKE): `make -n run` would run it.
RUN_MAKE := $(MAKE)

run: ## Set up, build, measure payload and Linux guest, and end with the answer (about 7 min the first time, then 3; RUN_DIR=... for the results)
	@MAKE='$(RUN_MAKE)' PVTICKET='$(PVTICKET)' RUN_DIR='$(RUN_DIR)' sh vmm/first-run.sh

# Tests that need the trace processor, Chromium or Slurm are skipped without them, with the reason.
# Cargo builds and other downloads and builds run in parallel: each alone leaves one of two CPUs idle for a third of
# its time. End-to-end tests run after them.
test: setup ## Show that every promise holds and no past bug is back (about 12 min; 16 the first time)
	@$(MAKE) --no-print-directory -j2 --output-sync=line test-code test-machines
	$(E2E) -- $(TEST_ARGS)

# Results of unit tests and model checkers do not depend on time. The first line builds the binary and the programs of
# all tests, with the same features in each crate.
.PHONY: test-code test-machines test-tools
test-code: setup
	$(CARGO) build --locked --quiet --workspace --bins --examples --tests --test e2e
	$(call UNIT_TESTS)
	$(call MODEL_TESTS)

test-machines: setup
	@$(MAKE) --no-print-directory kernel host busybox test-tools

# Separate commands: a missing program does not hide the next.
test-tools: setup
	-@$(MAKE) --no-print-directory trace-processor
	-@$(MAKE) --no-print-directory browser
	-@$(MAKE) --no-print-directory slurm

# The release build, all tests in short and long forms, both kernels of the emulated host, fuzzing, Miri, the packages.
test-all: setup ## Run all tests in their long forms, and what needs a quiet machine (60 min)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j2 --output-sync=line all-code all-machines
	@FUZZ_S=$(or $(FUZZ_S),20) $(MAKE) --no-print-directory fuzz
	$(E2E_ALL) -- --include-ignored $(TEST_ARGS)
	@[ ! -e $(CACHE)/host-7/current ] || PVTICKET_HOST_KERNEL=7 $(E2E_ALL) -- --include-ignored host::emulated::
	@$(MAKE) --no-print-directory miri

.PHONY: all-code all-machines
all-code: setup
	$(call UNIT_TESTS,,-- --include-ignored)
	$(call MODEL_TESTS,--features all-mutants)
	$(CARGO) build --locked --quiet --release --workspace --bins --examples --test e2e
	$(CARGO) clippy --locked --quiet --package fuzz --features libfuzzer --bin pvticket-fuzz -- -D warnings
	@env -u MAKEFLAGS -u MFLAGS sh $(FUZZ)/build.sh >/dev/null

all-machines: setup
	@$(MAKE) --no-print-directory kernels host busybox test-tools
	-@$(MAKE) --no-print-directory kernels KERNEL=6.1
	-@$(MAKE) --no-print-directory kernels KERNEL=7
	-@$(MAKE) --no-print-directory host HOST_KERNEL=7
	-@$(MAKE) --no-print-directory clang
	-@$(MAKE) --no-print-directory guest-disk
	@$(MAKE) --no-print-directory dist
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory package-test; \
	else echo "skipped package-test: only root can make a root of its own"; fi

check: lint ## Formatting, lints, documentation, unit tests, and Miri where it is: no kernel, no QEMU (7 min, Miri 5)
	$(UNIT_TESTS)
	@$(MAKE) --no-print-directory miri

miri: setup ## Run unit tests of the crates without system calls under Miri, if the nightly toolchain has it
	@sh tests/miri.sh

# With the options $(1), and $(2) for the programs.
define UNIT_TESTS
$(CARGO) test --locked --quiet --workspace $(1) $(2)
$(CARGO) test --locked --quiet --manifest-path guest-kernel-config/guest-init/Cargo.toml $(2)
$(CARGO) test --locked --quiet --manifest-path guest-kernel-config/guest-bench/Cargo.toml $(2)
endef

# With the options $(1).
MODEL_TESTS = $(CARGO) test --locked --quiet --manifest-path $(MODEL)/Cargo.toml $(1)

DOC = RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --quiet --workspace --no-deps --document-private-items

e2e: setup kernels host busybox ## Run the end-to-end tests whose names contain FILTER
	$(CARGO) build --locked --quiet --workspace --bins --examples --test e2e
	$(E2E) -- --include-ignored $(FILTER) $(TEST_ARGS)

# An unlisted system call kills the program, which hides the next unlisted call. Here each call is reported and
# executed, and tests with a report fail.
test-log: setup kernels host busybox ## Run the end-to-end tests whose names contain FILTER with PVTICKET_SECCOMP=log: none may report a call
	$(CARGO) build --locked --quiet --workspace --bins --examples --test e2e
	PVTICKET_SECCOMP=log $(E2E) -- $(FILTER) $(TEST_ARGS)

# The directory of the run; override it by `make report REPORT_DIR=...`.
REPORT_DIR := runs/collapse-$(shell date -u +%Y-%m-%dT%H-%M-%S)

report: build host ## Run the experiment `collapse` and make its page
	@$(PVTICKET) run collapse --dir $(REPORT_DIR)

bench: build kernel host busybox ## Measure boot time, memory, exits, and hypercalls
	@$(PVTICKET) bench boot
	@$(PVTICKET) bench hypercalls
	@$(PVTICKET) bench hypercalls --host emulated

fuzz: setup ## Fuzz all that guests, files and peers can send, FUZZ_S seconds (60) or FUZZ_RUNS executions for each target
	@sh $(FUZZ)/run.sh $(FUZZ_TARGETS)

fuzz-coverage: setup ## Show the lines that the inputs of each fuzz target reach (needs llvm-cov)
	@sh $(FUZZ)/coverage.sh

soak: build ## Take a lock for 4 min with faults injected, and every lock 10^7 times on simulated vCPUs
	@$(PVTICKET) run soak $(SOAK_ARGS)
	@$(PVTICKET) search --cases --acquisitions 10000000

build: setup ## Build the binary, its embedded guests included
	@$(CARGO) build --locked --quiet --release --package pvticket

# `make -C` changes the folder, so these paths are absolute.
KERNEL_PATHS = $(foreach name,KERNEL_SRC KERNEL_CONFIG,$(if $($(name)),$(name)='$(abspath $($(name)))'))

kernel: setup ## Build the PV ticketlock guest kernel, or find it in the cache (KERNEL=6.1 or 7: of another Linux)
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel $(KERNEL_PATHS)

kernel-stock: setup ## Build the comparison kernel with stock PV queued spinlocks
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel FLAVOUR=stock-pvqspinlock $(KERNEL_PATHS)

kernels: setup ## Build both, from one unpacked source (KERNEL=6.1 or 7: of another Linux)
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel FLAVOUR='pvticket stock-pvqspinlock' $(KERNEL_PATHS)

# The tests also boot 6.1 as a guest.
host: setup ## Fetch the emulated host's kernel (HOST_KERNEL=7: a 7.x, too), and a QEMU where this system's is old
	@HOST_KERNEL=6.1 sh guest-kernel-config/host/fetch.sh
	@[ "$(HOST_KERNEL)" = 6.1 ] || HOST_DEB= HOST_KERNEL=$(HOST_KERNEL) sh guest-kernel-config/host/fetch.sh
	@sh guest-kernel-config/host/qemu.sh

busybox: setup ## Fetch the static busybox of the guest
	@sh guest-kernel-config/setup.sh --busybox

guest-disk: setup ## Fetch PostgreSQL for the workload pgbench
	@sh guest-kernel-config/postgres/fetch.sh

trace-processor: setup ## Fetch Perfetto's trace processor for the tests of traces
	@sh tests/trace-processor/fetch.sh

browser: setup ## Install Chromium for the tests of reports
	@sh guest-kernel-config/setup.sh --browser

slurm: setup ## Install Slurm for the tests of parts
	@sh guest-kernel-config/setup.sh --slurm

clang: setup ## Install the clang with which a test builds the BPF scheduler again
	@sh guest-kernel-config/setup.sh --clang

setup: ## Install what is missing
	@sh guest-kernel-config/setup.sh

bpf: ## Compile the scheduler in BPF (with clang, or the one in PVTICKET_CLANG)
	@sh vmm/bpf/scheduler/build.sh

header: setup ## Write the C header of the contract
	$(CARGO) run --locked --quiet --package pvticket-hypercalls --bin pvticket-header > hypercalls/include/pvticket_abi.h

# The guests and the model have separate target folders, so that checks run in parallel with the workspace.
lint: setup ## Formatting, clippy and documentation (3 min)
	@$(MAKE) --no-print-directory -j2 --output-sync=line lint-workspace lint-guests

# `--all-targets` excludes the end-to-end tests, since they run only by name.
.PHONY: lint-workspace lint-guests
lint-workspace: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --quiet --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --quiet --workspace --test e2e -- -D warnings
	$(CARGO) test --locked --quiet --package tests --lib -- words
	$(DOC)

lint-guests: setup
	@set -e; for other in $(GUESTS) $(MODEL); do \
		$(CARGO) fmt --manifest-path $$other/Cargo.toml --check; \
		$(CARGO) clippy --locked --quiet --manifest-path $$other/Cargo.toml --all-targets -- -D warnings; \
	done

# cargo-deny takes four minutes to build, so `make test` does not run it. Its advisories need a
# database from the network: `cargo deny check advisories`.
DENY := $(CACHE)/cargo-deny
check-licences: setup ## Licences, sources and bans of the dependencies (3 min the first time)
	@$(CARGO) install --locked --quiet --version 0.20.2 --root $(DENY) cargo-deny
	@PATH=$(DENY)/bin:$$PATH $(CARGO) deny --locked check licenses bans sources

# The scripts call the same cargo as the Makefile.
WITH_CARGO := $(patsubst %cargo,%,$(CARGO))

dist: setup ## Make the tarball and the Debian package, in target/dist (8 min the first time)
	@$(WITH_CARGO) sh vmm/packaging/dist.sh

package-test: setup ## Try the Debian package of make dist on a clean Debian 12 (as root; 15 min)
	@sh guest-kernel-config/setup.sh --debootstrap
	@sh vmm/packaging/test.sh

crates: setup ## Package the crates that others can use, and build them from their packages
	@$(CARGO) package --locked --package pvticket-hypercalls --package pvticket-base --package pvticket-locks --package pvticket-sched

clean: ## Remove what was built here (the cache stays)
	$(CARGO) clean --locked
