//! The gateway's URLs for the segments and initialization sections of a manifest.

use super::child_urls::ChildUrls;
use crate::dash::addressing::{AddressingMode, DashByteRange, TemplateValues, fill};
use crate::dash::model::{DashMediaKind, Representation};
use crate::dash::segments::DashSegment;
use crate::dash::to_hls::PlaylistPeriod;
use crate::relay::BaseUrl;

/// The location of a representation's initialization section: alternative URLs, and a range. `None` if it has none.
/// `in_file`: its range in a file of which the manifest does not say it.
pub fn init_section_of(
    own: &Representation,
    in_file: Option<DashByteRange>,
) -> Option<(Vec<String>, Option<DashByteRange>)> {
    let init = &own.addressing.init;
    let filling = TemplateValues { id: &own.id, bandwidth: own.bandwidth, ..TemplateValues::default() };
    let (reference, range) = match (&init.address, init.range) {
        (Some(address), range) => (fill(address, filling), range),
        (None, Some(range)) => (String::new(), Some(range)),
        // A file with an index begins with its initialization section.
        (None, None) => match &own.addressing.form {
            AddressingMode::Base { index: Some((first, _)) } if *first > 0 => (String::new(), Some((0, first - 1))),
            _ => (String::new(), Some(in_file?)),
        },
    };
    let bases = own.bases.iter().filter_map(|b| BaseUrl::parse(b));
    let addresses: Vec<String> = bases.map(|b| b.resolve(&reference)).collect();
    (!addresses.is_empty()).then_some((addresses, range))
}

pub fn init_url(children: &ChildUrls, addresses: &[String], range: Option<DashByteRange>) -> String {
    let range = range.map(|(first, last)| format!("{first}-{last}"));
    let mut parameters = init_parameters(addresses);
    parameters.extend(range.as_deref().map(|r| ("init_range", r)));
    children.url("/proxy/mpd/init.mp4", &parameters)
}

/// The first URL, and its alternatives under another name.
fn init_parameters(addresses: &[String]) -> Vec<(&str, &str)> {
    let name = |i| if i == 0 { "init_url" } else { "init_alt" };
    addresses.iter().enumerate().map(|(i, a)| (name(i), a.as_str())).collect()
}

/// What becomes of the segments of a playlist: MPEG-TS, decrypted, text left in MP4.
#[derive(Clone, Copy)]
pub struct SegmentUse {
    pub ts: bool,
    pub keyed: bool,
    pub mp4_text: bool,
}

pub fn segment_url(
    children: &ChildUrls,
    part: &PlaylistPeriod<'_>,
    segment: &DashSegment,
    SegmentUse { ts, keyed, mp4_text }: SegmentUse,
) -> Option<String> {
    let track = part.track;
    let reference = segment.address.as_deref().unwrap_or_default();
    let bases = track.own.bases.iter().filter_map(|b| BaseUrl::parse(b));
    let addresses: Vec<String> = bases.map(|b| b.resolve(reference)).collect();
    let converts = track.is_wvtt() && !mp4_text;
    let init = if keyed || ts || converts { init_section_of(track.own, part.init) } else { None };
    let extension = match track.set.media {
        DashMediaKind::Image => "jpg",
        DashMediaKind::Text if track.own.mime.contains("vtt") || converts => "vtt",
        _ if ts => "ts",
        _ => "mp4",
    };
    (!addresses.is_empty()).then(|| segment_child(children, extension, &addresses, segment.range, init.as_ref(), false))
}

pub fn segment_child(
    children: &ChildUrls,
    extension: &str,
    addresses: &[String],
    range: Option<DashByteRange>,
    init: Option<&(Vec<String>, Option<DashByteRange>)>,
    pattern: bool,
) -> String {
    let text = |(first, last): DashByteRange| format!("{first}-{last}");
    let (range, init_range) = (range.map(text), init.and_then(|(_, r)| *r).map(text));
    let names = std::iter::once("segment_url").chain(std::iter::repeat("alt"));
    let mut parameters: Vec<(&str, &str)> = names.zip(addresses.iter().map(String::as_str)).collect();
    parameters.extend(range.as_deref().map(|r| ("segment_range", r)));
    parameters.extend(init.into_iter().flat_map(|(a, _)| init_parameters(a)));
    parameters.extend(init_range.as_deref().map(|r| ("init_range", r)));
    if pattern {
        parameters.push(("pattern", "1"));
    }
    children.url(&format!("/proxy/mpd/segment.{extension}"), &parameters)
}
