//! AES-128 segments (RFC 8216bis 5.2) decrypted as they come.

use std::task::{Context, Poll, ready};

use aes::Aes128;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use bytes::{Bytes, BytesMut};
use interflow_flow::{Body, BodyStream, Error, Frame, Kind, Result};

const BLOCK: usize = 16;

/// Takes CBC and its padding off a body. The length of what comes out is known only at its end.
pub fn decrypted(body: Body, key: &[u8; 16], iv: &[u8; 16]) -> Body {
    let cipher = cbc::Decryptor::<Aes128>::new(key.into(), iv.into());
    Body::stream(Decrypted { body, cipher, held: BytesMut::new(), over: false })
}

struct Decrypted {
    body: Body,
    cipher: cbc::Decryptor<Aes128>,
    /// Bytes that are not decrypted yet: at least the last block, which may be padding.
    held: BytesMut,
    over: bool,
}

impl BodyStream for Decrypted {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        while !self.over {
            let ready = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => {
                    self.held.extend_from_slice(&data);
                    let whole = self.held.len().saturating_sub(1) / BLOCK * BLOCK;
                    self.decrypt(whole)
                }
                Some(Ok(Frame::Trailers(_))) => continue,
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    self.over = true;
                    match self.last() {
                        Ok(bytes) => bytes,
                        Err(e) => return Poll::Ready(Some(Err(e))),
                    }
                }
            };
            if !ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(ready))));
            }
        }
        Poll::Ready(None)
    }
}

impl Decrypted {
    fn decrypt(&mut self, length: usize) -> Bytes {
        let mut blocks = self.held.split_to(length);
        let (chunks, _) = InOutBuf::from(&mut blocks[..]).into_chunks();
        self.cipher.decrypt_blocks_inout(chunks);
        blocks.freeze()
    }

    fn last(&mut self) -> Result<Bytes> {
        if self.held.is_empty() {
            return Ok(Bytes::new());
        }
        let wrong =
            |why: &str| Error::new(Kind::BadResponse, format!("the segment cannot be decrypted with AES-128: {why}"));
        if self.held.len() != BLOCK {
            return Err(wrong("its length is no multiple of 16 bytes"));
        }
        let mut block = self.decrypt(BLOCK);
        let padding = usize::from(block.last().copied().unwrap_or_default());
        let is_padding = (1..=BLOCK).contains(&padding)
            && block.get(BLOCK - padding..).is_some_and(|p| p.iter().all(|b| usize::from(*b) == padding));
        if !is_padding {
            return Err(wrong("its padding is wrong, so the key is, or the vector"));
        }
        block.truncate(BLOCK - padding);
        Ok(block)
    }
}

/// 16 bytes from hex, shorter ones filled with zeros in front.
pub fn vector(hex: &str) -> Option<[u8; 16]> {
    (!hex.is_empty() && hex.len() <= 32).then(|| u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::BlockModeEncrypt as _;
    use aes::cipher::block_padding::Pkcs7;

    struct Pieces(Vec<Bytes>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
            Poll::Ready((!self.0.is_empty()).then(|| Ok(Frame::Data(self.0.remove(0)))))
        }
    }

    fn sealed(plain: &[u8]) -> Vec<u8> {
        let mut buffer = plain.to_vec();
        buffer.resize(plain.len() + 16, 0);
        let cipher = cbc::Encryptor::<Aes128>::new(&[1; 16].into(), &[2; 16].into());
        cipher.encrypt_padded::<Pkcs7>(&mut buffer, plain.len()).unwrap().to_vec()
    }

    #[tokio::test]
    async fn any_cut_into_pieces_gives_the_same() {
        for length in [0, 1, 15, 16, 17, 1000] {
            let plain: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let text = sealed(&plain);
            for piece in [1, 7, 16, 33, 5000] {
                let pieces = text.chunks(piece).map(Bytes::copy_from_slice).collect();
                let body = decrypted(Body::stream(Pieces(pieces)), &[1; 16], &[2; 16]);
                assert_eq!(body.collect(4096).await.unwrap().0, plain, "{length} in pieces of {piece}");
            }
        }
    }

    #[tokio::test]
    async fn a_wrong_key_or_length_is_an_error() {
        let text = sealed(&[5; 100]);
        for (text, key) in [(text.clone(), [9; 16]), (text[..50].to_vec(), [1; 16])] {
            assert!(decrypted(Body::Full(text.into()), &key, &[2; 16]).collect(4096).await.is_err());
        }
    }

    #[test]
    fn vectors_are_read() {
        assert_eq!(vector("1"), Some(1_u128.to_be_bytes()));
        assert_eq!(vector(&"f".repeat(32)), Some([0xff; 16]));
        assert!(vector("").is_none() && vector("x").is_none() && vector(&"0".repeat(33)).is_none());
    }
}
