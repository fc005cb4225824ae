//! Replaces impersonation in builds without the feature `impersonate`: an error with its remedy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use interflow_codec::fingerprint::ConnectionFingerprint;
use interflow_types::{Error, Host, UpstreamTls};
use rustls_pki_types::ServerName;

use super::{Alpn, TlsProfile};
use crate::io::IoStream;

/// Never constructed.
pub(super) struct TlsImpersonator(Infallible);

impl TlsImpersonator {
    pub(super) fn new(_: &Arc<TlsProfile>, name: &str, _: ConnectionFingerprint, _: bool) -> Result<Self, String> {
        Err(format!(
            "the fingerprint `{name}` needs a build with the feature `impersonate`: `make run FEATURES=impersonate`"
        ))
    }

    pub(super) fn fingerprint(&self) -> &ConnectionFingerprint {
        match self.0 {}
    }

    pub(super) async fn connect(
        &self,
        _: IoStream,
        _: &Host,
        _: ServerName<'static>,
        _: Alpn,
        _: Duration,
    ) -> Result<(IoStream, UpstreamTls), Error> {
        match self.0 {}
    }

    pub(super) fn is_no_application_protocol(_: &Error) -> bool {
        false
    }
}
