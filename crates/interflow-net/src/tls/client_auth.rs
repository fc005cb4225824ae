//! Client certificates on Interflow's own ports (mutual TLS): the accepted issuers, and the name in the certificate.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::provider;
use super::upstream::read_cas;

/// The longest name accepted from a certificate, in characters.
const MAX_NAME: usize = 128;

/// Which client certificates are required or accepted.
#[derive(Clone)]
pub struct ClientAuth {
    roots: RootCertStore,
    required: bool,
}

impl ClientAuth {
    /// Without authorities yet. If not `required`, clients without a certificate are accepted too, but one that is
    /// presented must be valid.
    pub fn new(required: bool) -> Self {
        Self { roots: RootCertStore::empty(), required }
    }

    /// Adds the authorities of a PEM file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, pem: &[u8]) -> Result<(), String> {
        // Each is parsed, so that a bad file is reported at start.
        for authority in read_cas(pem, "the file").map_err(|e| e.to_string())? {
            self.roots.add(authority).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    pub(super) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots.clone()), provider());
        // Optional certificates are still verified if one is presented.
        let builder = if self.required { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|e| e.to_string())
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientAuth({} authorities, required: {})", self.roots.len(), self.required)
    }
}

/// The client's name in its verified certificate: the common name, else the first alternative name, else its hash.
pub(super) fn certificate_name(leaf: &CertificateDer<'_>) -> Arc<str> {
    let named = X509Certificate::from_der(leaf).ok().and_then(|(_, certificate)| {
        let common = certificate.subject().iter_common_name().find_map(|a| a.as_str().ok().and_then(printable));
        // Only names of these kinds identify a client in a readable way.
        let alternative =
            || certificate.subject_alternative_name().ok()??.value.general_names.iter().find_map(alternative);
        common.or_else(alternative)
    });
    // The hash of the certificate is stable until it is replaced.
    named.unwrap_or_else(|| format!("sha256:{}", hex::encode(Sha256::digest(leaf)))).into()
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => printable(text),
        _ => None,
    }
}

/// A name that is safe in logs and tags. A longer one is not truncated, because two could become equal.
fn printable(text: &str) -> Option<String> {
    let fits = !text.trim().is_empty() && text.chars().count() <= MAX_NAME && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}
