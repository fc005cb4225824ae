//! Every metric: the one place for its name, type, labels and meaning. `# HELP`, `# TYPE` and docs/reference/metrics.md are
//! made from it, and the dashboard and the alerts in deploy/ are checked against it.

use interflow_codec::metric_table;

metric_table! { pub TABLE:

"Process and configuration" {
    BUILD_INFO = gauge "interflow_build_info" ["version", "os", "arch"] "Always 1; the labels name the build.";
    CONFIG_RELOAD_SUCCESSFUL = gauge "interflow_config_last_reload_successful" []
        "Whether the last reload succeeded: 1, also before the first one, or 0.";
    CONFIG_RELOAD_TIMESTAMP = gauge "interflow_config_last_reload_success_timestamp_seconds" []
        "When the active configuration was loaded, in Unix time.";
    PROCESS_START_TIME = gauge "process_start_time_seconds" [] "When the process started, in Unix time.";
    PROCESS_CPU = counter "process_cpu_seconds_total" [] "CPU time in user and system mode. Linux only.";
    PROCESS_RESIDENT = gauge "process_resident_memory_bytes" [] "Resident memory. Linux only.";
    PROCESS_VIRTUAL = gauge "process_virtual_memory_bytes" [] "Virtual memory. Linux only.";
    PROCESS_THREADS = gauge "process_threads" [] "Threads. Linux only.";
    PROCESS_OPEN_FDS = gauge "process_open_fds" [] "Open file descriptors. Linux only.";
    PROCESS_MAX_FDS = gauge "process_max_fds" [] "The soft limit on open file descriptors. Linux only.";
}

"Clients" {
    CLIENT_CONNECTIONS = gauge "interflow_client_connections" [] "Open client connections.";
    CLIENT_CONNECTIONS_ACCEPTED = counter "interflow_client_connections_accepted_total" [] "Client connections accepted.";
    CLIENT_CONNECTIONS_REJECTED = counter "interflow_client_connections_rejected_total" ["reason"]
        "Client connections rejected by `limits.connections` (`total`), `limits.connections_per_client` (`per_client`) or `limits.accept_rate` (`rate`), or because no file descriptors were left (`no_descriptors`).";
    TLS_INTERCEPTED = counter "interflow_tls_intercepted_handshakes_total" []
        "Client TLS handshakes completed with a certificate of Interflow's CA.";
    TLS_REJECTED = counter "interflow_tls_client_rejected_certificates_total" []
        "Times that a client rejected such a certificate: it does not trust the CA, or pins.";
    TLS_BYPASSED = gauge "interflow_tls_bypassed_clients" []
        "Pairs of client and host whose TLS is passed through because the client pins.";
    CA_NOT_AFTER = gauge "interflow_ca_not_after_timestamp_seconds" [] "When the CA's certificate expires, in Unix time.";
    CA_ISSUED = counter "interflow_ca_issued_certificates_total" [] "Certificates signed by the CA for hosts.";
    CA_CACHED = gauge "interflow_ca_cached_certificates" [] "Certificates for hosts in the cache.";
}

"HTTP and tunnels" {
    FLOWS_IN_FLIGHT = gauge "interflow_flows_in_flight" [] "Requests, tunnels and WebSockets in progress.";
    HTTP_REQUESTS = counter "interflow_http_requests_total" ["listener"]
        "HTTP requests started, by the role of the listener: `proxy`, `gateway`, `transparent`, `reverse`, or `internal` for Interflow's own.";
    HTTP_RESPONSES = counter "interflow_http_responses_total" ["listener", "code_class"]
        "HTTP requests ended, by the class of the status sent to the client: `2xx`; `none` if no response was sent.";
    HTTP_DURATION = histogram "interflow_http_request_duration_seconds" ["listener"]
        "Time from the beginning of an HTTP request to its end, without tunnels and upgraded connections.";
    TUNNEL_DURATION = histogram "interflow_tunnel_duration_seconds" []
        "How long tunnels, WebSockets and other upgraded connections lasted.";
    PASSTHROUGH_TUNNELS = counter "interflow_passthrough_tunnels_total" ["reason"]
        "Tunnels passed through without inspection, by the reason, as in the query term `passthrough:`.";
    MESSAGES = counter "interflow_stream_messages_total" [] "WebSocket, server-sent event and gRPC messages.";
    ERRORS = counter "interflow_errors_total" ["kind"] "Flows and connections that failed, by the kind of the error.";
    HELD_BYTES = gauge "interflow_held_bytes" [] "Bytes of requests and responses held in memory.";
    HELD_BYTES_LIMIT = gauge "interflow_held_bytes_limit" [] "`limits.held_bytes`; 0: no limit.";
    HELD_BYTES_REJECTIONS = counter "interflow_held_bytes_rejections_total" []
        "Times that memory was refused because `limits.held_bytes` was reached.";
}

"Upstream" {
    UPSTREAM_SENT = counter "interflow_upstream_sent_bytes_total" [] "Bytes of request bodies and tunnels sent to upstreams.";
    UPSTREAM_RECEIVED = counter "interflow_upstream_received_bytes_total" []
        "Bytes of response bodies and tunnels received from upstreams.";
    UPSTREAM_DNS = histogram "interflow_upstream_dns_duration_seconds" [] "Time that name resolution took, where a connection was opened.";
    UPSTREAM_CONNECT = histogram "interflow_upstream_connect_duration_seconds" []
        "Time that TCP connections took, including the handshake with an upstream proxy. Its count is that of connections opened.";
    UPSTREAM_TLS = histogram "interflow_upstream_tls_handshake_duration_seconds" [] "Time that TLS handshakes with upstreams took.";
    UPSTREAM_FIRST_BYTE = histogram "interflow_upstream_time_to_first_byte_seconds" []
        "Time from the end of a request's head to the head of the response.";
    UPSTREAM_IDLE = gauge "interflow_upstream_idle_connections" [] "Idle HTTP/1 connections in the pools.";
    DNS_CACHED = gauge "interflow_dns_cached_names" [] "Names in the DNS cache.";
}

"LLM" {
    LLM_REQUESTS = counter "interflow_llm_requests_total" ["provider", "model", "code"]
        "LLM requests ended, by the status sent to the client; `none` if no response was sent. At most 100 models are named, 50 of them without an answer yet; the rest is `other`.";
    LLM_DURATION = histogram "interflow_llm_request_duration_seconds" ["provider", "model"]
        "Time from the beginning of an LLM request to the end of its response.";
    LLM_FIRST_TOKEN = histogram "interflow_llm_time_to_first_token_seconds" ["provider", "model"]
        "Time from the beginning of an LLM request to the first text of a streamed response, reasoning included.";
    LLM_IN_FLIGHT = gauge "interflow_llm_requests_in_flight" [] "LLM requests in progress.";
    LLM_IN_FLIGHT_LIMIT = gauge "interflow_llm_requests_in_flight_limit" [] "`gateway.max_concurrent_requests`; 0: no limit.";
    LLM_TOKENS = counter "interflow_llm_tokens_total" ["provider", "model", "type"]
        "Tokens as counted by the provider: `input`, `output`, `cache_read`, `cache_write`, `reasoning`. No token has two types.";
    LLM_COST = counter "interflow_llm_cost_usd_total" ["provider", "model"] "Cost of requests whose price is known, in US dollars.";
    LLM_UNPRICED = counter "interflow_llm_unpriced_tokens_total" ["provider", "model"] "Tokens of models whose price is unknown.";
    LLM_CACHE_REQUESTS = counter "interflow_llm_cache_requests_total" ["result"]
        "Requests that the response cache (`llm.cache`) applies to: `hit`, `miss` or `bypass`.";
    LLM_CACHE_BYPASSED = counter "interflow_llm_cache_bypassed_requests_total" ["reason"]
        "Requests that bypassed the response cache: `no-store`, `tools`, `state`, `temperature`, `experiment`, `unreadable`.";
    LLM_CACHE_STORED = counter "interflow_llm_cache_stored_responses_total" [] "Responses put into the cache.";
    LLM_CACHE_EVICTED = counter "interflow_llm_cache_evicted_responses_total" []
        "Responses dropped from memory for others (`llm.cache.max_bytes`).";
    LLM_CACHE_ERRORS = counter "interflow_llm_cache_errors_total" []
        "Commands to the cache's Redis server that failed; such a request goes to its provider.";
    LLM_CACHE_ENTRIES = gauge "interflow_llm_cache_entries" [] "Responses in memory.";
    LLM_CACHE_BYTES = gauge "interflow_llm_cache_bytes" [] "Their size.";
    LLM_CACHE_SEMANTIC_HITS = counter "interflow_llm_cache_semantic_hits_total" ["similarity"]
        "Those of the hits that were found by meaning (`llm.cache.semantic`), by the lower bound of the similarity.";
    LLM_CACHE_SEMANTIC_MISSES = counter "interflow_llm_cache_semantic_misses_total" []
        "Requests that were compared by meaning, and for which nothing was found.";
    LLM_CACHE_SEMANTIC_GUARDED = counter "interflow_llm_cache_semantic_guarded_total" []
        "Those of the misses for which the lexical guard held back a similar request.";
    LLM_CACHE_SEMANTIC_INELIGIBLE = counter "interflow_llm_cache_semantic_ineligible_total" []
        "Requests without an equal one that are not compared by meaning: with images, tool results or redacted texts, or too long.";
    LLM_CACHE_SEMANTIC_ERRORS = counter "interflow_llm_cache_semantic_errors_total" []
        "Requests to the embedding provider that failed.";
    LLM_CACHE_SEMANTIC_ENTRIES = gauge "interflow_llm_cache_semantic_entries" [] "Texts in memory that requests are compared with.";
    LLM_CACHE_SAVED_TOKENS = counter "interflow_llm_cache_saved_tokens_total" ["provider", "model"]
        "Tokens of responses from the cache, which no provider counted again.";
    LLM_CACHE_SAVED_COST = counter "interflow_llm_cache_saved_cost_usd_total" ["provider", "model"]
        "What those responses would have cost, in US dollars, where the price is known.";
    LLM_REJECTED = counter "interflow_llm_rejected_requests_total" ["code"]
        "LLM requests and responses that Interflow rejected (keys, quota, redaction, telemetry), by the error code.";
    LLM_UPSTREAM_ERRORS = counter "interflow_llm_upstream_errors_total" ["provider", "code"]
        "LLM requests that failed at the provider: by its status, or the one sent instead; `none` if no response was sent.";
    LLM_BREAKER_OPEN = gauge "interflow_llm_circuit_breaker_open" ["provider"]
        "Whether the provider is not used because its last requests failed: 1 or 0.";
    LLM_DEPLOYMENT_REQUESTS = counter "interflow_llm_deployment_requests_total" ["route", "deployment", "role"]
        "Requests sent to a deployment of a route, retries and hedges included. The route of a provider with fallbacks is `provider/NAME`; the role is `deployment`, `experiment` or `shadow`.";
    LLM_DEPLOYMENT_ERRORS = counter "interflow_llm_deployment_errors_total" ["route", "deployment", "role"]
        "Those of them that failed.";
    LLM_DEPLOYMENT_TIMEOUTS = counter "interflow_llm_deployment_timeouts_total" ["route", "deployment", "role"]
        "Those of the failures that were time limits: `attempt_timeout`, `first_token_timeout`, or that of all attempts.";
    LLM_DEPLOYMENT_COOLDOWNS = counter "interflow_llm_deployment_cooldowns_total" ["route", "deployment", "role"]
        "How often the deployment was left alone for a while.";
    LLM_DEPLOYMENT_IN_FLIGHT = gauge "interflow_llm_deployment_requests_in_flight" ["route", "deployment", "role"]
        "Requests in progress at the deployment.";
    LLM_DEPLOYMENT_LATENCY = gauge "interflow_llm_deployment_latency_seconds" ["route", "deployment", "role"]
        "The average time to the first data of a response, in which a slower one counts at once; absent before the first.";
    LLM_DEPLOYMENT_UP = gauge "interflow_llm_deployment_up" ["route", "deployment", "role"]
        "Whether the deployment is used: 1, or 0 while it is left alone or probed.";
}

"Guardrails" {
    GUARDRAIL_CHECKS = counter "interflow_guardrail_checks_total" ["guardrail", "direction"]
        "Requests (`input`) and responses (`output`) that a guardrail checked.";
    GUARDRAIL_FINDINGS = counter "interflow_guardrail_findings_total" ["guardrail", "direction", "result"]
        "Those in which it found something, by what was done first: `flagged`, `masked`, `allowed` or `denied` by a person, `blocked`.";
    GUARDRAIL_ERRORS = counter "interflow_guardrail_errors_total" ["guardrail"]
        "Checks that failed: a service that did not answer in time, or not as expected.";
}

"MCP gateway" {
    MCP_CALLS = counter "interflow_mcp_calls_total" ["server", "result"]
        "Calls of tools, prompts and resources of MCP servers, by result: `ok`, `error`, or `refused` by a person.";
    MCP_SESSIONS = gauge "interflow_mcp_sessions" [] "Sessions of clients of the MCP gateway.";
}

"Redaction" {
    REDACTION_REQUESTS = counter "interflow_redaction_requests_total" [] "Requests and WebSockets inspected.";
    REDACTION_REJECTED = counter "interflow_redaction_rejected_requests_total" ["code"]
        "Requests and responses rejected because they could not be redacted, by the error code.";
    REDACTION_ENTITIES = counter "interflow_redaction_entities_total" ["type", "direction"]
        "Entities found, by type, in the `request` or the `response`.";
    REDACTION_DURATION = histogram "interflow_redaction_duration_seconds" ["policy"] "Time that detection took, per request.";
}

"Quotas and virtual keys" {
    QUOTA_REJECTED = counter "interflow_quota_rejected_requests_total" ["rule", "counter"]
        "Requests rejected by a quota. The counter `unavailable`, without a rule: Redis could not be reached.";
    QUOTA_USED = gauge "interflow_quota_used" ["rule", "subject", "counter"]
        "What is used of a quota: tokens, requests, US dollars or slots, by its counter. At most 200, the fullest; not of single client addresses.";
    QUOTA_LIMIT = gauge "interflow_quota_limit" ["rule", "subject", "counter"] "The quota itself, in the same unit.";
    BUDGET_USED_RATIO = gauge "interflow_budget_used_ratio" ["level", "name", "counter"]
        "What is used of the budget of a `key`, `team` or `organisation`: 1 is all of it. Of the series of `interflow_quota_used`.";
    BUDGET_ALERTS = counter "interflow_budget_alerts_total" ["outcome"]
        "Budget alerts (`quota.alerts`) by webhook: `sent`, `failed` after several attempts, `dropped` because too many were waiting.";
    REDIS_UP = gauge "interflow_redis_up" [] "Whether the last command to `quota.shared.redis` succeeded: 1 or 0.";
    REDIS_ERRORS = counter "interflow_redis_errors_total" [] "Commands to Redis that failed.";
    REDIS_FALLBACKS = counter "interflow_redis_fallbacks_total" []
        "Requests admitted, or counted by this process, in place of Redis.";
    AUDIT_LOST = counter "interflow_audit_lost_lines_total" [] "Audit lines lost because the disk was too slow.";
    ADMIN_AUDIT_LOST = counter "interflow_admin_audit_lost_lines_total" []
        "Lines of the admin side's audit trail lost because the disk was too slow.";
    ADMIN_AUDIT_UNSENT = gauge "interflow_admin_audit_unsent_lines" []
        "Lines of the admin side's audit trail that wait in this replica's file until the database of `record.store` has them.";
    CONTENTS_DROPPED = counter "interflow_telemetry_dropped_contents_total" []
        "Spans exported without the content that `telemetry.content` asks for, because too much was waiting.";
    WEBHOOK_EVENTS = counter "interflow_telemetry_webhook_events_total" ["result"]
        "Events of `telemetry.webhook`: `sent` or `dropped`.";
    SPANS_DROPPED = counter "interflow_telemetry_dropped_spans_total" [] "Spans that could not be exported.";
}

"Approvals and rules" {
    APPROVALS_PENDING = gauge "interflow_approvals_pending" [] "Requests that wait for a decision; flows with the same question count once.";
    APPROVALS_DECISIONS = counter "interflow_approvals_decisions_total" ["outcome"]
        "Pending requests that ended: `allow`, `deny`, `timeout`, `client_gone`, `shutdown`.";
    RULE_MATCHES = counter "interflow_rules_matches_total" ["rule"] "Times that a rule matched, all phases together.";
    RULES_HELD = gauge "interflow_rules_held_flows" [] "Flows that a rule holds until they are resumed.";
}

"Recorder" {
    RECORDER_UP = gauge "interflow_recorder_up" [] "0 while nothing is recorded because the disk refuses writes, otherwise 1.";
    RECORDER_FLOWS = counter "interflow_recorder_flows_total" [] "Flows recorded to their end.";
    RECORDER_DROPPED = counter "interflow_recorder_dropped_flows_total" []
        "Flows not recorded: the recorder was behind and set to drop, or suspended.";
    RECORDER_LOST = counter "interflow_recorder_lost_flows_total" [] "Flows that could not be written because of a disk error.";
    RECORDER_DROPPED_BYTES = counter "interflow_recorder_dropped_bytes_total" []
        "Bytes of bodies and messages not recorded for these reasons.";
    RECORDER_BACKPRESSURE = counter "interflow_recorder_backpressure_seconds_total" []
        "Time during which at least one flow waited for the recorder.";
    RECORDER_DAMAGED = counter "interflow_recorder_damaged_flows_total" [] "Damaged flows that lists and exports left out.";
    RECORDER_EXPIRED = counter "interflow_recorder_expired_flows_total" [] "Flows deleted by age or size.";
    RECORDER_RETENTION_WAITING = gauge "interflow_recorder_retention_waiting" []
        "Whether nothing is deleted because of its age, as the clock has jumped: 1 while it waits, otherwise 0.";
    RECORDER_STORED = gauge "interflow_recorder_stored_flows" [] "Flows in the store.";
    RECORDER_OPEN = gauge "interflow_recorder_open_flows" [] "Flows in progress that are being recorded.";
    RECORDER_QUEUE_BYTES = gauge "interflow_recorder_queue_bytes" [] "Bytes that wait for the disk.";
    RECORDER_QUEUE_FLOWS = gauge "interflow_recorder_queue_flows" [] "Flows that wait for the disk.";
    RECORDER_SEGMENTS = gauge "interflow_recorder_segments" [] "Segment files.";
    RECORDER_SEGMENT_BYTES = gauge "interflow_recorder_segment_bytes" [] "Size of the segment files.";
    RECORDER_DATABASE_BYTES = gauge "interflow_recorder_database_bytes" [] "Size of the database and its write-ahead log.";
    SHARED_UP = gauge "interflow_shared_store_up" [] "Whether the shared store takes flows: 1, or 0 while it does not.";
    SHARED_WAITING_FLOWS = gauge "interflow_shared_store_waiting_flows" []
        "Finished flows on this replica's disk that were not moved to the shared store yet.";
    SHARED_WAITING_BYTES = gauge "interflow_shared_store_waiting_bytes" [] "Their bytes.";
    SHARED_WAITING_SECONDS = gauge "interflow_shared_store_waiting_seconds" [] "How long the oldest of them has been waiting.";
    SHARED_SHIPPED = counter "interflow_shared_store_shipped_flows_total" [] "Flows moved to the shared store.";
    SHARED_FAILURES = counter "interflow_shared_store_failures_total" [] "Attempts to move flows that failed.";
    SHARED_CLOCK = gauge "interflow_shared_store_clock_ahead_seconds" []
        "By how much this machine's clock is ahead of the shared store's.";
    SHARED_STUCK = gauge "interflow_shared_store_stuck_flows" [] "Flows that cannot be moved and stay on this replica's disk.";
    SHARED_OBJECT_BYTES = gauge "interflow_shared_store_object_bytes" [] "Bytes of the objects that hold bodies (`record.objects`).";
    RECORDER_DISK_FREE = gauge "interflow_recorder_disk_free_bytes" [] "Free space on the disk of the store.";
}

"Archive" {
    ARCHIVE_UP = gauge "interflow_archive_up" [] "0 if the last run of the archive (`record.archive`) failed, otherwise 1.";
    ARCHIVE_ACTIVE = gauge "interflow_archive_active" []
        "0 while another replica with the same `record.store` archives the record, otherwise 1.";
    ARCHIVE_ARCHIVED_TO = gauge "interflow_archive_archived_to_timestamp_seconds" []
        "The time up to which the record is archived, in Unix time.";
    ARCHIVE_LAST_SUCCESS = gauge "interflow_archive_last_success_timestamp_seconds" []
        "When the last run that succeeded began, in Unix time.";
    ARCHIVE_FLOWS = counter "interflow_archive_flows_total" [] "Flows archived, by earlier processes as well.";
    ARCHIVE_BYTES = counter "interflow_archive_bytes_total" [] "Bytes of the files that were written.";
    ARCHIVE_FILES = gauge "interflow_archive_files" [] "Files of this instance in the archive.";
    ARCHIVE_OPEN = gauge "interflow_archive_open_flows" []
        "Flows of archived hours that were still in progress; they follow when they have ended.";
}

"Admin" {
    EVENT_CLIENTS = gauge "interflow_admin_event_clients" [] "Clients of the event socket.";
    EVENT_CLIENTS_DISCONNECTED = counter "interflow_admin_event_clients_disconnected_total" []
        "Clients of the event socket that were disconnected because they did not read.";
    EVENTS_DROPPED = counter "interflow_admin_events_dropped_total" [] "Events that a client was too slow for.";
}

}
