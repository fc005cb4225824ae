//! Sample groups of type `seig` (ISO 14496-12 8.9, ISO 23001-7 6): key rotation within a track.

use super::error::{CencError, Result};
use super::protection::{ProtectionScheme, SampleProtection};
use crate::bmff::{BoxError, BoxReader, BoxRef};

/// Group-description-indexes above this one refer to the fragment's own groups (ISO 14496-12 8.9.4).
const LOCAL: u32 = 0x1_0000;

/// Whether a box describes or assigns encryption groups, rather than groups of another type.
pub fn is_seig(b: &BoxRef<'_>) -> bool {
    matches!(&b.kind().0, b"sgpd" | b"sbgp" | b"csgp") && b.content().get(4..8) == Some(b"seig")
}

/// The entries of a `sgpd` of type `seig`.
///
/// # Errors
/// If the box is malformed, or an entry uses several keys per sample.
pub fn descriptions(b: &BoxRef<'_>, scheme: ProtectionScheme) -> Result<Vec<SampleProtection>> {
    let mut f = BoxReader::from_box(b);
    let (version, _) = f.version()?;
    f.skip(4)?;
    let default = if version >= 1 { f.u32()? } else { 0 };
    if version >= 2 {
        f.skip(4)?;
    }
    let count = f.count(20)?;
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        let length = match (version, default) {
            // Version 0 has no length fields: an entry is as long as its fields.
            (0, _) => None,
            (_, 0) => Some(f.u32()?),
            (_, n) => Some(n),
        };
        match length {
            None => groups.push(SampleProtection::read_group(scheme, &mut f, b.offset)?),
            Some(n) => {
                let entry = f.bytes(n as usize)?;
                let mut f = BoxReader::from_content(entry, b.kind(), b.offset);
                groups.push(SampleProtection::read_group(scheme, &mut f, b.offset)?);
            }
        }
    }
    Ok(groups)
}

/// Which group each sample belongs to, from a `sbgp`: runs of samples of one group.
#[derive(Clone, Debug, Default)]
pub struct GroupAssignment {
    /// Number of samples, and their group-description-index.
    runs: Vec<(u32, u32)>,
}

impl GroupAssignment {
    /// Reads the box.
    ///
    /// # Errors
    /// If it is malformed, or a compact one.
    pub fn read(b: &BoxRef<'_>) -> Result<Self> {
        if b.kind() == b"csgp" {
            let what = "a compact sample-to-group box for keys";
            return Err(CencError::Unsupported { kind: b.kind(), offset: b.offset, what });
        }
        let mut f = BoxReader::from_box(b);
        let (version, _) = f.version()?;
        f.skip(if version == 1 { 8 } else { 4 })?;
        let count = f.count(8)?;
        let runs = (0..count).map(|_| Ok((f.u32()?, f.u32()?))).collect::<Result<_, BoxError>>()?;
        Ok(Self { runs })
    }

    /// The group index of each sample; 0 (no group, so the track's defaults) after the last.
    pub fn each(&self) -> impl Iterator<Item = u32> + '_ {
        let listed = self.runs.iter().flat_map(|(count, index)| std::iter::repeat_n(*index, *count as usize));
        listed.chain(std::iter::repeat(0))
    }
}

/// Finds the description for a group index among the fragment's own and the track's. `None` for index 0.
///
/// # Errors
/// If the index refers to no group: a sample without known parameters must not pass as clear.
pub fn describe<'a>(
    index: u32,
    local: &'a [SampleProtection],
    global: &'a [SampleProtection],
    holder: &BoxRef<'_>,
) -> Result<Option<&'a SampleProtection>> {
    let Some(at) = index.checked_sub(1) else { return Ok(None) };
    let description = match at.checked_sub(LOCAL) {
        Some(at) => local.get(at as usize),
        None => global.get(at as usize),
    };
    description.map(Some).ok_or_else(|| holder.error_here(format!("key group {index} is not described")).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bmff::boxes;
    use crate::cenc::KeyId;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(8 + content.len() as u32).to_be_bytes()[..], kind, content].concat()
    }

    fn entry(kid: u8) -> Vec<u8> {
        [&[0, 0, 1, 8][..], &[kid; 16]].concat()
    }

    #[test]
    fn sample_group_descriptions_of_every_version_are_parsed() {
        let two = [entry(1), entry(2)].concat();
        let sized = [&[0, 0, 0, 20][..], &entry(1), &[0, 0, 0, 20], &entry(2)].concat();
        for content in [
            [&[0, 0, 0, 0][..], b"seig", &[0, 0, 0, 2], &two].concat(),
            [&[1, 0, 0, 0][..], b"seig", &[0, 0, 0, 20, 0, 0, 0, 2], &two].concat(),
            [&[1, 0, 0, 0][..], b"seig", &[0, 0, 0, 0, 0, 0, 0, 2], &sized].concat(),
            [&[2, 0, 0, 0][..], b"seig", &[0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 2], &two].concat(),
        ] {
            let data = boxed(b"sgpd", &content);
            let b = boxes(&data, 0).next().unwrap().unwrap();
            let kids: Vec<_> = descriptions(&b, ProtectionScheme::Cenc).unwrap().iter().map(|p| p.kid).collect();
            assert_eq!(kids, [KeyId([1; 16]), KeyId([2; 16])]);
        }
    }

    #[test]
    fn samples_find_local_and_global_groups_or_none() {
        let data = boxed(
            b"sbgp",
            &[&[0; 4][..], b"seig", &[0, 0, 0, 2, 0, 0, 0, 2, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]].concat(),
        );
        let b = boxes(&data, 0).next().unwrap().unwrap();
        assert!(is_seig(&b));
        let indexes: Vec<_> = GroupAssignment::read(&b).unwrap().each().take(5).collect();
        assert_eq!(indexes, [0x1_0001, 0x1_0001, 1, 0, 0]);
        let make = |kid| {
            let data = boxed(b"sgpd", &[&[0, 0, 0, 0][..], b"seig", &[0, 0, 0, 1], &entry(kid)].concat());
            descriptions(&boxes(&data, 0).next().unwrap().unwrap(), ProtectionScheme::Cenc).unwrap()
        };
        let (local, global) = (make(1), make(2));
        let kid = |index| describe(index, &local, &global, &b).unwrap().map(|p| p.kid);
        assert_eq!((kid(0x1_0001), kid(1), kid(0)), (Some(KeyId([1; 16])), Some(KeyId([2; 16])), None));
        assert!(describe(2, &local, &global, &b).unwrap_err().to_string().contains("group 2"));
        assert!(describe(0x1_0002, &local, &global, &b).is_err());
    }
}
