//! State of generated live playlists between requests: the origin's clock, and the numbers assigned to segments.
//!
//! A DASH manifest need not number its segments, but an HLS player recognises them by their number (RFC 8216 6.2.2 and
//! 6.3.5): if one changed from one playlist to the next, it would play a segment twice or skip one. So the numbers of
//! the last playlist are remembered, and segments are recognised by their start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use hashlink::LruCache;
use interflow_types::Timestamp;
use parking_lot::Mutex;

use super::router::MediaRequest;
use crate::dash::time::parse_date_time;
use crate::dash::to_hls::PlaylistPeriod;
use crate::relay::CachePolicy;
use crate::relay::address::parse;

/// Maximum number of tracks and clocks remembered; the oldest are forgotten.
const MAX_TRACKS: usize = 1024;
/// How long an origin's clock offset is used before it is measured again.
const CLOCK_TTL: Duration = Duration::from_secs(600);

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
    told: Mutex<TrackHistories>,
}

#[derive(Default)]
struct TrackHistories {
    tracks: HashMap<String, TrackHistory>,
    order: VecDeque<String>,
}

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
        let mut told = self.told.lock();
        let first = match told.tracks.get(track) {
            Some(known) => continued_sequence(known, &begins),
            None => first_sequence(parts),
        };
        let known = told.tracks.remove(track).map(|t| t.periods);
        if known.is_none() {
            told.order.push_back(track.to_owned());
        }
        let mut periods = known.unwrap_or_default();
        let mut ids: HashSet<String> = periods.iter().map(|(id, _)| id.clone()).collect();
        for part in parts {
            if ids.insert(part.period.id.clone()) {
                let next = periods.last().map_or(0, |(_, n)| n + 1);
                periods.push((part.period.id.clone(), next));
            }
        }
        // The discontinuity sequence is that of the first listed segment's period (RFC 8216 4.3.3.3).
        let shown = parts.iter().find(|p| !p.segments.is_empty()).map(|p| &p.period.id);
        let discontinuities = periods.iter().find(|(id, _)| Some(id) == shown).map_or(0, |(_, n)| *n);
        let over = periods.len().saturating_sub(MAX_TRACKS);
        periods.drain(..over);
        let segments = begins.iter().enumerate().map(|(i, at)| (*at, first + i as u64)).collect();
        told.tracks.insert(track.to_owned(), TrackHistory { segments, periods });
        while told.tracks.len() > MAX_TRACKS {
            let Some(oldest) = told.order.pop_front() else { break };
            told.tracks.remove(&oldest);
        }
        PlaylistPosition { sequence: first, discontinuities }
    }
}

/// The first number, if the track was listed before: found by any segment that both playlists list.
fn continued_sequence(known: &TrackHistory, begins: &[i64]) -> u64 {
    for (i, at) in begins.iter().enumerate() {
        // Origins round the same time differently from one manifest to the next.
        let near = known.segments.partition_point(|(t, _)| *t < at - 20);
        if let Some((t, number)) = known.segments.get(near)
            && (t - at).abs() <= 20
        {
            return number.saturating_sub(i as u64);
        }
    }
    // Nothing in common with the last playlist: continue after it, since numbers must not decrease.
    known.segments.last().map_or(0, |(_, number)| number + 1)
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

/// How far origins' clocks are from the local one, in seconds. They determine which segments of a live stream exist
/// (ISO 23009-1 5.8.4.11). The least recently used ones are evicted.
pub struct OriginClocks {
    known: Mutex<LruCache<String, (f64, Instant)>>,
}

impl Default for OriginClocks {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(MAX_TRACKS)) }
    }
}

fn local_time() -> f64 {
    Timestamp::now().micros() as f64 / 1e6
}

impl OriginClocks {
    /// The time in seconds since 1970 by the first usable `UTCTiming` clock, or the local clock. The network is asked
    /// once for each clock and ten minutes.
    pub async fn now(&self, job: MediaRequest<'_>, clocks: &[(String, String)]) -> f64 {
        for (scheme, value) in clocks {
            if scheme.starts_with("urn:mpeg:dash:utc:direct:") {
                if let Some(at) = parse_date_time(value) {
                    return at;
                }
                continue;
            }
            if !scheme.starts_with("urn:mpeg:dash:utc:http-") {
                continue;
            }
            if let Some((offset, asked)) = self.known.lock().get(value).copied()
                && asked.elapsed() < CLOCK_TTL
            {
                return local_time() + offset;
            }
            let told = fetch_clock(job, scheme, value).await;
            // A clock that cannot be read counts as equal, and is not asked again before the time is over.
            let offset = told.map_or(0.0, |at| at - local_time());
            self.known.lock().insert(value.clone(), (offset, Instant::now()));
            return local_time() + offset;
        }
        local_time()
    }
}

/// Asks a clock over HTTP: its `Date` field, or a date as the body.
async fn fetch_clock(job: MediaRequest<'_>, scheme: &str, address: &str) -> Option<f64> {
    let ask = job.whole_request(parse(address.split_whitespace().next()?).ok()?).ok()?;
    let document = job.state.shared.document(ask, CachePolicy::For(Duration::ZERO), 4096).await.ok()?;
    if scheme.contains("http-head") {
        let date = document.headers.get_str("date")?;
        return jiff::fmt::rfc2822::parse(date).ok().map(|z| z.timestamp().as_millisecond() as f64 / 1000.0);
    }
    document.status.is_success().then(|| parse_date_time(std::str::from_utf8(&document.body).ok()?))?
}
