//! Settings that all replicas share: keys, rules, policies, kept as texts with their revisions.
//!
//! A revision is never changed: the newest is active, and going back to an earlier one makes a new one with its text.

use std::collections::HashSet;
use std::sync::Arc;

use deadpool_postgres::Pool;
use interflow_store::shared_state::{RollBack, SettingRevision, SettingStatus, SettingsStore};
use interflow_store::{Result, StoreError};
use interflow_types::{BoxFuture, Timestamp};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_postgres::{Client, Row};

use crate::database::connect::{Connector, PooledClient, TlsClientFactory, notification};
use crate::database::dsn::PostgresUrl;
use crate::database::migrate;
use crate::database::row_key::{RowKey, is_authentic};

/// The channel on which new revisions are announced. Schemas of one database share it, which costs them a look.
const CHANNEL: &str = "interflow_settings";
/// Revisions of a setting that are kept; older ones are deleted when a new one is made.
const MAX_REVISIONS: i64 = 1000;
/// How many rows in succession that no replica has made are passed over.
const MAX_REFUSED: i64 = 20;
/// A setting is a text of an operator; more than this is a mistake.
pub const MAX_SETTING_BYTES: usize = 8 << 20;

/// A new text of a setting.
#[derive(Clone, Copy, Debug)]
pub struct NewSetting<'a> {
    pub name: &'a str,
    /// The revision that it was made from; 0 for the first one.
    pub base: i64,
    pub content: &'a [u8],
    pub author: &'a str,
    pub restores: Option<i64>,
}

/// The settings in the database of the shared store.
#[derive(Clone)]
pub struct PostgresSettings {
    connector: Connector,
    pool: Pool,
    key: RowKey,
    /// Revisions that were refused, each of which the log names once.
    refused: Arc<Mutex<HashSet<(String, i64)>>>,
}

impl PostgresSettings {
    /// # Errors
    /// A certificate cannot be read; the server does not answer; the schema cannot be made or is newer than this build.
    pub async fn open(url: &PostgresUrl, tls: TlsClientFactory, key: RowKey) -> Result<Self> {
        let connector = Connector::new(url.clone(), tls, Some(key.clone()))?;
        migrate::migrate(&connector).await?;
        Ok(Self { pool: connector.pool()?, connector, key, refused: Arc::default() })
    }

    async fn client(&self) -> Result<PooledClient> {
        self.pool.get().await.map(PooledClient::new).map_err(|e| self.connector.explain_pool(&e))
    }

    /// Whether a replica has made this row of [`PROVEN`]; the log names those that none has.
    fn accepts(&self, row: &Row) -> bool {
        let (name, revision): (&str, i64) = (row.get("name"), row.get("revision"));
        let expected = self.key.of_setting(name, revision, row.get("restores"), row.get("digest"));
        let is_accepted = is_authentic(&expected, row.get("mac"));
        if !is_accepted && self.refused.lock().insert((name.to_owned(), revision)) {
            tracing::error!(
                "revision {revision} of the shared {name} is refused: it was not made by a replica, or by one with another admin \
                 token; look at it in the table settings"
            );
        }
        is_accepted
    }

    /// The newest revision of every setting that a replica has made.
    ///
    /// # Errors
    /// A database error, here and below.
    pub async fn newest(&self) -> Result<Vec<SettingRevision>> {
        let text = format!(
            "SELECT {COLUMNS}, {PROVEN} FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY revision DESC) AS nth \
             FROM settings) AS newest WHERE nth <= {MAX_REFUSED} ORDER BY name, revision DESC"
        );
        let mut rows = self.query(&text, &[]).await?;
        rows.retain(|row| self.accepts(row));
        let mut newest: Vec<SettingRevision> = rows.iter().map(revision).collect();
        newest.dedup_by(|later, first| later.name == first.name);
        Ok(newest)
    }

    /// Revisions of a setting before this one with their texts, the newest first.
    pub async fn before(&self, name: &str, before: i64, limit: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        let text = format!(
            "SELECT name, {PROVEN}, content FROM settings WHERE name = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3"
        );
        let mut rows = self.query(&text, &[&name, &before, &(limit + MAX_REFUSED)]).await?;
        rows.retain(|row| self.accepts(row));
        rows.truncate(usize::try_from(limit).unwrap_or_default());
        Ok(rows.iter().map(|row| (row.get("revision"), row.get("content"))).collect())
    }

    /// The revisions of a setting, or of all, the newest first.
    pub async fn history(&self, name: Option<&str>, limit: i64) -> Result<Vec<SettingRevision>> {
        let text = format!(
            "SELECT {COLUMNS}, {PROVEN} FROM settings WHERE $1::text IS NULL OR name = $1 ORDER BY at DESC, revision DESC LIMIT $2"
        );
        let rows = self.query(&text, &[&name, &limit]).await?;
        Ok(rows.iter().filter(|row| self.accepts(row)).map(revision).collect())
    }

    /// The text of a revision; `None` if there is none with this number.
    pub async fn content(&self, name: &str, revision: i64) -> Result<Option<Vec<u8>>> {
        let text = format!("SELECT name, {PROVEN}, content FROM settings WHERE name = $1 AND revision = $2");
        let rows = self.query(&text, &[&name, &revision]).await?;
        Ok(rows.first().filter(|row| self.accepts(row)).map(|row| row.get("content")))
    }

    /// Stores a text as the next revision; `None` if somebody else did that first.
    ///
    /// # Errors
    /// The text is too long; a database error.
    pub async fn publish(&self, new: &NewSetting<'_>) -> Result<Option<i64>> {
        if new.content.len() > MAX_SETTING_BYTES {
            let (name, size) = (new.name, new.content.len());
            return Err(StoreError::Shared(format!(
                "the setting {name} has {size} bytes; at most {MAX_SETTING_BYTES} are shared"
            )));
        }
        let newest = "SELECT coalesce(max(revision), 0) FROM settings WHERE name = $1";
        let last: i64 = self.query(newest, &[&new.name]).await?.first().map_or(0, |row| row.get(0));
        let accepted = self.newest().await?.iter().find(|r| r.name == new.name).map_or(0, |r| r.revision);
        // Only from the newest revision: whoever is second has to look at the first one's. One that is refused counts as not
        // there, but for a replica that had accepted it: what it has may come from before rows had codes.
        if new.base != accepted && (new.base < accepted || new.base != last) {
            return Ok(None);
        }
        let revision = last + 1;
        let digest = Sha256::digest(new.content);
        let mac = self.key.of_setting(new.name, revision, new.restores, &digest);
        let text = "INSERT INTO settings(name, revision, author, restores, content, mac) VALUES($1, $2, $3, $4, $5, $6) \
                    ON CONFLICT DO NOTHING RETURNING revision";
        let client = self.client().await?;
        let mac: &[u8] = mac.as_bytes();
        let stored = client
            .query_opt(text, &[&new.name, &revision, &new.author, &new.restores, &new.content, &mac])
            .await
            .map_err(|e| self.connector.explain(&e))?
            .map(|row| row.get::<_, i64>(0));
        if let Some(revision) = stored {
            let announced = client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &new.name]).await;
            // It is only sooner than the next look.
            announced.map_err(|e| self.connector.explain(&e))?;
            let old = "DELETE FROM settings WHERE name = $1 AND revision <= $2";
            let deleted = client.execute(old, &[&new.name, &(revision - MAX_REVISIONS)]).await;
            deleted.map_err(|e| self.connector.explain(&e))?;
        }
        Ok(stored)
    }

    /// A revision with its text, or the newest one.
    pub async fn text(&self, name: &str, revision: Option<i64>) -> Result<Option<(i64, String)>> {
        let rows = match revision {
            Some(number) => self.content(name, number).await?.map(|content| (number, content)),
            None => self.before(name, i64::MAX, 1).await?.pop(),
        };
        Ok(rows.map(|(number, content)| (number, String::from_utf8_lossy(&content).into_owned())))
    }

    /// Makes the text of an earlier revision the newest one. With `base`, only if that is the newest one until then.
    pub async fn roll_back(&self, name: &str, revision: i64, base: Option<i64>, author: &str) -> Result<RollBack> {
        let Some((newest, current)) = self.before(name, i64::MAX, 1).await?.pop() else {
            return Ok(RollBack::NotFound);
        };
        let Some(content) = self.content(name, revision).await? else { return Ok(RollBack::NotFound) };
        if base.is_some_and(|base| base != newest) {
            return Ok(RollBack::ChangedMeanwhile);
        }
        if current == content {
            return Ok(RollBack::SameText(newest));
        }
        let new = NewSetting { name, base: newest, content: &content, author, restores: Some(revision) };
        Ok(self.publish(&new).await?.map_or(RollBack::ChangedMeanwhile, RollBack::Made))
    }

    /// Notes what a replica did with a revision.
    pub async fn report(&self, status: &SettingStatus) -> Result<()> {
        let text = "INSERT INTO settings_status(replica, name, revision, refused) VALUES($1, $2, $3, $4) \
                    ON CONFLICT (replica, name) DO UPDATE SET revision = $3, refused = $4, at = now()";
        self.query(text, &[&status.replica, &status.name, &status.revision, &status.refused]).await.map(drop)
    }

    /// What replicas did with the newest revisions.
    pub async fn statuses(&self) -> Result<Vec<SettingStatus>> {
        let text = format!(
            "SELECT replica, name, revision, refused, {MICROS} AS at FROM settings_status ORDER BY name, replica"
        );
        Ok(self
            .query(&text, &[])
            .await?
            .iter()
            .map(|row| SettingStatus {
                replica: row.get("replica"),
                name: row.get("name"),
                revision: row.get("revision"),
                at: timestamp(row),
                refused: row.get("refused"),
            })
            .collect())
    }

    /// Announcements of new revisions.
    pub async fn announcements(&self) -> Result<Announcements> {
        let (client, mut connection) = self.connector.connect().await?;
        // One is enough: a look finds all.
        let (announce, announced) = mpsc::channel(1);
        tokio::spawn(async move {
            // Until the server ends the connection, or the client is dropped.
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if notification(message).is_some() {
                    let _ = announce.try_send(());
                }
            }
        });
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(|e| self.connector.explain(&e))?;
        Ok(Announcements { announced, _client: client })
    }

    async fn query(&self, text: &str, params: &[&(dyn tokio_postgres::types::ToSql + Sync)]) -> Result<Vec<Row>> {
        self.client().await?.query(text, params).await.map_err(|e| self.connector.explain(&e))
    }
}

impl SettingsStore for PostgresSettings {
    fn newest(&self) -> BoxFuture<'_, Result<Vec<SettingRevision>>> {
        Box::pin(self.newest())
    }

    fn history<'a>(&'a self, name: Option<&'a str>, limit: i64) -> BoxFuture<'a, Result<Vec<SettingRevision>>> {
        Box::pin(self.history(name, limit))
    }

    fn text<'a>(&'a self, name: &'a str, revision: Option<i64>) -> BoxFuture<'a, Result<Option<(i64, String)>>> {
        Box::pin(self.text(name, revision))
    }

    fn roll_back<'a>(
        &'a self,
        name: &'a str,
        revision: i64,
        base: Option<i64>,
        author: &'a str,
    ) -> BoxFuture<'a, Result<RollBack>> {
        Box::pin(self.roll_back(name, revision, base, author))
    }

    fn statuses(&self) -> BoxFuture<'_, Result<Vec<SettingStatus>>> {
        Box::pin(self.statuses())
    }
}

/// A connection that hears of new revisions.
pub struct Announcements {
    announced: mpsc::Receiver<()>,
    _client: Client,
}

impl Announcements {
    /// Waits for the next one; false if the connection has ended. Cancel-safe.
    pub async fn next(&mut self) -> bool {
        self.announced.recv().await.is_some()
    }
}

/// What a row is recognised by, besides its name.
const PROVEN: &str = "revision, restores, sha256(content) AS digest, mac";
const MICROS: &str = "(extract(epoch FROM at) * 1000000)::bigint";
const COLUMNS: &str =
    "name, author, octet_length(content)::bigint AS bytes, (extract(epoch FROM at) * 1000000)::bigint AS at";

fn timestamp(row: &Row) -> Timestamp {
    Timestamp::from_micros(row.get::<_, i64>("at").unsigned_abs())
}

fn revision(row: &Row) -> SettingRevision {
    SettingRevision {
        name: row.get("name"),
        revision: row.get("revision"),
        author: row.get("author"),
        at: timestamp(row),
        restores: row.get("restores"),
        bytes: row.get::<_, i64>("bytes").unsigned_abs(),
    }
}
