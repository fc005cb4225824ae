# Other clients' fingerprints, in builds with the feature `impersonate`.

.PHONY: impersonate-test
impersonate-test: ## Build with the feature impersonate and run its tests: the bytes of every profile, certificates, pools, mirror
	@scripts/setup test
	@scripts/boringssl $(BORINGSSL)
	@$(WITH_BORINGSSL) $(CARGO) test --locked -p interflow-net --features impersonate
	@$(WITH_BORINGSSL) $(CARGO) test --locked -p interflow-proxy --features impersonate --test proxy impersonat

.PHONY: impersonate-capture
impersonate-capture: ## Compare what curl and Chromium of this machine send with what Interflow sends as them
	@scripts/setup test
	@scripts/boringssl $(BORINGSSL)
	@$(WITH_BORINGSSL) $(CARGO) build --locked -q -p interflow --features impersonate
	@tests/impersonate/capture.py $(TARGET_DIR)/debug/interflow

.PHONY: impersonate-cost
impersonate-cost: ## CPU per handshake and per request with each fingerprint and with none (release build)
	@scripts/setup build
	@scripts/boringssl $(BORINGSSL)
	@$(WITH_BORINGSSL) $(CARGO) run --locked --release -q -p interflow-net --features impersonate --example disguise_cost -- bench/results/impersonate.json
