# Targets of the benchmark harness; included by the Makefile at the root.

.PHONY: bench-pii bench bench-full bench-peers bench-report bench-build bench-instructions

bench-build:
	cargo build --release -p interflow -p interflow-testkit -p interflow-bench

bench: bench-build ## Short form of every table, in less than 15 minutes
	$(TARGET_DIR)/release/interflow-bench run

bench-full: bench-build ## Every table and case, longer and more runs, a million flows and a soak of half an hour; about four hours
	$(TARGET_DIR)/release/interflow-bench run --full

bench-peers: bench-build ## Installs the peers and requests a page from each
	$(TARGET_DIR)/release/interflow-bench peers

bench-report: bench-build ## Regenerates the report from the existing results
	$(TARGET_DIR)/release/interflow-bench report

bench-instructions: bench-build ## Instruction counts of the hot paths, in the CI too; fails when one grows by more than 5 %. `UPDATE=1` rewrites them
	$(TARGET_DIR)/release/interflow-bench instructions $(if $(UPDATE),--update)

bench-pii: ## Detection on labelled texts (PII_DATA=FOLDER), per type, beside Presidio's pattern recognisers
	@bench/pii/run

.PHONY: bench-conversations
bench-conversations: ## Cost of assembling conversations as their histories grow, and exchanges of 100 KB per core
	@cargo run --locked --release -q -p interflow-conversations --example conversation_cost -- bench/results/conversations.json

.PHONY: bench-media-costs bench-media-viewers media-soak
bench-media-costs: ## Playlists, manifests and decryption in isolation, beside openssl and mediaflow-proxy's decrypter
	@python3 bench/media/costs.py --write bench/results/media-costs.json

bench-media-viewers: ## A thousand viewers of one live stream
	@cargo build --locked --release -q -p interflow
	@ulimit -n 20000; python3 bench/media/viewers.py $(TARGET_DIR)/release/interflow --write bench/results/media-viewers.json

media-soak: ## The same with some slow viewers for an hour (MINUTES=60): memory must stay flat
	@cargo build --locked --release -q -p interflow
	@ulimit -n 20000; python3 bench/media/viewers.py $(TARGET_DIR)/release/interflow --viewers 200 --slow 0.3 --minutes $(or $(MINUTES),60) --write bench/results/media-soak.json

.PHONY: bench-guardrails
bench-guardrails: ## The guardrail heuristics on Interflow's labelled prompts and on public sets; GUARDRAIL_DATA="FILE…" measures others
	@bench/guardrails/public

.PHONY: bench-semantic-cache
# EMBEDDINGS=http://127.0.0.1:8080/v1/embeddings MODEL=name.
bench-semantic-cache: ## The semantic cache on labelled pairs of texts; EMBEDDINGS is a server with OpenAI's API, MODEL its model
	@cargo build --locked --release -q -p interflow-llm-gateway --example semantic_cache_accuracy
	@$(TARGET_DIR)/release/examples/semantic_cache_accuracy $(EMBEDDINGS) $(MODEL) bench/semantic/dev.jsonl bench/semantic/test.jsonl --json bench/results/semantic-cache.json
