//! What the admin sides of all replicas share: API tokens, login codes and the audit trail. Calls block, and may come from any thread.

use std::collections::HashSet;
use std::time::Duration;

use interflow_store::Result;
use interflow_store::shared_state::{GrantStore, IdentityStore, SharedAuditLine, SharedToken};
use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::database::calls::DatabaseCalls;
use crate::database::connect::TlsClientFactory;
use crate::database::dsn::PostgresUrl;
use crate::database::row_key::{RowKey, is_authentic};
use crate::database::rows::{clean, signed};
use crate::state::grants::PostgresGrants;
use crate::state::spend::SpendStore;

/// Bound on the codes that are valid at a time.
const MAX_LOGIN_CODES: i64 = 1000;

/// Tokens and audit trail in the database of the shared store.
pub struct PostgresIdentity {
    calls: DatabaseCalls,
    key: RowKey,
    /// Tokens that were refused, each of which the log names once.
    refused: Mutex<HashSet<String>>,
}

impl PostgresIdentity {
    /// # Errors
    /// A certificate cannot be read; the server does not answer; the schema cannot be made or is newer than this build.
    pub fn open(url: &PostgresUrl, tls: TlsClientFactory, key: RowKey) -> Result<Self> {
        Ok(Self { calls: DatabaseCalls::open(url, tls, Some(key.clone()))?, key, refused: Mutex::default() })
    }

    /// The grants of users of the MCP gateway, over the same connections.
    pub fn grants(&self) -> impl GrantStore + use<> {
        PostgresGrants(self.calls.clone())
    }

    /// The spend of all replicas, over the same connections.
    pub fn spend(&self) -> SpendStore {
        SpendStore { calls: self.calls.clone() }
    }
}

impl IdentityStore for PostgresIdentity {
    fn tokens(&self) -> Result<Vec<SharedToken>> {
        let sql = "SELECT id, token, last_used, mac FROM api_tokens ORDER BY change";
        let rows = self.calls.run(async move |client| client.query(sql, &[]).await)?;
        let mut tokens = Vec::with_capacity(rows.len());
        for row in rows {
            let token = SharedToken {
                id: row.get(0),
                text: row.get(1),
                last_used: row.get::<_, Option<i64>>(2).map(i64::unsigned_abs),
            };
            if is_authentic(&self.key.of_token(&token.id, &token.text), row.get(3)) {
                tokens.push(token);
            } else if self.refused.lock().insert(token.id.clone()) {
                tracing::error!(
                    id = token.id,
                    "an API token in the shared store is refused: it was not made by a replica, or by one with another admin \
                     token; if it is yours, revoke it and make another one"
                );
            }
        }
        Ok(tokens)
    }

    fn tokens_version(&self) -> Result<(i64, i64)> {
        self.calls.run(async move |client| {
            let row = client.query_one("SELECT count(*), coalesce(max(change), 0) FROM api_tokens", &[]).await?;
            Ok((row.get(0), row.get(1)))
        })
    }

    fn add_token(&self, id: &str, text: &str) -> Result<()> {
        let (id, text) = (id.to_owned(), clean(text));
        let mac = self.key.of_token(&id, &text).as_bytes().to_vec();
        self.calls.run(async move |client| {
            let sql = "INSERT INTO api_tokens(id, token, mac) VALUES($1, $2, $3) ON CONFLICT DO NOTHING";
            client.execute(sql, &[&id, &text, &mac]).await.map(drop)
        })
    }

    fn remove_tokens(&self, ids: &[String]) -> Result<()> {
        let ids = ids.to_vec();
        self.calls.run(async move |client| {
            client.execute("DELETE FROM api_tokens WHERE id = ANY($1)", &[&ids]).await.map(drop)
        })
    }

    fn save_token_uses(&self, uses: &[(String, u64)]) -> Result<()> {
        let ids: Vec<String> = uses.iter().map(|(id, _)| id.clone()).collect();
        let times: Vec<i64> = uses.iter().map(|(_, at)| signed(*at)).collect();
        self.calls.run(async move |client| {
            let sql = "UPDATE api_tokens SET last_used = greatest(coalesce(last_used, 0), u.at) \
                       FROM unnest($1::text[], $2::bigint[]) AS u(id, at) WHERE api_tokens.id = u.id";
            client.execute(sql, &[&ids, &times]).await.map(drop)
        })
    }

    fn add_login_code(&self, code: &str, lifetime: Duration) -> Result<()> {
        let (digest, seconds) = (digest(code), lifetime.as_secs_f64());
        self.calls.run(async move |client| {
            let sql = "DELETE FROM login_codes WHERE expires <= clock_timestamp() \
                       OR digest IN (SELECT digest FROM login_codes ORDER BY expires DESC OFFSET $1)";
            client.execute(sql, &[&MAX_LOGIN_CODES]).await?;
            let sql =
                "INSERT INTO login_codes(digest, expires) VALUES($1, clock_timestamp() + make_interval(secs => $2))";
            client.execute(sql, &[&digest, &seconds]).await.map(drop)
        })
    }

    fn take_login_code(&self, code: &str) -> Result<bool> {
        let digest = digest(code);
        self.calls.run(async move |client| {
            let sql = "WITH taken AS (DELETE FROM login_codes WHERE digest = $1 RETURNING expires) \
                       SELECT count(*) FROM taken WHERE expires > clock_timestamp()";
            client.query_one(sql, &[&digest]).await.map(|row| row.get::<_, i64>(0) > 0)
        })
    }

    fn end_session(&self, id: &str, expires: u64) -> Result<()> {
        let (id, expires) = (clean(id), signed(expires));
        self.calls.run(async move |client| {
            client.execute("DELETE FROM ended_sessions WHERE expires <= clock_timestamp()", &[]).await?;
            let sql = "INSERT INTO ended_sessions(id, expires) VALUES($1, to_timestamp($2::bigint)) \
                       ON CONFLICT(id) DO UPDATE SET expires = greatest(ended_sessions.expires, excluded.expires)";
            client.execute(sql, &[&id, &expires]).await.map(drop)
        })
    }

    fn ended_sessions(&self) -> Result<Vec<(String, u64)>> {
        self.calls.run(async move |client| {
            let sql = "SELECT id, extract(epoch FROM expires)::bigint FROM ended_sessions \
                       WHERE expires > clock_timestamp()";
            let rows = client.query(sql, &[]).await?;
            Ok(rows.iter().map(|row| (row.get(0), row.get::<_, i64>(1).unsigned_abs())).collect())
        })
    }

    fn append_audit(&self, lines: Vec<SharedAuditLine>) -> Result<()> {
        self.calls.run(async move |client| {
            let times: Vec<i64> = lines.iter().map(|l| signed(l.at)).collect();
            let digests: Vec<String> = lines
                .iter()
                .map(|l| blake3::hash(format!("{}\0{}", l.replica, l.line).as_bytes()).to_string())
                .collect();
            let texts = |of: fn(&SharedAuditLine) -> &str| lines.iter().map(|l| clean(of(l))).collect::<Vec<_>>();
            let (replicas, searches) = (texts(|l| &l.replica), texts(|l| &l.search));
            let texts = texts(|l| &l.line);
            let sql = "INSERT INTO admin_audit(at, digest, replica, search, line) \
                       SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[]) \
                       ON CONFLICT DO NOTHING";
            client.execute(sql, &[&times, &digests, &replicas, &searches, &texts]).await.map(drop)
        })
    }

    fn newest_audit(&self, text: &str, before: Option<u64>, limit: usize) -> Result<Vec<SharedAuditLine>> {
        let (text, before, limit) = (clean(text), signed(before.unwrap_or(u64::MAX)), signed(limit));
        self.calls.run(async move |client| {
            let sql = "SELECT replica, at, search, line FROM admin_audit \
                       WHERE at < $1 AND strpos(search, $2) > 0 ORDER BY at DESC, digest LIMIT $3";
            let rows = client.query(sql, &[&before, &text, &limit]).await?;
            let line = |row: &Row| SharedAuditLine {
                replica: row.get(0),
                at: row.get::<_, i64>(1).unsigned_abs(),
                search: row.get(2),
                line: row.get(3),
            };
            Ok(rows.iter().map(line).collect())
        })
    }

    fn prune_audit(&self, before: u64) -> Result<u64> {
        let before = signed(before);
        self.calls.run(async move |client| client.execute("DELETE FROM admin_audit WHERE at < $1", &[&before]).await)
    }
}

fn digest(code: &str) -> Vec<u8> {
    blake3::hash(code.as_bytes()).as_bytes().to_vec()
}
