# The web UI: rebuilt when a file in ui/, or the documentation that it contains, is newer than the build.

UI_SOURCES := $(shell find ui/src ui/public -type f 2>/dev/null) ui/index.html ui/vite.config.ts ui/docs.mjs ui/docs-page.js docs/book.toml $(shell find docs -name '*.md' -o -name '*.svg')

.PHONY: ui
ui: ui/dist/index.html ## Build the web UI into ui/dist, which the next build of the binary embeds (needs Node 20.19)

ui/node_modules/.package-lock.json: ui/package.json ui/package-lock.json
	@cd ui && npm ci --no-audit --no-fund
	@touch $@

ui/dist/index.html: ui/node_modules/.package-lock.json $(UI_SOURCES)
	@cd ui && npm run build
	@touch $@

.PHONY: ui-test
ui-test: ui/node_modules/.package-lock.json ## Check and test the web UI, without a browser
	@cd ui && npm run check && npm test

.PHONY: ui-e2e
ui-e2e: ui/dist/index.html ## Test the web UI in Chromium with real traffic (needs chromium and the debug binary)
	@$(CARGO) build --locked -p interflow
	@cd ui && INTERFLOW_BIN=$${INTERFLOW_BIN:-$(abspath $(TARGET_DIR))/debug/interflow} npm run e2e

.PHONY: ui-smoke
ui-smoke: ui/dist/index.html ## The first minute of `make ui-e2e`: load, traffic, a rule, accessibility (needs chromium and the debug binary)
	@$(CARGO) build --locked -p interflow
	@cd ui && INTERFLOW_BIN=$${INTERFLOW_BIN:-$(abspath $(TARGET_DIR))/debug/interflow} npm run smoke

.PHONY: screenshots
screenshots: ui/dist/index.html ## Take the screenshots of the documentation from `interflow demo` (needs chromium and the debug binary)
	@$(CARGO) build --locked -p interflow
	@cd ui && node screenshots.mjs

.PHONY: ui-million
# Flows in the store, minutes of watching the page's memory: `make ui-million FLOWS=20000 MINUTES=60`.
UI_FLOWS ?= $(or $(FLOWS),1000000)
UI_MINUTES ?= $(or $(MINUTES),5)
ui-million: ui/dist/index.html ## Measure the web UI over 1,000,000 recorded flows (bench/results/ui.json; about UI_MINUTES + 5 minutes)
	@$(CARGO) build --locked -p interflow-store --example record_many
	@test -n "$${INTERFLOW_BIN:-}" || $(CARGO) build --locked --release -p interflow
	@cd ui && INTERFLOW_BIN=$${INTERFLOW_BIN:-$(abspath $(INTERFLOW))} RECORD_MANY=$(abspath $(TARGET_DIR))/debug/examples/record_many \
		UI_FLOWS=$(UI_FLOWS) UI_MINUTES=$(UI_MINUTES) npm run million
