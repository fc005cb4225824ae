//! Encryption parameters of an init segment or `moov`, and its rewriting as clear.

use std::sync::Arc;

use super::auxiliary::is_senc;
use super::error::{CencError, Result};
use super::groups::{descriptions, is_seig};
use super::keys::{ContentKeyRing, KeyId};
use super::protection::{PsshBox, SampleProtection, sinfs};
use crate::bmff::{BoxRef, FourCc, Movie, MovieTrack, boxes, first_of_kind};

/// An init segment, parsed once and shared by the decrypters of its segments.
#[derive(Clone, Debug)]
pub struct InitSegment {
    pub movie: Movie,
    /// Encryption of each track, in the same order.
    pub(super) tracks: Vec<TrackProtection>,
    /// Protection system headers of the movie, for display; nothing in them is needed with keys at hand.
    pub pssh: Vec<PsshBox>,
    /// Positions in the `moov` and the types to write there.
    patches: Vec<(usize, FourCc)>,
}

/// The encryption of one track: that of its sample entries, and of its sample groups.
#[derive(Clone, Debug)]
pub(super) struct TrackProtection {
    /// Per sample entry; `None` means clear.
    pub entries: Vec<Option<SampleProtection>>,
    /// Key groups defined for the whole track.
    pub groups: Vec<SampleProtection>,
}

/// One encrypted sample entry of a track; `format` is the codec's type, which `encv` or `enca` replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedEntry {
    pub track: u32,
    pub format: FourCc,
    pub protection: SampleProtection,
}

impl InitSegment {
    /// Finds the `moov` among the boxes of an init segment and reads it.
    ///
    /// # Errors
    /// If there is none, it is malformed, or a track is protected by an unknown scheme.
    pub fn parse(segment: &[u8]) -> Result<Arc<Self>> {
        let what = "an init segment: it has no `moov` box";
        let missing = || CencError::Truncated { at: segment.len() as u64, what: what.into() };
        Self::read(&first_of_kind(boxes(segment, 0), b"moov")?.ok_or_else(missing)?).map(Arc::new)
    }

    /// Reads a `moov` box.
    ///
    /// # Errors
    /// If it is malformed or a track is protected by an unknown scheme.
    pub fn read(moov: &BoxRef<'_>) -> Result<Self> {
        let movie = Movie::read(moov)?;
        let (mut pssh, mut patches) = (Vec::new(), Vec::new());
        for b in moov.children() {
            let b = b?;
            if PsshBox::is_one(&b) {
                pssh.push(PsshBox::read(&b)?);
                patches.push(free_patch(&b, moov));
            }
        }
        let tracks =
            movie.tracks.iter().map(|t| TrackProtection::read(t, moov, &mut patches)).collect::<Result<_>>()?;
        Ok(Self { movie, tracks, pssh, patches })
    }

    /// Rewrites the types in the `moov` that this was read from to those of a clear movie. Its size does not change.
    pub(super) fn rewrite(&self, moov: &mut [u8]) {
        for (at, kind) in &self.patches {
            write_kind(moov, *at, *kind);
        }
    }

    /// Every encrypted sample entry.
    pub fn protected(&self) -> impl Iterator<Item = ProtectedEntry> + '_ {
        self.movie.tracks.iter().zip(&self.tracks).flat_map(|(track, crypt)| {
            track.entries.iter().zip(&crypt.entries).filter_map(|(entry, protection)| {
                let protection = (*protection)?;
                Some(ProtectedEntry { track: track.id, format: entry.format, protection })
            })
        })
    }

    /// Whether any sample entry is encrypted. Some files have a `sinf` that declares no encryption.
    pub fn is_protected(&self) -> bool {
        self.protected().any(|e| e.protection.protected)
    }

    /// The KIDs of the tracks, deduplicated. With key rotation, fragments name others that are not known yet.
    pub fn kids(&self) -> Vec<KeyId> {
        let mut kids = Vec::new();
        for entry in self.protected().filter(|e| e.protection.protected) {
            if !kids.contains(&entry.protection.kid) {
                kids.push(entry.protection.kid);
            }
        }
        kids
    }

    /// Checks that the keyring has a key for every KID, so that a server can fail before the first segment. An all-zero
    /// KID is skipped: with key rotation no sample uses it.
    ///
    /// # Errors
    /// [`CencError::NoKey`].
    pub fn check_keys(&self, keys: &ContentKeyRing) -> Result<()> {
        let is_named = |e: &ProtectedEntry| e.protection.protected && e.protection.kid != KeyId([0; 16]);
        let keyless = self.protected().find(|e| is_named(e) && keys.find(e.protection.kid).is_none());
        keyless.map_or(Ok(()), |e| Err(CencError::NoKey { kid: e.protection.kid, track: e.track }))
    }
}

impl TrackProtection {
    /// Reads the protection of a track, and adds the places in the `moov` that make it a clear one.
    fn read(track: &MovieTrack, moov: &BoxRef<'_>, patches: &mut Vec<(usize, FourCc)>) -> Result<Self> {
        let mut entries = Vec::new();
        for entry in &track.entries {
            if !entry.is_protected() {
                entries.push(None);
                continue;
            }
            entries.push(SampleProtection::read(track.id, sinfs(entry))?);
            // `encv` and `enca` get the codec's own type back, and the description of the protection disappears.
            patches.push((entry.range.start + 4, entry.format));
            patches.extend(sinfs(entry).map(|b| free_patch(&b, moov)));
        }
        let scheme = entries.iter().flatten().map(|p| p.scheme).next();
        let mut groups = Vec::new();
        if let (Some(scheme), Some(stbl)) = (scheme, moov.whole.get(track.stbl.clone())) {
            for b in boxes(stbl, moov.offset + track.stbl.start as u64).flatten().flat_map(|b| b.children()) {
                let b = b?;
                if b.kind() == b"sgpd" && is_seig(&b) {
                    groups = descriptions(&b, scheme)?;
                }
                if is_encryption(&b) {
                    patches.push(free_patch(&b, moov));
                }
            }
        }
        Ok(Self { entries, groups })
    }
}

/// The place of a box's type, and what makes readers skip it.
fn free_patch(b: &BoxRef<'_>, moov: &BoxRef<'_>) -> (usize, FourCc) {
    ((b.offset - moov.offset) as usize + 4, FREE)
}

/// The box type that all readers skip (ISO 14496-12 8.1.2).
pub(super) const FREE: FourCc = FourCc(*b"free");

/// Whether a box of a `traf` or `stbl` concerns only encryption.
pub(super) fn is_encryption(b: &BoxRef<'_>) -> bool {
    is_senc(b) || is_seig(b) || PsshBox::is_one(b) || (matches!(&b.kind().0, b"saiz" | b"saio") && is_for_encryption(b))
}

/// `saiz` and `saio` may carry other information, identified by a type of its own (ISO 14496-12 8.7.8).
fn is_for_encryption(b: &BoxRef<'_>) -> bool {
    match b.content() {
        [_, _, _, flags, kind @ ..] if flags & 1 != 0 => {
            matches!(kind.first_chunk(), Some(b"cenc" | b"cens" | b"cbc1" | b"cbcs" | b"piff" | [0, 0, 0, 0]))
        }
        _ => true,
    }
}

/// Overwrites a box type; does nothing if the position is out of range.
pub(super) fn write_kind(data: &mut [u8], at: usize, kind: FourCc) {
    if let Some(place) = data.get_mut(at..at + 4) {
        place.copy_from_slice(&kind.0);
    }
}
