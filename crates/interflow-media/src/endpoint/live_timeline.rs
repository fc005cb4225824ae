//! State of generated live playlists between requests: the numbers assigned to segments.
//!
//! A DASH manifest need not number its segments, but an HLS player recognises them by their number (RFC 8216 6.2.2 and
//! 6.3.5): if one changed from one playlist to the next, it would play a segment twice or skip one. So the numbers of
//! the last playlist are remembered, and segments are recognised by their start.

use std::collections::HashSet;

use hashlink::LinkedHashMap;
use parking_lot::Mutex;

use crate::dash::to_hls::PlaylistPeriod;

/// Maximum number of tracks remembered; the oldest are forgotten.
const MAX_TRACKS: usize = 1024;

/// The numbers at the start of a playlist: that of its first segment (`EXT-X-MEDIA-SEQUENCE`), and of the
/// discontinuities before it (`EXT-X-DISCONTINUITY-SEQUENCE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaylistPosition {
    pub sequence: u64,
    pub discontinuities: u64,
}

/// The numbers assigned to the segments of recent tracks, by manifest URL, profile and language.
#[derive(Default)]
pub struct LiveTimelines {
    /// The one that was listed longest ago first.
    histories: Mutex<LinkedHashMap<String, TrackHistory>>,
}

#[derive(Default)]
struct TrackHistory {
    /// Start in milliseconds and number of each segment last listed, ascending.
    segments: Vec<(i64, u64)>,
    /// Periods by name, with the number of preceding ones, which is that of the discontinuities.
    periods: Vec<(String, u64)>,
}

impl LiveTimelines {
    /// Numbers a playlist consistently: every segment keeps the number it had before.
    pub fn position(&self, track: &str, parts: &[PlaylistPeriod<'_>]) -> PlaylistPosition {
        let begins: Vec<i64> = parts
            .iter()
            .flat_map(|p| p.segments.iter().map(|s| ((p.period.start + s.start) * 1000.0).round() as i64))
            .collect();
        let mut histories = self.histories.lock();
        let first = match histories.get(track) {
            Some(history) => continued_sequence(history, &begins),
            None => first_sequence(parts),
        };
        let TrackHistory { segments: former, mut periods } = histories.remove(track).unwrap_or_default();
        let mut ids: HashSet<String> = periods.iter().map(|(id, _)| id.clone()).collect();
        for part in parts {
            if ids.insert(part.period.id.clone()) {
                let next = periods.last().map_or(0, |(_, n)| n + 1);
                periods.push((part.period.id.clone(), next));
            }
        }
        // The discontinuity sequence is that of the first listed segment's period (RFC 8216 4.3.3.3).
        let first_listed = parts.iter().find(|p| !p.segments.is_empty()).map(|p| &p.period.id);
        let discontinuities = periods.iter().find(|(id, _)| Some(id) == first_listed).map_or(0, |(_, n)| *n);
        let over = periods.len().saturating_sub(MAX_TRACKS);
        periods.drain(..over);
        // A playlist without segments says nothing about their numbers.
        let numbered = begins.iter().enumerate().map(|(i, at)| (*at, first + i as u64));
        let segments = if begins.is_empty() { former } else { numbered.collect() };
        histories.insert(track.to_owned(), TrackHistory { segments, periods });
        while histories.len() > MAX_TRACKS {
            histories.pop_front();
        }
        PlaylistPosition { sequence: first, discontinuities }
    }
}

/// The first number, if the track was listed before: found by any segment that both playlists list.
fn continued_sequence(history: &TrackHistory, begins: &[i64]) -> u64 {
    for (i, at) in begins.iter().enumerate() {
        // Origins round the same time differently from one manifest to the next.
        let near = history.segments.partition_point(|(t, _)| *t < at - 20);
        if let Some((t, number)) = history.segments.get(near)
            && (t - at).abs() <= 20
        {
            return number.saturating_sub(i as u64);
        }
    }
    // Nothing in common with the last playlist: continue after it, since numbers must not decrease.
    history.segments.last().map_or(0, |(_, number)| number + 1)
}

/// The first number of a new track: that of its first segment if segments are numbered, else derived from time and
/// duration, so that several gateways agree.
fn first_sequence(parts: &[PlaylistPeriod<'_>]) -> u64 {
    // Periods without segments have nothing to number.
    let Some(part) = parts.iter().find(|p| !p.segments.is_empty()) else { return 0 };
    let Some(segment) = part.segments.first() else { return 0 };
    if parts.len() == 1 && part.track.own.addressing.start_number.is_some() {
        return segment.number;
    }
    ((part.period.start + segment.start) / segment.duration.max(0.001)).max(0.0) as u64
}
