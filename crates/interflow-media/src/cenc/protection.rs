//! Protection information of a sample entry (`sinf`; ISO 14496-12 8.12, ISO 23001-7 8 and 9), and `pssh`.

use interflow_types::labelled_enum;
use std::fmt;

use super::cipher::CipherBlock;
use super::error::{CencError, Result};
use super::keys::KeyId;
use crate::bmff::{BoxError, BoxReader, BoxRef, FourCc, child};

/// `uuid` of PIFF's track encryption box, the predecessor of `tenc`.
const PIFF_TENC: [u8; 16] = *b"\x89\x74\xdb\xce\x7b\xe7\x4c\x51\x84\xf9\x71\x48\xf9\x88\x25\x54";
/// `uuid` of PIFF's protection system header, the predecessor of `pssh`.
const PIFF_PSSH: [u8; 16] = *b"\xd0\x8a\x4f\x18\x10\xf3\x4a\x82\xb6\xc8\x32\xd8\xab\xa1\x83\xd3";

labelled_enum! {
    /// A protection scheme of ISO 23001-7. PIFF's two map to `cenc` and `cbc1`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProtectionScheme {
        /// CTR mode over all protected bytes.
        Cenc "cenc",
        /// CTR mode over the encrypted blocks of a pattern.
        Cens "cens",
        /// CBC mode; the chain continues through all subsamples of a sample.
        Cbc1 "cbc1",
        /// CBC with a block pattern, restarted in each subsample, usually with a constant IV; Apple's variant.
        Cbcs "cbcs",
    }
}

impl fmt::Display for ProtectionScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A repeating pattern of encrypted and clear blocks; video usually has 1 and 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptPattern {
    /// Blocks of 16 bytes that are encrypted in each period.
    pub crypt: u8,
    /// Blocks that stay clear; 0 means that everything is encrypted.
    pub skip: u8,
}

/// How samples are encrypted: the contents of `tenc` or of a `seig` group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleProtection {
    pub scheme: ProtectionScheme,
    /// Whether samples are encrypted at all; a group may declare its samples clear.
    pub protected: bool,
    /// Size of the per-sample IV: 0, 8 or 16 bytes. 0 requires a constant IV.
    pub iv_size: u8,
    /// The constant IV, used if there is no per-sample IV.
    pub constant_iv: Option<CipherBlock>,
    pub kid: KeyId,
    /// The pattern; `None` for schemes without one, and for 0:0.
    pub pattern: Option<CryptPattern>,
}

/// A protection system's header (`pssh`), which is meant for a DRM module and has no use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsshBox {
    /// The system's UUID.
    pub system: [u8; 16],
    /// The KIDs that it names (version 1).
    pub kids: Vec<KeyId>,
    /// Length of its private data in bytes.
    pub data: usize,
}

impl PsshBox {
    /// A readable name (Widevine, PlayReady, …) of a known system.
    pub fn system_name(&self) -> Option<&'static str> {
        Some(match &self.system[..4] {
            b"\xed\xef\x8b\xa9" => "Widevine",
            b"\x9a\x04\xf0\x79" => "PlayReady",
            b"\x94\xce\x86\xfb" => "FairPlay",
            b"\x10\x77\xef\xec" => "W3C common",
            b"\xe2\x71\x9d\x58" => "ClearKey (DASH-IF)",
            b"\x5e\x62\x9a\xf5" => "Marlin",
            _ => return None,
        })
    }

    /// Whether a box is a `pssh`, PIFF's included.
    pub fn is_one(b: &BoxRef<'_>) -> bool {
        b.kind() == b"pssh" || b.header.uuid == Some(PIFF_PSSH)
    }

    /// Reads the box; its private data is skipped.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn read(b: &BoxRef<'_>) -> Result<Self, BoxError> {
        let mut f = BoxReader::from_box(b);
        let (version, _) = f.version()?;
        let system = f.array()?;
        // Version 0 has no list of KIDs.
        let mut kids = Vec::new();
        if version > 0 {
            for _ in 0..f.count(16)? {
                kids.push(KeyId(f.array()?));
            }
        }
        let data = f.u32()? as usize;
        Ok(Self { system, kids, data })
    }
}

impl SampleProtection {
    /// Reads the first `sinf` with a supported scheme; `None` if there is no `sinf`.
    ///
    /// # Errors
    /// If none is supported, or the supported one is malformed.
    pub fn read<'a>(track: u32, sinfs: impl Iterator<Item = BoxRef<'a>>) -> Result<Option<Self>> {
        let mut foreign = None;
        for sinf in sinfs {
            let schm = child(&sinf, b"schm")?.ok_or_else(|| sinf.error_here("it has no schm"))?;
            let mut f = BoxReader::from_box(&schm);
            f.version()?;
            let scheme = FourCc(f.array()?);
            let supported = ProtectionScheme::ALL.into_iter().find(|s| s.as_str().as_bytes() == scheme.0);
            if supported.is_none() && scheme != b"piff" {
                foreign = Some(CencError::Scheme { track, scheme });
                continue;
            }
            let schi = child(&sinf, b"schi")?.ok_or_else(|| sinf.error_here("it has no schi"))?;
            return track_encryption(&schi, supported, track).map(Some);
        }
        foreign.map_or(Ok(None), Err)
    }

    /// Reads a `seig` group entry (ISO 23001-7 6).
    ///
    /// # Errors
    /// If it is truncated or uses several keys per sample.
    pub fn read_group(scheme: ProtectionScheme, f: &mut BoxReader<'_>, offset: u64) -> Result<Self> {
        let reserved = f.u8()?;
        if reserved & 0x80 != 0 {
            let what = "a sample with several keys";
            return Err(CencError::Unsupported { kind: FourCc(*b"sgpd"), offset, what });
        }
        Self::fields(scheme, f)
    }

    /// The fields common to `tenc` and `seig`, from the pattern on (ISO 23001-7 8.2).
    fn fields(scheme: ProtectionScheme, f: &mut BoxReader<'_>) -> Result<Self> {
        let pattern = f.u8()?;
        let protected = f.u8()? != 0;
        let iv_size = f.u8()?;
        let kid = KeyId(f.array()?);
        let mut constant_iv = None;
        if protected && iv_size == 0 {
            let n = f.u8()?;
            if n != 8 && n != 16 {
                return Err(f.error_here(format!("a constant IV has 8 or 16 bytes, not {n}")).into());
            }
            constant_iv = Some(padded(f.bytes(usize::from(n))?));
        }
        if !matches!(iv_size, 0 | 8 | 16) {
            return Err(f.error_here(format!("an IV has 8 or 16 bytes, not {iv_size}")).into());
        }
        let pattern = CryptPattern { crypt: pattern >> 4, skip: pattern & 15 };
        // A skip of 0 is not a pattern: everything is encrypted.
        let has_pattern = matches!(scheme, ProtectionScheme::Cens | ProtectionScheme::Cbcs) && pattern.skip != 0;
        Ok(Self { scheme, protected, iv_size, constant_iv, kid, pattern: has_pattern.then_some(pattern) })
    }

    /// Reads the fields of PIFF's `tenc`, which its `senc` may override: `None` means not encrypted.
    ///
    /// # Errors
    /// If they are truncated or name an unknown cipher.
    pub fn read_piff(f: &mut BoxReader<'_>) -> Result<Self> {
        let word = f.u32()?;
        let (algorithm, iv_size) = (word >> 8, word as u8);
        let scheme = match algorithm {
            0 | 1 => ProtectionScheme::Cenc,
            2 => ProtectionScheme::Cbc1,
            n => return Err(f.error_here(format!("cipher {n} is unknown")).into()),
        };
        if algorithm != 0 && !matches!(iv_size, 8 | 16) {
            return Err(f.error_here(format!("an IV has 8 or 16 bytes, not {iv_size}")).into());
        }
        let kid = KeyId(f.array()?);
        Ok(Self { scheme, protected: algorithm != 0, iv_size, constant_iv: None, kid, pattern: None })
    }
}

fn track_encryption(schi: &BoxRef<'_>, scheme: Option<ProtectionScheme>, track: u32) -> Result<SampleProtection> {
    for b in schi.children() {
        let b = b?;
        let mut f = BoxReader::from_box(&b);
        if b.header.uuid == Some(PIFF_TENC) {
            f.version()?;
            return SampleProtection::read_piff(&mut f);
        }
        if b.kind() == b"tenc" {
            f.version()?;
            f.skip(1)?;
            // PIFF 1.3 writers use the ISO box with their own scheme, which means CTR mode.
            return SampleProtection::fields(scheme.unwrap_or(ProtectionScheme::Cenc), &mut f);
        }
    }
    Err(schi.error_here(format!("it has no tenc (track {track})")).into())
}

/// An 8-byte IV is followed by the block counter, which starts at zero.
pub fn padded(iv: &[u8]) -> CipherBlock {
    let mut block = [0; 16];
    block.iter_mut().zip(iv).for_each(|(to, from)| *to = *from);
    block
}

/// The `sinf` boxes of an entry; several if the content may be decrypted under several schemes.
pub fn sinfs(entry: &crate::bmff::SampleEntry) -> impl Iterator<Item = BoxRef<'_>> {
    entry.children().flatten().filter(|b| b.kind() == b"sinf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bmff::boxes;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(8 + content.len() as u32).to_be_bytes()[..], kind, content].concat()
    }

    fn sinf(scheme: &[u8; 4], inner: &[u8]) -> Vec<u8> {
        let schm = boxed(b"schm", &[&[0; 4][..], scheme, &[0, 1, 0, 0]].concat());
        boxed(b"sinf", &[boxed(b"frma", b"avc1"), schm, boxed(b"schi", inner)].concat())
    }

    fn read(data: &[u8]) -> Result<Option<SampleProtection>> {
        SampleProtection::read(7, boxes(data, 0).map(Result::unwrap))
    }

    #[test]
    fn every_form_of_track_encryption_is_read() {
        let kid = [9; 16];
        let v0 = boxed(b"tenc", &[&[0, 0, 0, 0, 0, 0, 1, 8][..], &kid].concat());
        let v1 = boxed(b"tenc", &[&[1, 0, 0, 0, 0, 0x19, 1, 0][..], &kid, &[8], &[5; 8]].concat());
        let whole = boxed(b"tenc", &[&[1, 0, 0, 0, 0, 0, 1, 0][..], &kid, &[16], &[6; 16]].concat());
        let clear = boxed(b"tenc", &[&[0, 0, 0, 0, 0, 0, 0, 0][..], &kid].concat());
        let piff = boxed(b"uuid", &[&PIFF_TENC[..], &[0, 0, 0, 0, 0, 0, 2, 16], &kid].concat());
        for (data, scheme, protected, iv_size, constant, pattern) in [
            (sinf(b"cenc", &v0), ProtectionScheme::Cenc, true, 8, None, None),
            (
                sinf(b"cbcs", &v1),
                ProtectionScheme::Cbcs,
                true,
                0,
                Some(padded(&[5; 8])),
                Some(CryptPattern { crypt: 1, skip: 9 }),
            ),
            (sinf(b"cbcs", &whole), ProtectionScheme::Cbcs, true, 0, Some([6; 16]), None),
            (sinf(b"cens", &clear), ProtectionScheme::Cens, false, 0, None, None),
            (sinf(b"piff", &piff), ProtectionScheme::Cbc1, true, 16, None, None),
            ([sinf(b"abcd", &[]), sinf(b"cbc1", &v0)].concat(), ProtectionScheme::Cbc1, true, 8, None, None),
        ] {
            let expected =
                SampleProtection { scheme, protected, iv_size, constant_iv: constant, kid: KeyId(kid), pattern };
            assert_eq!(read(&data).unwrap(), Some(expected));
        }
    }

    #[test]
    fn unsupported_protection_is_reported_with_the_reason() {
        let kid = [9; 16];
        let seven = boxed(b"tenc", &[&[0, 0, 0, 0, 0, 0, 1, 7][..], &kid].concat());
        let none = boxed(b"tenc", &[&[1, 0, 0, 0, 0, 0, 1, 0][..], &kid, &[0]].concat());
        for (data, part) in [
            (sinf(b"adkm", &[]), "scheme `adkm`"),
            (sinf(b"cenc", &[]), "no tenc"),
            (sinf(b"cenc", &seven), "not 7"),
            (sinf(b"cbcs", &none), "not 0"),
            (sinf(b"cenc", &boxed(b"tenc", &[0; 10])), "shorter"),
            (boxed(b"sinf", &[]), "no schm"),
        ] {
            let e = read(&data).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        }
        assert_eq!(read(&[]), Ok(None));
    }
}
