//! The certificate chain that one side of a TLS connection presented.

use std::fmt;

use bytes::{Bytes, BytesMut};

/// Chains of origins have two to four certificates.
const MAX_CERTIFICATES: usize = 10;
/// The length of a certificate, before it, as in a TLS handshake (RFC 8446 4.4.2).
const LENGTH_BYTES: usize = 3;

/// Certificates in DER, the leaf first. What exceeds 10 certificates or 64 KiB is left out.
///
/// They are stored in one piece of memory, so that the flows of a connection share it and a recorder can store it as it
/// is.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateChain(Bytes);

impl CertificateChain {
    /// Maximum length of all certificates together; usual chains have 3 to 6 kB.
    pub const MAX_LEN: usize = 64 << 10;

    /// A chain of certificates in DER; `None` if there are none.
    pub fn from_der<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut all = BytesMut::new();
        for der in certificates.into_iter().take(MAX_CERTIFICATES) {
            if all.len() + LENGTH_BYTES + der.len() > Self::MAX_LEN {
                break;
            }
            all.extend_from_slice(&(der.len() as u32).to_be_bytes()[1..]);
            all.extend_from_slice(der);
        }
        (!all.is_empty()).then(|| Self(all.freeze()))
    }

    /// Reads what [`as_bytes`](Self::as_bytes) returned; what is not a list of certificates is ignored.
    pub fn from_bytes(bytes: Bytes) -> Option<Self> {
        let chain = Self(bytes);
        let is_empty = chain.iter().next().is_none();
        (!is_empty).then_some(chain)
    }

    /// Each certificate with its length before it, in 3 bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The certificates in DER, the leaf first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
            let (der, after) = after.split_at_checked(length)?;
            rest = after;
            Some(der)
        })
    }
}

impl fmt::Debug for CertificateChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateChain({} certificates)", self.iter().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_back_in_order() {
        let chain = CertificateChain::from_der([&b"leaf"[..], &[7; 300], b"root"]).unwrap();
        let back = CertificateChain::from_bytes(chain.as_bytes().clone()).unwrap();
        assert_eq!(back.iter().collect::<Vec<_>>(), [&b"leaf"[..], &[7; 300], b"root"]);
        assert!(CertificateChain::from_der([]).is_none());
    }

    #[test]
    fn chains_are_bounded_in_number_and_length() {
        let many = CertificateChain::from_der(std::iter::repeat_n(&b"x"[..], 50)).unwrap();
        assert_eq!(many.iter().count(), MAX_CERTIFICATES);
        let long = CertificateChain::from_der([&b"leaf"[..], &vec![0; CertificateChain::MAX_LEN]]).unwrap();
        assert_eq!(long.iter().collect::<Vec<_>>(), [b"leaf"]);
    }

    #[test]
    fn bytes_that_are_no_chain_are_none() {
        for bytes in [&b""[..], b"\0\0", b"\0\0\x05leaf", b"\xff\xff\xff"] {
            assert!(CertificateChain::from_bytes(Bytes::copy_from_slice(bytes)).is_none(), "{bytes:?}");
        }
    }
}
