//! Creates a database in Greyproxy's format with an entry of every kind.

use std::path::Path;

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use rusqlite::{Connection, params};

/// The key in `session.key`.
pub const KEY: [u8; 32] = [7; 32];

const SCHEMA: &str = "
CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, applied_at DATETIME);
CREATE TABLE rules (id INTEGER PRIMARY KEY, container_pattern TEXT, destination_pattern TEXT, port_pattern TEXT DEFAULT '*',
    rule_type TEXT DEFAULT 'permanent', action TEXT DEFAULT 'allow', created_at DATETIME, expires_at DATETIME,
    last_used_at DATETIME, created_by TEXT DEFAULT 'admin', notes TEXT, session_id TEXT,
    UNIQUE(container_pattern, destination_pattern, port_pattern, action));
CREATE TABLE pending_requests (id INTEGER PRIMARY KEY, container_name TEXT, container_id TEXT, destination_host TEXT,
    destination_port INTEGER, resolved_hostname TEXT, first_seen DATETIME, last_seen DATETIME, attempt_count INTEGER);
CREATE TABLE request_logs (id INTEGER PRIMARY KEY, timestamp DATETIME, container_name TEXT, container_id TEXT,
    destination_host TEXT, destination_port INTEGER, resolved_hostname TEXT, method TEXT, result TEXT, rule_id INTEGER,
    response_time_ms INTEGER, mitm_skip_reason TEXT);
CREATE TABLE http_transactions (id INTEGER PRIMARY KEY, timestamp DATETIME, container_name TEXT, destination_host TEXT,
    destination_port INTEGER, method TEXT, url TEXT, request_headers TEXT, request_body BLOB, request_body_size INTEGER,
    request_content_type TEXT, status_code INTEGER, response_headers TEXT, response_body BLOB, response_body_size INTEGER,
    response_content_type TEXT, duration_ms INTEGER, rule_id INTEGER, result TEXT DEFAULT 'auto', conversation_id TEXT,
    substituted_credentials TEXT, session_id TEXT, intent TEXT);
CREATE TABLE conversations (id TEXT PRIMARY KEY, model TEXT);
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, container_name TEXT, mappings_enc BLOB, labels_json TEXT,
    ttl_seconds INTEGER, created_at DATETIME, expires_at DATETIME, last_heartbeat DATETIME, substitution_count INTEGER,
    metadata_json TEXT);
CREATE TABLE global_credentials (id TEXT PRIMARY KEY, label TEXT UNIQUE, placeholder TEXT UNIQUE, value_enc BLOB,
    value_preview TEXT, created_at DATETIME);
CREATE TABLE endpoint_rules (id INTEGER PRIMARY KEY, host_pattern TEXT, path_pattern TEXT, method TEXT, decoder_name TEXT,
    priority INTEGER DEFAULT 0, enabled BOOLEAN DEFAULT 1, user_defined BOOLEAN DEFAULT 0);
INSERT INTO endpoint_rules VALUES (1, 'api.anthropic.com', '/v1/messages', 'POST', 'anthropic', 0, 1, 0),
    (2, 'llm.corp.test', '/ask', 'POST', 'openai-chat', 5, 1, 1), (3, 'old.corp.test', '/run', 'POST', 'cobol', 5, 1, 1);
CREATE TABLE dns_cache (ip TEXT PRIMARY KEY, hostname TEXT, updated_at DATETIME);
INSERT INTO rules (id, container_pattern, destination_pattern, port_pattern, action, expires_at, notes, session_id) VALUES
    (1, 'claude*', '*.example.com', '443', 'allow', NULL, 'docs', NULL),
    (2, '*', 'evil.test', '*', 'deny', NULL, NULL, NULL),
    (3, '*', 'old.test', '*', 'allow', '2020-01-01 00:00:00', NULL, NULL),
    (4, 'unknown-127.0.0.1', 'a.test', '*', 'allow', NULL, NULL, NULL),
    (5, 'claude', 'b.test', '*', 'allow', NULL, NULL, 'gw-1'),
    (6, '*', 'later.test', '80,8000-8999', 'allow', '2100-01-01 00:00:00+00:00', NULL, NULL);
INSERT INTO pending_requests (id, container_name) VALUES (1, 'claude');
INSERT INTO dns_cache VALUES ('192.0.2.1', 'a.test', NULL);
INSERT INTO conversations VALUES ('session_x', 'claude');
INSERT INTO request_logs (id, timestamp, container_name, destination_host, destination_port, resolved_hostname, method, result,
    mitm_skip_reason) VALUES
    (1, '2026-04-23 10:00:00', 'claude', '192.0.2.9', 443, 'evil.test', 'SOCKS5', 'blocked', NULL),
    (2, '2026-04-23 10:00:01', 'claude', 'ssh.test', 22, NULL, 'SOCKS5', 'allowed', 'non_http_after_tls'),
    (3, '2026-04-23 10:00:02', 'claude', 'api.test', 443, NULL, 'SOCKS5', 'allowed', NULL);
";

fn sealed(text: &str) -> Vec<u8> {
    let nonce = [9; 12];
    let cipher = Aes256Gcm::new_from_slice(&KEY).unwrap();
    [&nonce[..], &cipher.encrypt(&Nonce::from(nonce), text.as_bytes()).unwrap()].concat()
}

/// Creates the database and its key file.
pub fn make(folder: &Path) {
    std::fs::write(folder.join("session.key"), KEY).unwrap();
    let db = Connection::open(folder.join("greyproxy.db")).unwrap();
    db.execute_batch(SCHEMA).unwrap();
    for (label, value) in [("ANTHROPIC_API_KEY", "sk-ant-imported"), ("INTERNAL", "intern-imported")] {
        let placeholder = format!("greyproxy:credential:v1:global:{}", "ab".repeat(15) + &label.len().to_string());
        let row = params![label, placeholder, sealed(value)];
        db.execute("INSERT INTO global_credentials (id, label, placeholder, value_enc) VALUES (?1, ?1, ?2, ?3)", row)
            .unwrap();
    }
    let mappings = r#"{"greyproxy:credential:v1:gw-1:00112233445566778899aabbccddeeff": "ghp_imported"}"#;
    let labels = r#"{"greyproxy:credential:v1:gw-1:00112233445566778899aabbccddeeff": "GITHUB_TOKEN"}"#;
    for (id, until) in [("gw-1", "2100-01-01 00:00:00"), ("gw-0", "2020-01-01 00:00:00")] {
        let row = params![id, sealed(mappings), labels, until];
        let sql = "INSERT INTO sessions (session_id, container_name, mappings_enc, labels_json, expires_at) VALUES (?1, 'claude', ?2, ?3, ?4)";
        db.execute(sql, row).unwrap();
    }
    transactions(&db);
}

fn transactions(db: &Connection) {
    let mut n = 0;
    let mut add = |at: &str,
                   method: &str,
                   url: &str,
                   request: &str,
                   status: Option<i64>,
                   response: &str,
                   size: Option<i64>| {
        n += 1;
        let host = url.split("://").nth(1).unwrap().split('/').next().unwrap();
        let headers =
            r#"{"Content-Type": ["application/json"], "Content-Encoding": ["gzip"], "User-Agent": ["claude-cli/2.0"]}"#;
        let sql = "INSERT INTO http_transactions (id, timestamp, container_name, destination_host, destination_port, method, \
            url, request_headers, request_body, request_body_size, request_content_type, status_code, response_headers, \
            response_body, response_body_size, response_content_type, duration_ms, substituted_credentials, session_id) \
            VALUES (?1, ?2, 'claude', ?3, 443, ?4, ?5, ?6, ?7, ?8, 'application/json', ?9, ?6, ?10, ?11, \
            'application/json', 1500, '[\"ANTHROPIC_API_KEY\"]', 'gw-1')";
        let (request, response) = (request.as_bytes(), response.as_bytes());
        let row = params![
            n,
            at,
            host,
            method,
            url,
            headers,
            request,
            size.unwrap_or(request.len() as i64),
            status,
            response,
            response.len() as i64
        ];
        db.execute(sql, row).unwrap();
    };
    let question = |more: &str| {
        format!(
            r#"{{"model": "claude-opus-4-5", "max_tokens": 100, "metadata": {{"user_id": "session_0a0b0c0d-1111-2222-3333-444455556666"}},
            "messages": [{{"role": "user", "content": "What does the checkout cost?"}}{more}]}}"#
        )
    };
    let answer = |id: &str, text: &str| {
        format!(
            r#"{{"id": "{id}", "type": "message", "role": "assistant", "model": "claude-opus-4-5",
            "content": [{{"type": "text", "text": "{text}"}}], "stop_reason": "end_turn",
            "usage": {{"input_tokens": 10, "output_tokens": 5}}}}"#
        )
    };
    let url = "https://api.anthropic.com/v1/messages";
    add("2026-04-23 10:00:05", "POST", url, &question(""), Some(200), &answer("msg_1", "Nine coins."), None);
    let more = r#", {"role": "assistant", "content": "Nine coins."}, {"role": "user", "content": "And with tax?"}"#;
    add("2026-04-23 10:00:09", "POST", url, &question(more), Some(200), &answer("msg_2", "Ten coins."), None);
    add("2026-04-23 10:00:10", "GET", "https://cut.test/big?x=1", "start", Some(200), "", Some(5_000_000));
    for (at, method, text) in [
        ("2026-04-23 10:00:11", "WS_REQ", "hello"),
        ("2026-04-23 10:00:12", "WS_RESP", "welcome"),
        ("2026-04-23 11:00:12", "WS_REQ", "an hour later"),
    ] {
        add(at, method, "wss://live.test/socket", text, None, "", None);
    }
    add("2026-04-23 10:00:20", "GET", "https://no host/", "", Some(200), "", None);
}
