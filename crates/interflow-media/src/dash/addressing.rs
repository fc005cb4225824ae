//! How a representation's segments are addressed: template, timeline, list, or one file (ISO 23009-1 5.3.9).

use std::fmt::Write as _;
use std::sync::Arc;

use super::xml::{XmlElement, for_each_element};

/// A run of equal segments in a timeline (`S`): the time `t` of the first, if it is given, and the duration `d` of
/// each, in units of the timescale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRun {
    pub t: Option<u64>,
    pub d: u64,
    /// Repetitions after the first; -1: until the next run, or the end.
    pub r: i64,
    /// Parts per segment, for low latency; 1 if it has none.
    pub k: u64,
}

/// Maximum number of runs read from a timeline; further ones are ignored.
const MAX_RUNS: usize = 200_000;

/// An undecoded timeline: of forty tracks, only those that a player requests are parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentTimeline(Arc<str>);

impl SegmentTimeline {
    /// Its runs. Runs without a duration are skipped; invalid numbers count as absent.
    pub fn runs(&self) -> Vec<TimelineRun> {
        let mut text = Vec::with_capacity(self.0.len() / 24);
        for_each_element(&self.0, "S", |attributes| {
            let mut run = TimelineRun { t: None, d: 0, r: 0, k: 1 };
            let mut lasts = false;
            for (name, value) in attributes {
                let value = value.trim();
                match *name {
                    "t" => run.t = rounded(value),
                    "d" => (run.d, lasts) = rounded(value).map_or((0, false), |d| (d, true)),
                    "r" => run.r = value.parse().unwrap_or(0),
                    "k" => run.k = value.parse().unwrap_or(1),
                    _ => {}
                }
            }
            if lasts && text.len() < MAX_RUNS {
                text.push(run);
            }
        });
        text
    }
}

/// First and last byte of a part of a file, both inclusive.
pub type DashByteRange = (u64, u64);

/// The location of an initialization section: a URL and a range of it, either of which may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitializationSource {
    /// The URL; the representation's own if absent.
    pub address: Option<String>,
    pub range: Option<DashByteRange>,
}

/// The attributes common to template, list and base, inherited from level to level: `timescale` is in units per second,
/// and the first and last number may be stated or follow from the timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentAddressing {
    pub timescale: u64,
    /// The time in units that corresponds to the period's start.
    pub offset: i64,
    /// Offset of the first segment from the period's start, in units, without a timeline.
    pub delta: i64,
    /// Units per segment, without a timeline; many packagers write fractions.
    pub duration: Option<f64>,
    pub start_number: Option<u64>,
    pub end_number: Option<u64>,
    /// How much earlier than complete a segment may be fetched, in seconds.
    pub available_early: f64,
    /// Attributes that only players need, copied as they are.
    pub kept: RetainedAttributes,
    pub timeline: Option<SegmentTimeline>,
    pub form: AddressingMode,
    pub init: InitializationSource,
}

/// Attributes without meaning here that are kept in a manifest for the player, and the element `RepresentationIndex`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedAttributes {
    /// `availabilityTimeComplete`: whether segments are complete once they are available (low latency).
    pub complete: Option<String>,
    pub pd_delta: Option<String>,
    pub index_exact: Option<String>,
    pub index: Option<InitializationSource>,
}

/// An integer; fractions, which some packagers write, are rounded. `None` for anything else.
fn rounded(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| fraction(text).map(|n| n.round() as u64))
}

/// An integer that may be negative, as offsets are in practice.
fn signed(text: &str) -> Option<i64> {
    let text = text.trim();
    let (size, sign) = text.strip_prefix('-').map_or((text, 1), |size| (size, -1));
    i64::try_from(rounded(size)?).ok().map(|n| sign * n)
}

/// A non-negative number with an optional fraction; not `inf` or `nan`, which the standard library would accept.
fn fraction(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse::<f64>().ok().filter(|n| plain && n.is_finite() && *n >= 0.0)
}

/// How the segments of a representation are found (ISO 23009-1 5.3.9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressingMode {
    /// One file; whether it has an index is known only from its content.
    #[default]
    Whole,
    /// One file with an index at the stated range.
    Base {
        index: Option<DashByteRange>,
    },
    Template {
        media: String,
    },
    /// An explicit list: URL and range of each segment. Shared, since representations inherit it.
    List {
        media: Arc<[(Option<String>, Option<DashByteRange>)]>,
    },
}

impl SegmentAddressing {
    /// The addressing inside an element, which may contain an addressing element that extends the inherited one.
    pub fn inherit(&self, element: &XmlElement<'_>) -> Self {
        let mut own = self.clone();
        // A level without such an element changes nothing.
        let Some(e) =
            element.children.iter().find(|c| matches!(c.name, "SegmentTemplate" | "SegmentList" | "SegmentBase"))
        else {
            return own;
        };
        let whole = |name: &str| e.get(name).and_then(rounded);
        own.timescale = whole("timescale").filter(|t| *t > 0).unwrap_or(self.timescale.max(1));
        own.offset = e.get("presentationTimeOffset").and_then(signed).unwrap_or(self.offset);
        own.delta = e.number("eptDelta").unwrap_or(self.delta);
        own.duration = e.get("duration").and_then(|d| fraction(d.trim())).filter(|d| *d > 0.0).or(self.duration);
        own.start_number = e.number("startNumber").or(self.start_number);
        own.end_number = e.number("endNumber").or(self.end_number);
        // The offsets of all levels add up.
        if let Some(early) = e.get("availabilityTimeOffset") {
            own.available_early += availability_offset(early);
        }
        let retained =
            |name: &str, inherited: &Option<String>| e.get(name).map(str::to_owned).or_else(|| inherited.clone());
        own.kept.complete = retained("availabilityTimeComplete", &self.kept.complete);
        own.kept.pd_delta = retained("pdDelta", &self.kept.pd_delta);
        own.kept.index_exact = retained("indexRangeExact", &self.kept.index_exact);
        if let Some(index) = e.child("RepresentationIndex") {
            own.kept.index = Some(section(index));
        }
        if let Some(timeline) = e.child("SegmentTimeline") {
            own.timeline = Some(SegmentTimeline(timeline.raw.into()));
        }
        if let Some(init) = e.child("Initialization") {
            own.init = section(init);
        }
        match e.name {
            "SegmentTemplate" => {
                let inherited = match &self.form {
                    AddressingMode::Template { media } => media.clone(),
                    _ => String::new(),
                };
                own.form = AddressingMode::Template { media: e.get("media").map_or(inherited, str::to_owned) };
                if let Some(init) = e.get("initialization") {
                    own.init = InitializationSource { address: Some(init.to_owned()), range: None };
                }
            }
            "SegmentList" => {
                let media: Arc<[_]> = e
                    .all("SegmentURL")
                    .map(|u| (u.get("media").map(str::to_owned), u.get("mediaRange").and_then(byte_range)))
                    .collect();
                if !media.is_empty() || !matches!(own.form, AddressingMode::List { .. }) {
                    own.form = AddressingMode::List { media };
                }
            }
            _ => {
                let inherited = match &self.form {
                    AddressingMode::Base { index } => *index,
                    _ => None,
                };
                own.form = AddressingMode::Base { index: e.get("indexRange").and_then(byte_range).or(inherited) };
            }
        }
        own
    }
}

fn section(element: &XmlElement<'_>) -> InitializationSource {
    let address = element.get("sourceURL").map(str::to_owned);
    InitializationSource { address, range: element.get("range").and_then(byte_range) }
}

/// Seconds by which a segment is available early; `INF` means as soon as any of it is.
pub fn availability_offset(text: &str) -> f64 {
    let text = text.trim();
    let finite = || text.parse().ok().filter(|n: &f64| n.is_finite()).unwrap_or(0.0);
    if text == "INF" { f64::INFINITY } else { finite() }
}

/// `0-99`, first and last byte; `None` if it is malformed.
pub fn byte_range(text: &str) -> Option<DashByteRange> {
    let (first, last) = text.trim().split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// The values of a template's identifiers (ISO 23009-1 5.3.9.4.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateValues<'a> {
    pub id: &'a str,
    pub bandwidth: u64,
    pub number: u64,
    pub time: u64,
    pub part: u64,
}

/// Maximum size of an expanded template, in bytes: no server accepts a longer URL.
const MAX_EXPANDED_LEN: usize = 64 << 10;

/// Expands a template (ISO 23009-1 5.3.9.4.4): `$Number%05d$`, `$$` and the others. Unknown identifiers are left
/// unchanged.
pub fn fill(pattern: &str, with: TemplateValues<'_>) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('$') {
        if out.len() > MAX_EXPANDED_LEN {
            return out;
        }
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let Some(end) = behind.find('$') else {
            out.push_str(&rest[at..]);
            return out;
        };
        let identifier = &behind[..end];
        rest = &behind[end + 1..];
        let (name, width) = match identifier.split_once('%') {
            Some((name, format)) => (name, width(format)),
            None => (identifier, Some(1)),
        };
        let number = match name {
            "" if identifier.is_empty() => {
                out.push('$');
                continue;
            }
            "RepresentationID" => {
                out.push_str(with.id);
                continue;
            }
            "Number" => with.number,
            "Time" => with.time,
            "Bandwidth" => with.bandwidth,
            "SubNumber" => with.part,
            _ => {
                let _ = write!(out, "${identifier}$");
                continue;
            }
        };
        let _ = write!(out, "{number:0width$}", width = width.unwrap_or(1));
    }
    out.push_str(rest);
    out
}

/// The width in `05d`, capped at the length of the longest number: the manifest must not choose how much is written.
fn width(format: &str) -> Option<usize> {
    let digits = format.strip_suffix(['d', 'i', 'u', 'x'])?.trim_start_matches('0');
    if digits.is_empty() { Some(1) } else { digits.parse().ok().map(|w: usize| w.min(20)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_identifiers_are_substituted() {
        let with = TemplateValues { id: "v$1", bandwidth: 5000, number: 7, time: 0, part: 2 };
        for (pattern, filled) in [
            ("$RepresentationID$/$Number$.m4s", "v$1/7.m4s"),
            ("$Number%05d$", "00007"),
            ("$Number%09d$-$Time$", "000000007-0"),
            ("$Time%04d$", "0000"),
            ("$Bandwidth%06d$", "005000"),
            ("a$$b", "a$b"),
            ("$Number$_$SubNumber$", "7_2"),
            ("$Other$ $Number", "$Other$ $Number"),
            ("plain", "plain"),
            ("$Number%0999999999d$", "00000000000000000007"),
        ] {
            assert_eq!(fill(pattern, with), filled, "{pattern}");
        }
    }

    #[test]
    fn segment_templates_are_inherited_across_levels() {
        let read = |text: &'static str| super::super::xml::read(text.as_bytes()).unwrap();
        let period = read("<P><SegmentTemplate timescale='10' startNumber='3' media='$Number$.m4s'/></P>");
        let set = read(
            "<A><SegmentTemplate initialization='i.mp4'><SegmentTimeline><S t='0' d='5' r='-1'/></SegmentTimeline></SegmentTemplate></A>",
        );
        let own = read("<R><SegmentTemplate presentationTimeOffset='40' availabilityTimeOffset='1.5'/></R>");
        let a = SegmentAddressing::default().inherit(&period).inherit(&set).inherit(&own).inherit(&read("<R/>"));
        assert_eq!((a.timescale, a.start_number, a.offset, a.available_early), (10, Some(3), 40, 1.5));
        assert_eq!(a.form, AddressingMode::Template { media: "$Number$.m4s".into() });
        assert_eq!(a.init.address.as_deref(), Some("i.mp4"));
        assert_eq!(a.timeline.unwrap().runs(), [TimelineRun { t: Some(0), d: 5, r: -1, k: 1 }]);
    }

    #[test]
    fn segment_timelines_are_parsed() {
        for (raw, runs) in [
            ("<S t='0' d=\"5\"/><S d='6' r='2'></S>", vec![(Some(0), 5, 0, 1), (None, 6, 2, 1)]),
            ("<x:S\n t = '1'\td='5' k='3' n='9'/>", vec![(Some(1), 5, 0, 3)]),
            ("<!-- <S d='1'/> > --><S d='2' r='-1'/>", vec![(None, 2, -1, 1)]),
            ("<S t='1'/><S d='x'/><S d='-4'/><Sx d='1'/><s d='1'/>", vec![]),
            ("<S d='7' e='a>b<S d=1'/><S d='8'", vec![(None, 7, 0, 1), (None, 8, 0, 1)]),
            ("<S d=7 /><S d='", vec![]),
        ] {
            let found: Vec<_> = SegmentTimeline(raw.into()).runs().iter().map(|r| (r.t, r.d, r.r, r.k)).collect();
            assert_eq!(found, runs, "{raw}");
        }
        assert_eq!(SegmentTimeline("<S d='1'/>".repeat(MAX_RUNS + 9).into()).runs().len(), MAX_RUNS);
    }
}
