//! The certificate database of a Firefox profile (`cert9.db`), with one CA that Firefox trusts for websites. It is
//! written directly, because the program that usually writes it, NSS's `certutil`, is rarely installed.
//!
//! The database is PKCS #11 objects in SQLite: a row is an object, a column an attribute. Trust is an object of its own,
//! which Firefox authenticates by a key from the profile's password. A new profile has no key yet: on the first start,
//! Firefox makes one, and authenticates what is there.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use sha1::{Digest as _, Sha1};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SCHEMA: &str = include_str!("../../data/nss_public.sql");

// Attributes of PKCS #11, and of NSS (`0xce53…`).
const CLASS: u32 = 0x0;
const TOKEN: u32 = 0x1;
const PRIVATE: u32 = 0x2;
const LABEL: u32 = 0x3;
const VALUE: u32 = 0x11;
const CERTIFICATE_TYPE: u32 = 0x80;
const ISSUER: u32 = 0x81;
const SERIAL_NUMBER: u32 = 0x82;
const SUBJECT: u32 = 0x101;
const ID: u32 = 0x102;
const MODIFIABLE: u32 = 0x170;
const TRUST_SERVER_AUTH: u32 = 0xce53_6358;
const TRUST_CLIENT_AUTH: u32 = 0xce53_6359;
const TRUST_CODE_SIGNING: u32 = 0xce53_635a;
const TRUST_EMAIL: u32 = 0xce53_635b;
const TRUST_STEP_UP: u32 = 0xce53_6360;
const CERTIFICATE_SHA1: u32 = 0xce53_63b4;

// Values of these attributes. Numbers are big-endian.
const CERTIFICATE_CLASS: u32 = 0x1;
const TRUST_CLASS: u32 = 0xce53_4353;
const X509: u32 = 0x0;
const TRUSTED_CA: u32 = 0xce53_4352;
const NOT_TRUSTED_FOR_THIS: u32 = 0xce53_4353;
const TRUE: [u8; 1] = [1];
const FALSE: [u8; 1] = [0];

type Attributes<'a> = &'a [(u32, &'a [u8])];

/// Numbers of the two objects; any that differ.
const OBJECT_IDS: [i64; 2] = [1, 2];

/// Writes the database into a profile that has none, with this certificate as a CA for websites, and for nothing else.
///
/// # Errors
/// The database cannot be written, or the certificate cannot be parsed.
pub(super) fn write(profile: &Path, name: &str, certificate: &[u8]) -> Result<(), String> {
    let path = profile.join("cert9.db");
    let failed = |e: rusqlite::Error| format!("{} cannot be written: {e}", path.display());
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|e| format!("the CA's certificate cannot be parsed: {e}"))?;
    let mut db = Connection::open(&path).map_err(failed)?;
    let transaction = db.transaction().map_err(failed)?;
    transaction.execute_batch(SCHEMA).map_err(failed)?;
    let issuer = parsed.issuer().as_raw();
    let serial = integer(parsed.raw_serial());
    let sha1 = Sha1::digest(certificate);
    let [certificate_id, trust_id] = OBJECT_IDS;
    let number = u32::to_be_bytes;
    let objects: [(i64, Attributes<'_>); 2] = [
        (
            certificate_id,
            &[
                (CLASS, &number(CERTIFICATE_CLASS)),
                (TOKEN, &TRUE),
                (PRIVATE, &FALSE),
                (LABEL, name.as_bytes()),
                (VALUE, certificate),
                (CERTIFICATE_TYPE, &number(X509)),
                (ISSUER, issuer),
                (SERIAL_NUMBER, &serial),
                (SUBJECT, parsed.subject().as_raw()),
                (ID, &sha1),
                (MODIFIABLE, &TRUE),
            ],
        ),
        (
            trust_id,
            &[
                (CLASS, &number(TRUST_CLASS)),
                (TOKEN, &TRUE),
                (PRIVATE, &FALSE),
                (ISSUER, issuer),
                (SERIAL_NUMBER, &serial),
                (MODIFIABLE, &TRUE),
                (TRUST_SERVER_AUTH, &number(TRUSTED_CA)),
                (TRUST_CLIENT_AUTH, &number(NOT_TRUSTED_FOR_THIS)),
                (TRUST_CODE_SIGNING, &number(NOT_TRUSTED_FOR_THIS)),
                (TRUST_EMAIL, &number(NOT_TRUSTED_FOR_THIS)),
                (TRUST_STEP_UP, &FALSE),
                (CERTIFICATE_SHA1, &sha1),
            ],
        ),
    ];
    for (id, attributes) in objects {
        let columns: String = attributes.iter().map(|(attribute, _)| format!(", a{attribute:x}")).collect();
        let places = ", ?".repeat(attributes.len());
        let values = attributes.iter().map(|(_, value)| Value::Blob(value.to_vec()));
        let values = params_from_iter(std::iter::once(Value::Integer(id)).chain(values));
        let statement = format!("INSERT INTO nssPublic (id{columns}) VALUES (?{places})");
        transaction.execute(&statement, values).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    db.close().map_err(|(_, e)| failed(e))
}

/// The DER of an INTEGER with this content. Serial numbers have at most 20 bytes (RFC 5280 4.1.2.2); longer ones, which
/// other CAs may have, up to 127 bytes are written too.
fn integer(content: &[u8]) -> Vec<u8> {
    let content = &content[..content.len().min(127)];
    [&[2, content.len() as u8], content].concat()
}

#[cfg(test)]
mod tests {
    use interflow_net::ca::CertificateAuthority;

    use super::*;

    #[test]
    fn the_ca_is_trusted_for_websites_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open_or_create(&dir.path().join("ca")).unwrap();
        write(dir.path(), "Interflow", ca.certificate_der()).unwrap();
        let db = Connection::open(dir.path().join("cert9.db")).unwrap();
        let row = |class: &str, columns: &str| -> Vec<Vec<u8>> {
            let statement = format!("SELECT {columns} FROM nssPublic WHERE hex(a0) = '{class}'");
            db.query_row(&statement, [], |row| (0..columns.split(',').count()).map(|i| row.get(i)).collect()).unwrap()
        };
        let [der, issuer, serial] = &row("00000001", "a11, a81, a82")[..] else { unreachable!() };
        assert_eq!(der, ca.certificate_der());
        // A CA that issued its own certificate.
        assert_eq!(row("00000001", "a101")[0], *issuer);
        assert!(der.windows(serial.len()).any(|part| part == serial), "the serial number is in DER");
        let trust = row("CE534353", "a81, a82, ace5363b4, ace536358, ace53635a, ace53635b");
        assert_eq!([&trust[0], &trust[1]], [issuer, serial]);
        assert_eq!(trust[2], Sha1::digest(der).to_vec());
        let [trusted, not] = [TRUSTED_CA, NOT_TRUSTED_FOR_THIS].map(|n| n.to_be_bytes().to_vec());
        assert_eq!(trust[3..], [trusted, not.clone(), not]);
        assert!(write(dir.path(), "Interflow", ca.certificate_der()).is_err(), "it is not written over another one");
        assert!(write(&dir.path().join("ca"), "Interflow", b"x").unwrap_err().contains("cannot be parsed"));
    }
}
