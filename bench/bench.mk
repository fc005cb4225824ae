# Targets of the benchmark harness; included by the Makefile at the root.

.PHONY: bench-pii bench bench-full bench-peers bench-report bench-build bench-instructions

bench-build:
	cargo build --release -p interflow -p interflow-testkit -p interflow-bench

# Short form of every table, in less than 15 minutes.
bench: bench-build
	./target/release/interflow-bench run

# Every table and case, longer and more runs, a million flows and a soak of half an hour; about four hours.
bench-full: bench-build
	./target/release/interflow-bench run --full

# Installs the peers and requests a page from each.
bench-peers: bench-build
	./target/release/interflow-bench peers

# Regenerates the report from the existing results.
bench-report: bench-build
	./target/release/interflow-bench report

# Instruction counts of the hot paths, in the CI too; fails when one grows by more than 5 %. `UPDATE=1` rewrites them.
bench-instructions: bench-build
	./target/release/interflow-bench instructions $(if $(UPDATE),--update)

# Detection on labelled texts (PII_DATA=FOLDER), per type, beside Presidio's pattern recognisers.
bench-pii:
	@bench/pii/run

.PHONY: bench-conversations
# Cost of assembling conversations as their histories grow, and exchanges of 100 KB per core.
bench-conversations:
	@cargo run --locked --release -q -p interflow-conversations --example conversation_cost -- bench/results/conversations.json

.PHONY: bench-media-costs bench-media-viewers media-soak
# Playlists, manifests and decryption in isolation, beside openssl and mediaflow-proxy's decrypter.
bench-media-costs:
	@python3 bench/media/costs.py --write bench/results/media-costs.json

# A thousand viewers of one live stream.
bench-media-viewers:
	@cargo build --locked --release -q -p interflow
	@ulimit -n 20000; python3 bench/media/viewers.py target/release/interflow --write bench/results/media-viewers.json

# The same with some slow viewers for an hour (MINUTES=60): memory must stay flat.
media-soak:
	@cargo build --locked --release -q -p interflow
	@ulimit -n 20000; python3 bench/media/viewers.py target/release/interflow --viewers 200 --slow 0.3 --minutes $(or $(MINUTES),60) --write bench/results/media-soak.json

.PHONY: bench-guardrails
# The guardrail heuristics on Interflow's labelled prompts and on public sets; GUARDRAIL_DATA="FILE…" measures others.
bench-guardrails:
	@bench/guardrails/public

.PHONY: bench-semantic-cache
# The semantic cache on labelled pairs of texts, with the embeddings of a server with OpenAI's API:
# EMBEDDINGS=http://127.0.0.1:8080/v1/embeddings MODEL=name.
bench-semantic-cache:
	@cargo build --locked --release -q -p interflow-llm-gateway --example semantic_cache_accuracy
	@target/release/examples/semantic_cache_accuracy $(EMBEDDINGS) $(MODEL) bench/semantic/dev.jsonl bench/semantic/test.jsonl --json bench/results/semantic-cache.json
