# The only front door. `make run` and `make test` need nothing done by hand on a
# fresh Debian 12; everything else is a part of them.

CARGO    ?= $(shell sh guest-kernel-config/setup.sh --cargo)
GUESTS   := guest-kernel-config/payload guest-kernel-config/guest-init guest-kernel-config/guest-bench
MODEL    := guest-kernel-config/locks/model
TESTS    := target/x86_64-unknown-linux-gnu/release/pvticket-tests
PVTICKET := target/x86_64-unknown-linux-gnu/release/pvticket

.PHONY: run test check e2e report fuzz bench soak build kernel kernel-stock kernels host busybox guest-disk trace-processor browser setup header lint deny clean help

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

run: build kernel host busybox ## Set up, build, boot the Linux guest, run both comparisons
	@$(PVTICKET) doctor
	@printf '\n== A Linux guest with PV ticketlocks, 4 vCPUs ==\n'
	@$(PVTICKET) boot --cpus 4 -- sh -c 'uname -r; echo "CPUs: $$(nproc)"; dmesg | grep pvticket:'
	@printf '\n== Ring-3 payload: native and PV ticketlocks under overcommit ==\n'
	@$(PVTICKET) compare --guest payload
	@printf '\n== The same lock, scheduled by us: blindly, aware of locks, and with kicks that hand over the slot ==\n'
	@$(PVTICKET) compare --guest payload --vcpus 2x --runs 6 --policy rr,deferred,kick-boost
	@printf '\n== Linux guest: native and PV ticketlocks under overcommit ==\n'
	@$(PVTICKET) compare --guest linux --vcpus 1x,2x

# What cannot be had without the guest disk or the trace processor is skipped, and says why.
test: check build kernels host busybox ## Run every check and test (25 min the first time, 15 then)
	$(CARGO) test --locked --quiet --manifest-path $(MODEL)/Cargo.toml
	-@$(MAKE) --no-print-directory guest-disk
	-@$(MAKE) --no-print-directory trace-processor browser
	$(CARGO) build --locked --quiet --release --package pvticket-tests
	@$(TESTS) $(TEST_ARGS)

check: lint ## Formatting, lints, unit tests, documentation: no kernel, no QEMU (3 min)
	$(CARGO) test --locked --quiet --workspace
	$(CARGO) test --locked --quiet --manifest-path guest-kernel-config/guest-init/Cargo.toml
	$(CARGO) test --locked --quiet --manifest-path guest-kernel-config/guest-bench/Cargo.toml
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --quiet --workspace --no-deps --document-private-items

e2e: build kernels host busybox ## Run the end-to-end tests whose names contain FILTER
	$(CARGO) build --locked --quiet --release --package pvticket-tests
	@$(TESTS) $(FILTER) $(TEST_ARGS)

# Where it goes; `make report REPORT_DIR=...` for another place.
REPORT_DIR := runs/collapse-$(shell date -u +%Y-%m-%dT%H-%M-%S)

report: build host ## Run the experiment `collapse` and make its page
	@$(PVTICKET) run collapse --dir $(REPORT_DIR)

bench: build kernel host busybox ## Measure boot time, memory, exits, hypercalls, schedules, and what traces cost
	@$(PVTICKET) bench boot
	@$(PVTICKET) bench hypercalls
	@$(PVTICKET) bench hypercalls --host emulated
	@$(PVTICKET) bench sched
	@$(PVTICKET) bench trace

# All unit tests, so that none of those that feed noise is left out: PROPTEST_CASES is theirs alone.
fuzz: setup ## Feed noise to all that reads files, streams and requests, FUZZ_CASES each
	PROPTEST_CASES=$${FUZZ_CASES:-20000} $(CARGO) test --locked --quiet --workspace --lib

soak: build ## Take a lock 10^9 times while kicks and halts go wrong, and each 10^7 times step by step
	@$(PVTICKET) soak $(SOAK_ARGS)
	@$(CARGO) run --locked --quiet --release --package pvticket-stepper -- --acquisitions 10000000

build: setup ## Build the binary, its embedded guests included
	@$(CARGO) build --locked --quiet --release --package pvticket

kernel: setup ## Build the PV ticketlock guest kernel, or find it in the cache
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel

kernel-stock: setup ## Build the comparison kernel with stock PV queued spinlocks
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel FLAVOUR=stock-pvqspinlock

kernels: setup ## Build both, from one unpacked source
	@$(MAKE) --no-print-directory -C guest-kernel-config/linux kernel FLAVOUR='pvticket stock-pvqspinlock'

host: setup ## Fetch the emulated host's kernel, and a QEMU where this system's is old
	@sh guest-kernel-config/host/fetch.sh
	@sh guest-kernel-config/host/qemu.sh

busybox: setup ## Fetch the static busybox of the guest
	@sh guest-kernel-config/setup.sh --busybox

guest-disk: setup ## Fetch PostgreSQL for the guest's pgbench-table
	@sh guest-kernel-config/postgres/fetch.sh

trace-processor: setup ## Fetch Perfetto's trace processor for the tests of traces
	@sh tests/trace-processor/fetch.sh

browser: setup ## Install Chromium for the tests of reports
	@sh guest-kernel-config/setup.sh --browser

setup: ## Install what is missing
	@sh guest-kernel-config/setup.sh

header: setup ## Write the C header of the contract
	$(CARGO) run --locked --quiet --package pvticket-hypercalls --bin pvticket-header > hypercalls/include/pvticket_abi.h

lint: setup ## Formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --quiet --workspace --all-targets -- -D warnings
	@set -e; for other in $(GUESTS) $(MODEL); do \
		$(CARGO) fmt --manifest-path $$other/Cargo.toml --check; \
		$(CARGO) clippy --locked --quiet --manifest-path $$other/Cargo.toml -- -D warnings; \
	done

deny: setup ## Licences and advisories of the dependencies (needs cargo-deny)
	$(CARGO) deny --locked check

clean: ## Remove what was built here (the cache stays)
	$(CARGO) clean --locked
