//! Sample auxiliary information (ISO 23001-7 7): the IV and subsamples of each sample, in `senc`, in PIFF's `uuid` box,
//! or at the location given by `saiz` and `saio`.

use super::cipher::CipherBlock;
use super::error::{CencError, Result};
use super::protection::{SampleProtection, padded};
use crate::bmff::{BoxError, BoxReader, BoxRef};

/// `uuid` of PIFF's sample encryption box, the predecessor of `senc`.
const PIFF_SENC: [u8; 16] = *b"\xa2\x39\x4f\x52\x5a\x9b\x4f\x14\xa2\x44\x6c\x42\x7c\x64\x8d\xf4";

/// The number of clear bytes, then of the protected bytes that follow them.
pub type Subsample = (u32, u32);

/// Whether a box is a `senc` (ISO 23001-7 7.2) or PIFF's equivalent.
pub fn is_senc(b: &BoxRef<'_>) -> bool {
    b.kind() == b"senc" || b.header.uuid == Some(PIFF_SENC)
}

/// Reads a `senc` sample by sample, since the size of one depends on what it contains.
pub struct SencReader<'a> {
    fields: BoxReader<'a>,
    has_subsamples: bool,
    /// PIFF's override of the track's `tenc`.
    pub over: Option<SampleProtection>,
    left: usize,
}

impl<'a> SencReader<'a> {
    /// Reads the box's header and entry count.
    ///
    /// # Errors
    /// If it is truncated, or of a version with several keys per sample.
    pub fn open(b: &BoxRef<'a>) -> Result<Self> {
        let mut fields = BoxReader::from_box(b);
        let (version, flags) = fields.version()?;
        let is_piff = b.header.uuid.is_some();
        if version != 0 && !is_piff {
            let what = "a sample with several keys";
            return Err(CencError::Unsupported { kind: b.kind(), offset: b.offset, what });
        }
        let over = if is_piff && flags & 1 != 0 { Some(SampleProtection::read_piff(&mut fields)?) } else { None };
        let count = fields.count(0)?;
        Ok(Self { fields, has_subsamples: flags & 2 != 0, over, left: count })
    }

    /// Checks that there is exactly one entry per sample, without which entries cannot be assigned.
    ///
    /// # Errors
    /// If the counts differ.
    pub fn expect(&self, samples: usize) -> Result<(), BoxError> {
        if self.left == samples {
            return Ok(());
        }
        Err(self.fields.error_here(format!("it has {} entries for {samples} samples", self.left)))
    }

    /// The next sample's IV and subsamples; the latter are appended to `subsamples`, a pool shared by all samples.
    ///
    /// # Errors
    /// If there is none left or it is truncated.
    pub fn next(
        &mut self,
        protection: &SampleProtection,
        subsamples: &mut Vec<Subsample>,
    ) -> Result<CipherBlock, BoxError> {
        self.left =
            self.left.checked_sub(1).ok_or_else(|| self.fields.error_here("it has fewer entries than samples"))?;
        sample(&mut self.fields, protection, self.has_subsamples, subsamples)
    }
}

/// One sample's information of a length known from `saiz`: subsamples follow the IV.
///
/// # Errors
/// If it is truncated.
pub fn sized_sample(
    fields: &mut BoxReader<'_>,
    protection: &SampleProtection,
    subsamples: &mut Vec<Subsample>,
) -> Result<CipherBlock, BoxError> {
    let has_subsamples = fields.rest().len() > usize::from(protection.iv_size);
    sample(fields, protection, has_subsamples, subsamples)
}

fn sample(
    f: &mut BoxReader<'_>,
    protection: &SampleProtection,
    has_subsamples: bool,
    subsamples: &mut Vec<Subsample>,
) -> Result<CipherBlock, BoxError> {
    let own = f.bytes(usize::from(protection.iv_size))?;
    // `cbcs` usually has one constant IV for all samples.
    let iv = if own.is_empty() { protection.constant_iv.unwrap_or_default() } else { padded(own) };
    if has_subsamples {
        let count = f.u16()?;
        // Checked before reading, so that a wrong count reserves no memory.
        if f.rest().len() < 6 * usize::from(count) {
            return Err(f.error_here("it is shorter than its subsamples"));
        }
        for _ in 0..count {
            subsamples.push((u32::from(f.u16()?), f.u32()?));
        }
    }
    Ok(iv)
}

/// `saiz` (ISO 14496-12 8.7.8): the size of each sample's information, in bytes.
pub struct AuxiliarySizes<'a> {
    same: u8,
    each: &'a [u8],
    count: usize,
}

impl<'a> AuxiliarySizes<'a> {
    /// Reads the box. `None` if its information is not about encryption.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(b: &BoxRef<'a>) -> Result<Option<Self>, BoxError> {
        let mut f = BoxReader::from_box(b);
        if !is_about_encryption(&mut f)? {
            return Ok(None);
        }
        let same = f.u8()?;
        let count = f.count(usize::from(same == 0))?;
        Ok(Some(Self { same, each: if same == 0 { f.bytes(count)? } else { &[] }, count }))
    }

    /// The size for sample `i`, from 0; 0 after the last.
    pub fn sample_size(&self, i: usize) -> usize {
        let size = if self.same == 0 { self.each.get(i).copied() } else { (i < self.count).then_some(self.same) };
        size.map_or(0, usize::from)
    }
}

/// `saio` (ISO 14496-12 8.7.9): the offset of the information, for all samples or for each run. `None` if it is not
/// about encryption.
///
/// # Errors
/// If the box is malformed.
pub fn offsets(b: &BoxRef<'_>) -> Result<Option<Vec<u64>>, BoxError> {
    let version = b.content().first().copied().unwrap_or(0);
    let mut f = BoxReader::from_box(b);
    if !is_about_encryption(&mut f)? {
        return Ok(None);
    }
    let wide = version != 0;
    let count = f.count(if wide { 8 } else { 4 })?;
    (0..count).map(|_| f.u32_or_64(wide)).collect::<Result<_, _>>().map(Some)
}

/// Reads version, flags and the optional type. Without a type, the scheme's own information is meant.
fn is_about_encryption(f: &mut BoxReader<'_>) -> Result<bool, BoxError> {
    let (_, flags) = f.version()?;
    if flags & 1 == 0 {
        return Ok(true);
    }
    let kind: [u8; 4] = f.array()?;
    f.skip(4)?;
    Ok(matches!(&kind, b"cenc" | b"cens" | b"cbc1" | b"cbcs" | b"piff" | [0, 0, 0, 0]))
}
