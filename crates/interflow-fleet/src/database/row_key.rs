//! The key by which replicas recognise rows of their own in the database: settings, which may start programs, and API tokens.
//! Who can write to the database, but does not know what replicas have in common, cannot make any.
//!
//! A row has a message authentication code over its fields, the number of a setting's revision among them, so that no other
//! row can take its place. What this does not prevent: rows can be deleted, and a deleted token can be put back by
//! somebody who has kept its row.

use tokio_postgres::{Client, Error};

/// The key of a fleet. Cheap to clone.
#[derive(Clone)]
pub struct RowKey([u8; 32]);

impl RowKey {
    /// From a secret that all replicas have, of at least 32 random characters: the admin token.
    pub fn derive(secret: &str) -> Self {
        Self(blake3::derive_key("Interflow rows of a fleet, 2026", secret.as_bytes()))
    }

    fn mac(&self, fields: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for field in fields {
            // With their lengths, so that no bytes can move from one field to the next.
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        hasher.finalize()
    }

    /// `digest` is the SHA-256 of the content.
    pub(crate) fn of_setting(&self, name: &str, revision: i64, restores: Option<i64>, digest: &[u8]) -> blake3::Hash {
        let restores = restores.map(i64::to_le_bytes);
        let restores = restores.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        self.mac(&[b"setting", name.as_bytes(), &revision.to_le_bytes(), restores, digest])
    }

    pub(crate) fn of_token(&self, id: &str, text: &str) -> blake3::Hash {
        self.mac(&[b"token", id.as_bytes(), text.as_bytes()])
    }
}

/// Whether a row has this code; compared in constant time.
pub(crate) fn is_authentic(expected: &blake3::Hash, found: Option<&[u8]>) -> bool {
    found.and_then(|found| <[u8; 32]>::try_from(found).ok()).is_some_and(|found| *expected == found)
}

/// Gives rows of before their codes.
pub(crate) async fn adopt_rows(client: &mut Client, key: &RowKey) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let settings = "SELECT name, revision, restores, sha256(content) FROM settings WHERE mac IS NULL";
    let settings = transaction.query(settings, &[]).await?;
    for row in &settings {
        let (name, revision): (&str, i64) = (row.get(0), row.get(1));
        let mac = key.of_setting(name, revision, row.get(2), row.get(3));
        let sql = "UPDATE settings SET mac = $3 WHERE name = $1 AND revision = $2";
        transaction.execute(sql, &[&name, &revision, &mac.as_bytes().as_slice()]).await?;
    }
    let tokens = transaction.query("SELECT id, token FROM api_tokens WHERE mac IS NULL", &[]).await?;
    for row in &tokens {
        let (id, text): (&str, &str) = (row.get(0), row.get(1));
        let sql = "UPDATE api_tokens SET mac = $2 WHERE id = $1";
        transaction.execute(sql, &[&id, &key.of_token(id, text).as_bytes().as_slice()]).await?;
    }
    transaction.commit().await?;
    if settings.len() + tokens.len() > 0 {
        tracing::info!(
            revisions = settings.len(),
            tokens = tokens.len(),
            "the settings and API tokens that were in the shared store are accepted; from now on those without a proof of origin \
             are refused"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_holds_for_one_row_and_one_key() {
        let key = RowKey::derive("0123456789abcdef0123456789abcdef");
        let of = |name, revision, restores| key.of_setting(name, revision, restores, b"digest");
        let code = of("rules", 3, Some(1));
        assert!(is_authentic(&code, Some(of("rules", 3, Some(1)).as_bytes())));
        let other = RowKey::derive("0123456789abcdef0123456789abcdeX");
        for wrong in [
            of("keys", 3, Some(1)),
            of("rules", 4, Some(1)),
            of("rules", 3, None),
            of("rules", 3, Some(2)),
            key.of_setting("rules", 3, Some(1), b"other"),
            other.of_setting("rules", 3, Some(1), b"digest"),
        ] {
            assert!(!is_authentic(&code, Some(wrong.as_bytes())));
        }
        assert!(!is_authentic(&code, None) && !is_authentic(&code, Some(b"")));
    }
}
