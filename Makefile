# Laneway's verbs: `make help`. A menu of one-liners; what needs thought is in xtask/ (Rust).
# Every verb works from a fresh clone on Debian 12 with a Rust toolchain. As root, missing packages
# are installed, named with their reasons; otherwise the command to run is printed, and what can be
# built without them still runs.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
LANEWAY := $(TARGET_DIR)/release/laneway

# make race PCAP=mine.pcap OUT=out/mine MODE=--full ARGS="--lane xdp"
OUT ?= out/race-features
PCAP ?=
MODE ?= --quick
ARGS ?=

# The first capture that ships, for what can be shown without root.
SHIPPED := $(firstword $(sort $(wildcard scenarios/*.pcap* scenarios/*/*.pcap*)))

RACE = $(LANEWAY) race features $(MODE) --out $(OUT) $(if $(PCAP),--pcap $(PCAP)) $(ARGS)

# 2 is xtask's word for "something is missing, and it is named": go on with what there is.
INSTALL := cargo xtask install
GO_ON := || [ $$? -eq 2 ]

.DEFAULT_GOAL := help
.PHONY: help race bench bench-quick gallery book deb soak test vm-test lint tidy fmt install clean toolchain

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

race: toolchain ## install what is missing, build, race the lanes under app features (about 2 minutes)
	@$(INSTALL) --race $(GO_ON)
	LANEWAY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --release --package laneway-cli
	@if [ "$$(id -u)" -ne 0 ]; then \
	    echo "make race: a race needs root: it creates network namespaces and veth pairs, opens packet"; \
	    echo "           sockets and loads eBPF programs; run: sudo env \"PATH=\$$PATH\" make race"; \
	    echo "make race: without root, this much: the same features from a capture file"; \
	    mkdir -p out && $(LANEWAY) features $(or $(PCAP),$(SHIPPED)) -o out/features.parquet \
	        && echo "make race: rows are in out/features.parquet"; \
	    exit 2; \
	fi; \
	echo "$(RACE)"; $(RACE); code=$$?; \
	case $$code in \
	    0) ;; \
	    2) echo "make race: no result (2): the sentence above says what failed, and when" ;; \
	    3) echo "make race: not decided (3): the machine was too busy, or differs from itself; the report says which" ;; \
	    4) echo "make race: invalid (4): a ledger is open, or a frame arrived twice; the report says which" ;; \
	    *) echo "make race: ended with $$code" ;; \
	esac; \
	case $$code in 0|3|4) echo "make race: the report is $(OUT)/report.html" ;; esac; \
	exit $$code

bench: toolchain ## every figure of docs/measurements again: races, idle lanes, costs, the judge itself (about three hours)
	@$(INSTALL) --race $(GO_ON)
	LANEWAY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --release --package laneway-cli
	-$(LANEWAY) race features $(MODE) --out out/race-features
	-$(LANEWAY) race features-goals $(MODE) --out out/race-features-goals
	-$(LANEWAY) race lanes $(MODE) --out out/race-lanes
	-$(LANEWAY) race lanes --wakeup --out out/wakeup
	-$(LANEWAY) race ping $(MODE) --out out/race-ping
	-$(LANEWAY) race forward $(MODE) --out out/race-forward
	-$(LANEWAY) race tap $(MODE) --trace --out out/race-tap
	-$(LANEWAY) race tracer $(MODE) --out out/race-tracer
	-$(LANEWAY) race relay $(MODE) --out out/race-relay
	-$(LANEWAY) race kv-echo $(MODE) --out out/race-kv-echo
	-$(LANEWAY) race kv $(MODE) --out out/race-kv
	-$(LANEWAY) race features --load 2000,50000,100000 --time 180 --out out/race-features-report
	-$(LANEWAY) report --claims out/race-features-report out/race-ping/live out/race-tap out/race-relay/report > out/founding-reports.md
	-$(LANEWAY) report --figures $$(ls -d out/race-*/result.json out/race-*/*/result.json 2>/dev/null) > out/figures.md
	cargo run --release --package laneway-dpdk --example contract_cost
	cargo run --release --package laneway-forward --example rules_cost
	cargo run --release --package laneway-forward --example rules_places
	cargo run --release --package laneway-engine --example tracer_cost
	cargo run --release --package laneway-lab --example send_cost
	cargo run --release --package laneway-stack --example requests
	cargo test --release --package laneway-stats --test pair_proof -- --ignored --nocapture
	cargo test --release --package laneway-lab --lib meter::cost -- --ignored --nocapture
	-cargo run --release --package laneway-lab --example judge -- $(LANEWAY)

# make gallery RUNS=3; SEED=n RUNS=1 KIND=name repeats a miss; ARGS="--keep DIR" leaves its recording
RUNS ?=
KIND ?=

gallery: toolchain ## real situations with a known cause put the trace half's judgement on trial (at most 90 minutes)
	@$(INSTALL) --test $(GO_ON)
	cargo build --release --package laneway-cli --package laneway-trace-gallery
	$(TARGET_DIR)/release/laneway-trace-gallery --laneway $(LANEWAY) $(if $(RUNS),--runs $(RUNS)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND)) $(ARGS)

bench-quick: toolchain ## instructions of the hot paths against bench/baseline.toml (10 s after the build; ARGS=update writes it)
	@$(INSTALL) --test $(GO_ON)
	cargo build --release --package laneway-bench
	$(TARGET_DIR)/release/laneway-bench $(or $(ARGS),check)

book: toolchain ## the guide as pages, with the reference made from the code's tables, in target/book
	@mdbook --version >/dev/null 2>&1 || cargo install --locked mdbook
	LANEWAY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --release --package laneway-cli
	rm -rf $(TARGET_DIR)/guide && cp -r docs/guide $(TARGET_DIR)/guide
	@# What lies outside the guide is named, not linked: the pages stand alone.
	sed -i -E -e 's#\[([^]]*)\]\(\.\./\.\./([^)]*)\)#\1 (`\2`)#g' -e 's#\[([^]]*)\]\(\.\./([^)]*)\)#\1 (`docs/\2`)#g' \
	    $(TARGET_DIR)/guide/*.md
	$(LANEWAY) manual --out $(TARGET_DIR)/guide && rm -r $(TARGET_DIR)/guide/man $(TARGET_DIR)/guide/completions
	cd $(TARGET_DIR)/guide && { echo; echo '# Reference'; echo; \
	    for page in reference/*.md; do echo "- [$$(sed -n 's/^# //p' $$page | head -n 1)]($$page)"; done; } >> SUMMARY.md
	mdbook build $(TARGET_DIR)/guide

deb: toolchain ## a package with the binary, manual pages, completions and units, in target/debian
	@$(INSTALL) --build $(GO_ON)
	@cargo deb --version >/dev/null 2>&1 || cargo install --locked cargo-deb
	LANEWAY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --release --package laneway-cli
	rm -rf $(TARGET_DIR)/package && $(LANEWAY) manual --out $(TARGET_DIR)/package
	cargo deb --no-build --package laneway-cli

# make soak SECONDS=3600
# make soak APP=relay LANE=socket|uring|afxdp|xdp MINUTES=10; SEED=n draws the same again
# make soak APP=kv LANE=socket|uring WORKERS=2 MINUTES=10; SEED=n
# make soak APP=connections LANE=socket|uring|packet
# make soak APP=kv-cluster MINUTES=10; SEED=n
# make soak APP=journal; SEED=n
APP ?= forward
LANE ?= socket
MINUTES ?= 10
WORKERS ?= 1
SECONDS ?= 600
SEED ?=

soak: toolchain ## numbered frames while rules come and go: none doubled, reordered, lost unnamed (10 minutes; APP=relay, kv, connections, journal too)
	@$(INSTALL) --test $(GO_ON)
	@case "$(APP)" in \
	    forward) LANEWAY_SOAK_SECONDS=$(SECONDS) \
	        cargo test --release --package laneway-forward --test lanes -- --ignored soak --nocapture ;; \
	    relay) LANEWAY_SOAK_LANE="$(LANE)" LANEWAY_SOAK_SECONDS=$$(($(MINUTES) * 60)) LANEWAY_SOAK_SEED=$(SEED) \
	        cargo test --release --package laneway-cli --test relay -- --ignored soak_for_as_long --nocapture ;; \
	    kv) LANEWAY_SOAK_LANE="$(LANE)" LANEWAY_SOAK_WORKERS=$(WORKERS) LANEWAY_SOAK_SECONDS=$$(($(MINUTES) * 60)) LANEWAY_SOAK_SEED=$(SEED) \
	        cargo test --release --package laneway-cli --test store -- --ignored soak_for_as_long --nocapture ;; \
	    connections) LANEWAY_SOAK_LANE="$(LANE)" \
	        cargo test --release --package laneway-cli --test store -- --ignored nothing_is_left --nocapture ;; \
	    kv-cluster) export LANEWAY_SOAK_SECONDS=$$(($(MINUTES) * 30)) LANEWAY_SOAK_SEED=$(SEED); \
	        cargo test --release --package laneway-kv --lib -- --ignored soak_in_front --nocapture && \
	        cargo test --release --package laneway-registry --test store -- --ignored soak_in_front --nocapture ;; \
	    journal) LANEWAY_JOURNAL_ALL=1 LANEWAY_JOURNAL_SEED=$(SEED) \
	        cargo test --release --package laneway-journal --tests ;; \
	    *) echo "make soak: APP=$(APP) has none; use forward, relay, kv, connections, kv-cluster or journal"; exit 2 ;; \
	esac

test: toolchain ## install what is missing, run every test; ARGS="-p laneway-wire" narrows it
	@$(INSTALL) --test $(GO_ON)
	@scope=$$(cargo xtask testable) || exit 2; \
	case " $(ARGS)" in *" -p "*) scope= ;; esac; \
	echo "cargo test $$scope $(ARGS)"; cargo test $$scope $(ARGS)

vm-test: toolchain ## boot Linux 6.1 and 6.12 under QEMU and test there; MODE=--short takes at most 5 minutes
	@$(INSTALL) --vm $(GO_ON)
	@scope=$$(cargo xtask testable) || exit 2; xtask/vm/vm-test.sh $(MODE) $$scope

lint: toolchain ## format, clippy, tidy, and licences where cargo-deny is installed; changes nothing
	@$(INSTALL) --build $(GO_ON)
	cargo fmt --all -- --check
	@scope=$$(cargo xtask testable) || exit 2; \
	echo "cargo clippy $$scope --all-targets -- -D warnings"; \
	cargo clippy $$scope --all-targets -- -D warnings
	cargo xtask tidy
	@if cargo deny --version >/dev/null 2>&1; then \
	    echo "cargo deny check licenses bans sources"; cargo deny check licenses bans sources; \
	else echo "make lint: skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"; fi

tidy: toolchain ## the rules of the house: arrows, words, links, leftovers
	cargo xtask tidy

fmt: toolchain ## format the Rust sources, and the C ones where clang-format is installed
	cargo fmt --all
	@sources=$$(git ls-files '*.c' '*.h'); \
	if [ -z "$$sources" ]; then :; \
	elif command -v clang-format-19 >/dev/null; then clang-format-19 -i $$sources; \
	else echo "make fmt: skipped: C sources: clang-format-19 is not installed"; fi

install: toolchain ## install the packages that building, racing and testing need, with reasons
	@$(INSTALL) --test

clean: ## delete what was built; reports under out/ stay
	cargo clean

# cargo cannot build even xtask without a linker, so this one package is seen to here.
toolchain:
	@command -v cargo >/dev/null || { \
	    echo "make: no cargo on the path; install Rust with rustup (rust-toolchain.toml names the version)." >&2; \
	    echo "make: under sudo, keep your path: sudo env \"PATH=\$$PATH\" make ..." >&2; exit 2; }
	@command -v cc >/dev/null || { \
	    echo "make: no cc; cargo needs gcc and libc6-dev to link"; \
	    if [ "$$(id -u)" -ne 0 ]; then \
	        echo "make: run: sudo apt-get install -y --no-install-recommends gcc libc6-dev" >&2; exit 2; \
	    fi; \
	    apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev; }
