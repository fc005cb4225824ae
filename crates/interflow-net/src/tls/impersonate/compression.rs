//! Decompression of compressed certificates (RFC 8879).

use std::io::{self, Read, Write};

use btls::ssl::{CertificateCompressionAlgorithm, CertificateCompressor};

/// The largest certificate chain; BoringSSL also compares the length with the announced one.
const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;

macro_rules! decompressors {
    ($($name:ident, $algorithm:ident, $open:expr;)*) => {$(
        pub(super) struct $name;

        impl CertificateCompressor for $name {
            const ALGORITHM: CertificateCompressionAlgorithm = CertificateCompressionAlgorithm::$algorithm;
            const CAN_COMPRESS: bool = false;
            const CAN_DECOMPRESS: bool = true;

            fn decompress<W: Write>(&self, input: &[u8], output: &mut W) -> io::Result<()> {
                let open: fn(&[u8]) -> io::Result<Box<dyn Read + '_>> = $open;
                io::copy(&mut open(input)?.take(MAX_CERTIFICATE_BYTES), output).map(drop)
            }
        }
    )*};
}

decompressors! {
    Zlib, ZLIB, |input| Ok(Box::new(flate2::read::ZlibDecoder::new(input)));
    Brotli, BROTLI, |input| Ok(Box::new(brotli::Decompressor::new(input, 4096)));
    Zstd, ZSTD, |input| Ok(Box::new(zstd::stream::read::Decoder::new(input)?));
}
