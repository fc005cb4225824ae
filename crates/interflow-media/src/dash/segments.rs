//! Lists the currently available segments of a representation.

use super::addressing::{AddressingMode, DashByteRange, SegmentAddressing, TemplateValues, TimelineRun, fill};
use interflow_types::{Error, Result};

use super::manifest_error;
use super::model::{DashManifest, DashPeriod, Representation};
use crate::bmff::SegmentIndex;

/// Maximum number of segments per playlist; more are an error.
pub const MAX_SEGMENTS: usize = 200_000;

/// Maximum total size of their URLs: a long template times many segments would fill the memory.
const MAX_ADDRESS_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DashSegment {
    pub number: u64,
    /// Its start on the timeline, in units of the timescale, as a template's `$Time$`.
    pub time: u64,
    /// When it begins, in seconds from the period's start.
    pub start: f64,
    /// Duration in seconds.
    pub duration: f64,
    /// Its unresolved URL; the representation's own if absent.
    pub address: Option<String>,
    /// Its byte range, if it is part of a resource.
    pub range: Option<DashByteRange>,
}

/// The segments of a representation at a time (seconds since 1970). Those of a file with an index come from
/// [`index_segments`] once the index is read.
///
/// # Errors
/// More than [`MAX_SEGMENTS`] segments, or URLs of more than 64 MiB in total.
pub fn list(
    representation: &Representation,
    period: &DashPeriod,
    manifest: &DashManifest,
    now: f64,
) -> Result<Vec<DashSegment>> {
    let a = &representation.addressing;
    let elapsed = manifest.is_live.then_some(now - manifest.available - period.start);
    let scale = a.timescale.max(1) as f64;
    let mut entries = match &a.timeline {
        Some(timeline) => timeline_segments(a, &timeline.runs(), period, elapsed),
        None => match a.duration {
            Some(duration) => fixed_duration_segments(a, duration, period, manifest, elapsed),
            None => Vec::new(),
        },
    };
    match &a.form {
        AddressingMode::Template { media } => {
            let mut bytes = 0;
            for (segment, part) in &mut entries {
                let filling = TemplateValues {
                    id: &representation.id,
                    bandwidth: representation.bandwidth,
                    number: segment.number,
                    time: segment.time,
                    part: *part,
                };
                let address = fill(media, filling);
                bytes += address.len();
                if bytes > MAX_ADDRESS_BYTES {
                    return Err(manifest_error(format!(
                        "the addresses of one track take more than {MAX_ADDRESS_BYTES} bytes"
                    )));
                }
                segment.address = Some(address);
            }
        }
        AddressingMode::List { media } => {
            if entries.is_empty() && media.len() == 1 {
                entries = vec![(single_segment(period), 0)];
            }
            // Of a live stream the first listed are over.
            let first = entries.first().map_or(0, |(s, _)| s.number.saturating_sub(a.start_number.unwrap_or(1)));
            let media = usize::try_from(first).ok().and_then(|first| media.get(first..)).unwrap_or_default();
            entries.truncate(media.len());
            for ((segment, _), (address, range)) in entries.iter_mut().zip(media.iter()) {
                (segment.address, segment.range) = (address.clone(), *range);
            }
        }
        AddressingMode::Base { .. } | AddressingMode::Whole => entries = vec![(single_segment(period), 0)],
    }
    if entries.len() > MAX_SEGMENTS {
        return Err(too_many());
    }
    Ok(clip_to_period(entries.into_iter().map(|(s, _)| s), period, 0.5 / scale))
}

/// The error for a playlist that is too long, also used by callers that list several periods.
pub fn too_many() -> Error {
    manifest_error(format!("a track has more than {MAX_SEGMENTS} segments"))
}

/// The segments that overlap the period; the last one ends with it. `tick` is half a unit, within which times are
/// equal.
fn clip_to_period(segments: impl Iterator<Item = DashSegment>, period: &DashPeriod, tick: f64) -> Vec<DashSegment> {
    let end = period.duration.unwrap_or(f64::INFINITY);
    let listed = segments.filter(|s| s.start + s.duration > tick && s.start < end - tick);
    listed.map(|s| DashSegment { duration: s.duration.min(end - s.start), ..s }).collect()
}

/// The only segment of a representation that is one file.
fn single_segment(period: &DashPeriod) -> DashSegment {
    let duration = period.duration.unwrap_or(0.0).max(1.0);
    DashSegment { number: 1, duration, ..DashSegment::default() }
}

fn segment(a: &SegmentAddressing, number: u64, time: u64, duration: u64) -> DashSegment {
    let scale = a.timescale.max(1) as f64;
    let (start, duration) = ((time as f64 - a.offset as f64) / scale, duration as f64 / scale);
    DashSegment { number, time, start, duration, ..DashSegment::default() }
}

/// The number of segments in a list, which bounds everything else; `None` for other modes.
fn list_length(a: &SegmentAddressing) -> Option<u64> {
    match &a.form {
        AddressingMode::List { media } => Some(media.len() as u64),
        _ => None,
    }
}

/// Segments of equal duration, by number. For live streams, those that are complete and within the window.
fn fixed_duration_segments(
    a: &SegmentAddressing,
    duration: f64,
    period: &DashPeriod,
    manifest: &DashManifest,
    elapsed: Option<f64>,
) -> Vec<(DashSegment, u64)> {
    let scale = a.timescale.max(1) as f64;
    let (each, delta) = (duration / scale, a.delta as f64 / scale);
    let first_number = a.start_number.unwrap_or(1);
    // The small amounts keep a boundary that is not exact in floating point from adding or losing a segment.
    let all = period.duration.map(|d| ((d - delta) / each - 1e-6).ceil().max(0.0) as u64);
    let mut end = all.or(list_length(a));
    let mut first = 0;
    if let Some(elapsed) = elapsed {
        // `INF`: a segment is available as soon as it begins.
        let early = if a.available_early.is_finite() { a.available_early } else { each };
        let whole = ((elapsed + early - delta) / each + 1e-6).floor().max(0.0) as u64;
        end = Some(end.map_or(whole, |e| e.min(whole)));
        if let Some(window) = manifest.window {
            first = ((elapsed - window - delta) / each).floor().max(0.0) as u64;
        }
    }
    let numbered = a.end_number.map(|last| last.saturating_add(1).saturating_sub(first_number));
    let end = end.into_iter().chain(numbered).chain(list_length(a)).min().unwrap_or(0);
    // Of a live stream without a window only the end is useful; otherwise too many segments are an error.
    let from = end.saturating_sub(MAX_SEGMENTS as u64);
    let (first, end) = if manifest.is_live {
        (first.max(from), end)
    } else {
        (first, end.min(first.saturating_add(MAX_SEGMENTS as u64 + 1)))
    };
    (first..end)
        .map(|i| {
            let begin = i as f64 * duration;
            let time = match duration.fract() {
                0.0 => i.saturating_mul(duration as u64),
                _ => begin.round() as u64,
            };
            let one = DashSegment {
                number: first_number.saturating_add(i),
                time: time.saturating_add_signed(a.offset),
                start: begin / scale + delta,
                duration: each,
                ..DashSegment::default()
            };
            (one, 0)
        })
        .collect()
}

/// Segments of a timeline, with gaps where it has them, and the number of their part (from 1).
fn timeline_segments(
    a: &SegmentAddressing,
    runs: &[TimelineRun],
    period: &DashPeriod,
    elapsed: Option<f64>,
) -> Vec<(DashSegment, u64)> {
    let scale = a.timescale.max(1) as f64;
    let units = |seconds: f64| (seconds * scale).max(0.0) as u64;
    // The end of a run with unlimited repetition: the period's end, or now.
    let by_period = period.duration.map(|d| units(d).saturating_add_signed(a.offset));
    let early = if a.available_early.is_finite() { a.available_early } else { 0.0 };
    let by_now = elapsed.map(|e| units(e + early).saturating_add_signed(a.offset));
    let mut segments = Vec::new();
    let mut time = runs.first().and_then(|r| r.t).unwrap_or(0);
    let mut number = a.start_number.unwrap_or(1);
    let parts_named = matches!(&a.form, AddressingMode::Template { media } if media.contains("$SubNumber"));
    for (i, run) in runs.iter().enumerate() {
        time = run.t.unwrap_or(time);
        let count = match u64::try_from(run.r) {
            Ok(more) => more.saturating_add(1),
            Err(_) => {
                let next = runs.get(i + 1).and_then(|n| n.t);
                let until = next.or(by_period.into_iter().chain(by_now).min());
                let remaining = until.unwrap_or(time.saturating_add(run.d)).saturating_sub(time);
                // A live run ends with the last complete segment, otherwise with the period.
                if next.is_none() && by_now.is_some_and(|n| Some(n) == until) {
                    remaining / run.d.max(1)
                } else {
                    remaining.div_ceil(run.d.max(1))
                }
            }
        };
        for _ in 0..count.min(MAX_SEGMENTS as u64 + 1) {
            if segments.len() > MAX_SEGMENTS || a.end_number.is_some_and(|last| number > last) {
                return segments;
            }
            if run.k > 1 && parts_named {
                let each = run.d / run.k;
                // Parts have names of their own only if the template tells them apart.
                for part in 0..run.k.min(1000) {
                    segments.push((segment(a, number, time.saturating_add(part * each), each), part + 1));
                }
            } else {
                segments.push((segment(a, number, time, run.d), 1));
            }
            time = time.saturating_add(run.d);
            number = number.saturating_add(1);
        }
    }
    segments
}

/// The segments listed in an index. References to further indexes are skipped: the caller reads those as well.
pub fn index_segments(
    index: &SegmentIndex,
    a: &SegmentAddressing,
    period: &DashPeriod,
    numbered_from: u64,
) -> Vec<DashSegment> {
    let scale = f64::from(index.timescale.max(1));
    let offset = a.offset as f64 / a.timescale.max(1) as f64;
    let mut time = index.earliest;
    let mut segments = Vec::new();
    for reference in &index.references {
        let start = time as f64 / scale - offset;
        if !reference.index && reference.size > 0 {
            segments.push(DashSegment {
                number: numbered_from + segments.len() as u64,
                time,
                start,
                duration: f64::from(reference.duration) / scale,
                address: None,
                range: Some((reference.offset, reference.offset + u64::from(reference.size) - 1)),
            });
        }
        time = time.saturating_add(u64::from(reference.duration));
    }
    let clipped = clip_to_period(segments.iter().cloned(), period, 0.5 / scale);
    // A file with a different time origin that the manifest does not declare is listed completely.
    if clipped.is_empty() { segments } else { clipped }
}
