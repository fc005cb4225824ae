//! Selects variants of a multivariant playlist.

use std::borrow::Cow;

use super::tags::{attribute_text, lines, tag};

/// Which of the variants with different resolutions to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantChoice {
    Highest,
    /// The highest that does not exceed this height; the lowest if all do.
    Height(u32),
}

impl VariantChoice {
    /// Reads `720p` or `1280x720`; only the height counts.
    pub fn read(text: &str) -> Option<Self> {
        let height = text.rsplit_once(['x', 'X']).map_or(text, |(_, height)| height);
        height.trim().trim_end_matches(['p', 'P', 'i']).parse().ok().map(Self::Height)
    }

    /// The height to keep of those that occur; `None` if none does.
    pub fn choose(self, heights: impl Iterator<Item = u32> + Clone) -> Option<u32> {
        match self {
            Self::Highest => heights.max(),
            Self::Height(most) => heights.clone().filter(|h| *h <= most).max().or_else(|| heights.min()),
        }
    }
}

/// The height of a variant in pixels.
fn height(list: &[u8]) -> Option<u32> {
    attribute_text(list, b"RESOLUTION")?.split_once(['x', 'X'])?.1.trim().parse().ok()
}

/// Removes the variants that are not selected. Variants without a resolution (audio only) are kept; a playlist without
/// resolutions is unchanged.
pub fn filter_variants(text: &[u8], choice: VariantChoice) -> Cow<'_, [u8]> {
    let heights: Vec<u32> = lines(text)
        .filter_map(|l| tag(l.content(text)).filter(|(name, _)| *name == b"EXT-X-STREAM-INF"))
        .filter_map(|(_, list)| height(list))
        .collect();
    let Some(chosen) = choice.choose(heights.iter().copied()) else { return Cow::Borrowed(text) };
    let mut out = Vec::with_capacity(text.len());
    let mut dropping = false;
    let mut from = 0;
    for line in lines(text) {
        let bytes = line.content(text);
        let unwanted = |list: &[u8]| height(list).is_some_and(|h| h != chosen);
        match tag(bytes) {
            Some((b"EXT-X-STREAM-INF", list)) => dropping = unwanted(list),
            _ if dropping && !bytes.is_empty() && !bytes.starts_with(b"#") => {
                // The variant's URI is the last line that belongs to it.
                out.extend_from_slice(&text[from..line.start]);
                from = line.next;
                dropping = false;
                continue;
            }
            _ => continue,
        }
        if dropping {
            out.extend_from_slice(&text[from..line.start]);
            from = line.next;
        }
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: &str = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"x\",URI=\"a.m3u8\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=1,RESOLUTION=640x360\n360.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=2,RESOLUTION=1280x720\n\n# note\n720a.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=3,RESOLUTION=1280x720\n720b.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=9,CODECS=\"mp4a.40.2\"\naudio.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=4,RESOLUTION=1920x1080\n1080.m3u8\n\
        #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,RESOLUTION=640x360,URI=\"i.m3u8\"\n";

    #[test]
    fn selected_variants_are_kept() {
        for (choice, stay) in [
            (VariantChoice::Highest, vec!["1080.m3u8"]),
            (VariantChoice::Height(720), vec!["720a.m3u8", "720b.m3u8"]),
            (VariantChoice::Height(900), vec!["720a.m3u8", "720b.m3u8"]),
            (VariantChoice::Height(100), vec!["360.m3u8"]),
        ] {
            let kept = filter_variants(MASTER.as_bytes(), choice);
            let kept = String::from_utf8(kept.into_owned()).unwrap();
            for name in ["360.m3u8", "720a.m3u8", "720b.m3u8", "1080.m3u8"] {
                assert_eq!(kept.contains(name), stay.contains(&name), "{choice:?} {name}\n{kept}");
            }
            assert!(kept.contains("audio.m3u8") && kept.contains("URI=\"a.m3u8\"") && kept.contains("i.m3u8"));
            let infs = kept.matches("#EXT-X-STREAM-INF").count();
            assert_eq!(infs, stay.len() + 1, "{kept}");
        }
        assert_eq!(
            filter_variants(b"#EXTM3U\n#EXTINF:1,\na.ts\n", VariantChoice::Highest),
            &b"#EXTM3U\n#EXTINF:1,\na.ts\n"[..]
        );
    }

    #[test]
    fn height_options_are_parsed() {
        for (text, choice) in [("720p", Some(720)), ("1280x720", Some(720)), ("1080", Some(1080)), ("best", None)] {
            assert_eq!(VariantChoice::read(text), choice.map(VariantChoice::Height), "{text}");
        }
    }
}
