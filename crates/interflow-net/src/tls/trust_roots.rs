//! The platform's trusted roots, read once, when first needed.

use std::sync::{Arc, LazyLock};

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

pub(super) struct PlatformRoots {
    pub(super) store: Arc<RootCertStore>,
    /// Why the store is empty, if it is.
    pub(super) trouble: Option<String>,
}

/// The platform's roots; overridden by `SSL_CERT_FILE` and `SSL_CERT_DIR`.
pub(super) fn platform_roots() -> &'static PlatformRoots {
    // Read once per process: a change of the system's roots needs a restart.
    static ROOTS: LazyLock<PlatformRoots> = LazyLock::new(|| {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "a part of the platform's trusted roots could not be read");
        }
        let (store, refused) = root_store(loaded.certs);
        if refused > 0 {
            tracing::debug!(refused, "platform roots that do not parse were left out");
        }
        let trouble = store.is_empty().then(|| match loaded.errors.first() {
            Some(error) => format!("the platform's trusted roots could not be read: {error}"),
            None => "this system has no trusted roots: install its CA certificates (ca-certificates), or name a \
                     PEM file in SSL_CERT_FILE"
                .to_owned(),
        });
        PlatformRoots { store: Arc::new(store), trouble }
    });
    &ROOTS
}

pub(super) fn platform_roots_with(extra: &[CertificateDer<'static>]) -> Arc<RootCertStore> {
    let platform = &platform_roots().store;
    if extra.is_empty() {
        return platform.clone();
    }
    let mut store = RootCertStore::clone(platform);
    // They were checked when they were read, so none is left out here.
    store.add_parsable_certificates(extra.iter().cloned());
    Arc::new(store)
}

/// A store of only these, and how many of them were unusable.
pub(super) fn root_store(certs: impl IntoIterator<Item = CertificateDer<'static>>) -> (RootCertStore, usize) {
    let mut store = RootCertStore::empty();
    let (_, refused) = store.add_parsable_certificates(certs);
    (store, refused)
}
