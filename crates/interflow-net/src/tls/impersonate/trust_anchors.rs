//! Binds `SSL_CTX_set1_requested_trust_anchors`, which the BoringSSL crate does not wrap.
#![allow(unsafe_code)]

use btls::error::ErrorStack;
use btls::ssl::SslContextBuilder;

/// Requests certification authorities by their identifiers, in the encoding of the extension.
pub(super) fn request_trust_anchors(builder: &mut SslContextBuilder, ids: &[u8]) -> Result<(), ErrorStack> {
    // SAFETY: the context is alive and not shared while its builder is borrowed; the list is read and copied within
    // the call.
    let done = unsafe { btls_sys::SSL_CTX_set1_requested_trust_anchors(builder.as_ptr(), ids.as_ptr(), ids.len()) };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}
