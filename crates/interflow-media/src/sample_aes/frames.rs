//! SAMPLE-AES of audio: each frame is encrypted after its header and 16 more bytes, in whole blocks.

use crate::cenc::{AesKey, CbcCipher};

/// Audio formats whose frames state their own length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioFraming {
    /// AAC in ADTS frames.
    Adts,
    /// AC-3 or E-AC-3 sync frames.
    Ac3,
}

/// Decrypts consecutive frames in `data`. Each frame is a CBC chain of its own that starts with `iv`; a remainder of
/// less than a block is clear.
///
/// # Errors
/// The offset at which there is no complete frame.
pub fn decrypt(audio: AudioFraming, data: &mut [u8], key: &AesKey, iv: [u8; 16]) -> Result<(), usize> {
    let mut at = 0;
    while let Some(rest) = data.get_mut(at..).filter(|r| !r.is_empty()) {
        let (leader, length) = match audio {
            AudioFraming::Adts => adts(rest),
            AudioFraming::Ac3 => ac3(rest),
        }
        .ok_or(at)?;
        let frame = rest.get_mut(..length).ok_or(at)?;
        if let Some(blocks) = frame.get_mut(leader..) {
            CbcCipher::new(iv).apply(key, blocks);
        }
        at += length;
    }
    Ok(())
}

/// Clear bytes and length of an ADTS frame (ISO 14496-3 1.A.2.2).
fn adts(data: &[u8]) -> Option<(usize, usize)> {
    let [0xff, b, _, c, d, e, ..] = *data else { return None };
    let header = if b & 1 == 0 { 9 } else { 7 };
    let length = usize::from(c & 3) << 11 | usize::from(d) << 3 | usize::from(e >> 5);
    (b & 0xf6 == 0xf0 && length >= header).then_some((header + 16, length))
}

/// Clear bytes and length of an AC-3 frame (ETSI TS 102 366 4.3) or an E-AC-3 one (annex E).
fn ac3(data: &[u8]) -> Option<(usize, usize)> {
    let [0x0b, 0x77, c, d, e, f, ..] = *data else { return None };
    let bsid = f >> 3;
    // Values above 10 are E-AC-3, which states its length directly.
    if bsid > 10 {
        return Some((16, (usize::from(c & 7) << 8 | usize::from(d)) * 2 + 2));
    }
    let code = usize::from(e & 63);
    let kbps = *RATES.get(code / 2)?;
    let words = match e >> 6 {
        0 => kbps * 2,
        // At 44.1 kHz, odd codes are one word longer.
        1 => kbps * 320 / 147 + code % 2,
        2 => kbps * 3,
        _ => return None,
    };
    Some((16, words * 2))
}

/// Bit rates in kbit/s by half of the frame size code.
const RATES: [usize; 19] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cenc::ContentKey;
    use aes::cipher::{Array, BlockModeEncrypt as _, KeyIvInit as _};

    fn seal(frame: &mut [u8], leader: usize) {
        let (blocks, _) = frame.get_mut(leader..).unwrap_or_default().as_chunks_mut::<16>();
        cbc::Encryptor::<aes::Aes128>::new(&Array([7; 16]), &Array([9; 16]))
            .encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
    }

    #[test]
    fn cbc_chain_restarts_at_every_audio_frame() {
        let adts = |n: usize, header: u8| {
            let mut f = vec![0xff, 0xf0 | header, 0x4c, 0x80, (n >> 3) as u8, (n << 5) as u8 | 0x1f, 0xfc];
            f.resize(n, 0x33);
            f
        };
        let ac3 = |e: u8, n: usize| [&[0x0b, 0x77, 0, 0, e, 0x40][..], &vec![0x44; n - 6]].concat();
        let eac3 = |n: usize| [&[0x0b, 0x77, 0, (n / 2 - 1) as u8, 0, 0x80][..], &vec![0x55; n - 6]].concat();
        for (audio, frames, leader) in [
            (AudioFraming::Adts, vec![adts(100, 1), adts(20, 1), adts(8, 1), adts(255, 1)], 23),
            (AudioFraming::Adts, vec![adts(100, 0)], 25),
            (AudioFraming::Ac3, vec![ac3(0, 128), ac3(20, 768), ac3(0x40, 138), ac3(0x41, 140), ac3(0x80, 192)], 16),
            (AudioFraming::Ac3, vec![eac3(400), eac3(6)], 16),
        ] {
            let clear = frames.concat();
            let mut sealed: Vec<u8> = frames
                .into_iter()
                .flat_map(|mut f| {
                    seal(&mut f, leader);
                    f
                })
                .collect();
            assert_eq!(decrypt(audio, &mut sealed, &AesKey::new(&ContentKey([7; 16])), [9; 16]), Ok(()));
            assert!(sealed == clear);
        }
    }

    #[test]
    fn invalid_audio_frame_is_refused_with_its_position() {
        let key = AesKey::new(&ContentKey([7; 16]));
        for (audio, mut data, at) in [
            (AudioFraming::Adts, vec![0xff, 0xf1, 0x4c, 0x80, 1, 0x1f, 0xfc, 0], 8),
            (AudioFraming::Adts, vec![0xff, 0xf1, 0x4c, 0x80, 0, 0x1f, 0xfc], 0),
            (AudioFraming::Ac3, vec![0x0b, 0x77, 0, 0, 0xc0, 0x40], 0),
            (AudioFraming::Ac3, vec![1; 20], 0),
        ] {
            data.push(0);
            assert_eq!(decrypt(audio, &mut data, &key, [0; 16]), Err(at), "{data:?}");
        }
    }
}
