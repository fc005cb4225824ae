# Targets of the benchmark harness; included by the Makefile at the root.

.PHONY: bench-pii bench bench-full bench-peers bench-report bench-build bench-instructions

bench-build:
	cargo build --release -p interflow -p interflow-testkit -p interflow-bench

# Every table in its short form, in less than 15 minutes.
bench: bench-build
	./target/release/interflow-bench run

# Every table and case, longer runs and more of them, a million flows and a soak of half an hour; about four hours.
bench-full: bench-build
	./target/release/interflow-bench run --full

# Installs the peers and asks each for a page.
bench-peers: bench-build
	./target/release/interflow-bench peers

# The report again from the results there are.
bench-report: bench-build
	./target/release/interflow-bench report

# Instruction counts of the hot paths; fails when one grows by more than 5 %. `UPDATE=1` writes them anew.
bench-instructions:
	cargo build --release -p interflow -p interflow-bench
	./target/release/interflow-bench instructions $(if $(UPDATE),--update)

# Detection on labelled texts (PII_DATA=FOLDER), per type, beside Presidio's pattern recognisers.
bench-pii:
	@bench/pii/run
