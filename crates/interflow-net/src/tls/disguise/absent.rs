//! What stands in for fingerprints in a build without the feature `impersonate`: a refusal with its remedy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use interflow_flow::{Error, Host, UpstreamTls};
use interflow_wire::fingerprint::Fingerprint;
use rustls_pki_types::ServerName;

use super::{Alpn, TlsProfile};
use crate::io::Io;

/// Never made.
pub(super) struct Disguise(Infallible);

impl Disguise {
    pub(super) fn new(_: &Arc<TlsProfile>, told: &str, _: Fingerprint, _: bool) -> Result<Self, String> {
        Err(format!(
            "the fingerprint `{told}` needs a build with the feature `impersonate`: `make run FEATURES=impersonate`"
        ))
    }

    pub(super) fn fingerprint(&self) -> &Fingerprint {
        match self.0 {}
    }

    pub(super) async fn connect(
        &self,
        _: Io,
        _: &Host,
        _: ServerName<'static>,
        _: Alpn,
        _: Duration,
    ) -> Result<(Io, UpstreamTls), Error> {
        match self.0 {}
    }

    pub(super) fn speaks_none_offered(_: &Error) -> bool {
        false
    }
}
