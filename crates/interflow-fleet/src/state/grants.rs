//! The grants of users of the MCP gateway. They are sealed, with the names of user and server, before they come here.

use interflow_store::Result;
use interflow_store::shared_state::{GrantStore, StoredGrant};
use tokio_postgres::Row;

use crate::database::calls::DatabaseCalls;
use crate::database::rows::{clean, signed};

const COLUMNS: &str = r#"SELECT "user", server, connected, sealed FROM mcp_grants"#;

/// Grants in the database of the shared store.
pub(crate) struct PostgresGrants(pub DatabaseCalls);

impl GrantStore for PostgresGrants {
    fn grants(&self) -> Result<Vec<StoredGrant>> {
        let sql = format!("{COLUMNS} ORDER BY server, \"user\"");
        Ok(self.0.run(async move |client| client.query(&sql, &[]).await)?.iter().map(grant_of).collect())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn grant(&self, user: &str, server: &str) -> Result<Option<StoredGrant>> {
        let (user, server) = (clean(user), clean(server));
        let sql = format!("{COLUMNS} WHERE \"user\" = $1 AND server = $2");
        let row = self.0.run(async move |client| client.query_opt(&sql, &[&user, &server]).await)?;
        Ok(row.as_ref().map(grant_of))
    }

    fn put_grant(&self, grant: &StoredGrant) -> Result<()> {
        let (user, server, sealed) = (clean(&grant.user), clean(&grant.server), clean(&grant.sealed));
        let connected = signed(grant.connected);
        self.0.run(async move |client| {
            let sql = "INSERT INTO mcp_grants VALUES($1, $2, $3, $4) ON CONFLICT(\"user\", server) \
                       DO UPDATE SET connected = excluded.connected, sealed = excluded.sealed";
            client.execute(sql, &[&user, &server, &connected, &sealed]).await.map(drop)
        })
    }

    fn replace_grant(&self, old: &StoredGrant, new: Option<&StoredGrant>) -> Result<bool> {
        let (user, server, before) = (clean(&old.user), clean(&old.server), clean(&old.sealed));
        let after = new.map(|new| clean(&new.sealed));
        self.0.run(async move |client| {
            let same = "WHERE \"user\" = $1 AND server = $2 AND sealed = $3";
            let changed = match &after {
                Some(after) => {
                    let sql = format!("UPDATE mcp_grants SET sealed = $4 {same}");
                    client.execute(&sql, &[&user, &server, &before, after]).await
                }
                None => client.execute(&format!("DELETE FROM mcp_grants {same}"), &[&user, &server, &before]).await,
            };
            changed.map(|rows| rows > 0)
        })
    }

    fn remove_grant(&self, user: &str, server: &str) -> Result<bool> {
        let (user, server) = (clean(user), clean(server));
        self.0.run(async move |client| {
            let sql = "DELETE FROM mcp_grants WHERE \"user\" = $1 AND server = $2";
            client.execute(sql, &[&user, &server]).await.map(|removed| removed > 0)
        })
    }
}

fn grant_of(row: &Row) -> StoredGrant {
    let connected: i64 = row.get(2);
    StoredGrant { user: row.get(0), server: row.get(1), connected: connected.unsigned_abs(), sealed: row.get(3) }
}
