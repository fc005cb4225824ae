//! Generates HLS playlists from a manifest (RFC 8216; fragmented MP4 segments, or MPEG-TS).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use interflow_types::Result;

use super::addressing::DashByteRange;
use super::model::{AdaptationSet, DashManifest, DashMediaKind, DashPeriod, Representation, SEGMENT_ENCRYPTION};
use super::segments::DashSegment;
use super::{manifest_error, time};
use crate::hls::variant_filter::VariantChoice;

/// What the link asks of a generated playlist: a height, an audio language, and whether segments are remuxed.
#[derive(Clone, Debug, Default)]
pub struct HlsOptions {
    pub height: Option<VariantChoice>,
    pub language: Option<String>,
    /// Whether segments are remuxed to MPEG-TS.
    pub ts: bool,
    /// Whether subtitles in MP4 are listed as they are. FFmpeg takes every subtitle rendition for WebVTT, and refuses
    /// the whole playlist if its segments are not.
    pub mp4_text: bool,
    /// Maximum size of a playlist, in bytes; no limit if absent.
    pub most: Option<u64>,
}

/// Maximum number of variants and renditions in a multivariant playlist; each picture is combined with each audio
/// group.
const MAX_VARIANTS: usize = 10_000;

/// Refuses a playlist that has become too long.
fn check(out: &str, most: Option<u64>) -> Result<()> {
    match most {
        Some(most) if out.len() as u64 > most => {
            Err(manifest_error(format!("a playlist of it would be longer than {most} bytes (media.rewritten_bytes)")))
        }
        _ => Ok(()),
    }
}

/// A representation with the set that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct DashTrack<'a> {
    pub set: &'a AdaptationSet,
    pub own: &'a Representation,
}

impl DashTrack<'_> {
    /// The name by which URLs refer to the track. Bitrates tell representations with equal ids apart.
    pub fn profile(&self) -> String {
        format!("{}_{}_{}", self.set.id, self.own.id, self.own.bandwidth)
    }

    /// Whether it has WebVTT cues in MP4 (ISO 14496-30), which are converted to WebVTT segments unless `subtitles=mp4` is
    /// asked for.
    pub fn is_wvtt(&self) -> bool {
        self.own.mime.ends_with("/mp4") && self.own.codecs.as_deref().is_some_and(|c| c.trim().starts_with("wvtt"))
    }
}

/// The period that variants are taken from: the last of a live manifest, otherwise the longest.
pub fn main_period(manifest: &DashManifest) -> Option<&DashPeriod> {
    let is_known = |set: &AdaptationSet| set.media != DashMediaKind::Other;
    let full = || manifest.periods.iter().filter(|p| p.sets.iter().any(is_known));
    if manifest.is_live {
        return full().next_back();
    }
    let length = |p: &&DashPeriod| (p.duration.unwrap_or(0.0) * 1000.0) as u64;
    // Of several, the first.
    full().rev().max_by_key(length)
}

/// All tracks of a period, also those that HLS cannot carry.
pub fn tracks(period: &DashPeriod) -> impl Iterator<Item = DashTrack<'_>> {
    period.sets.iter().flat_map(|set| set.representations.iter().map(move |own| DashTrack { set, own }))
}

/// The tracks that HLS can carry, which excludes WebM.
fn playable(period: &DashPeriod) -> impl Iterator<Item = DashTrack<'_>> {
    tracks(period).filter(|t| !t.own.mime.ends_with("/webm"))
}

/// A track of each kind, picture and sound, of which the manifest declares all tracks to be encrypted. Where only some
/// are, players may choose the others.
pub fn encrypted_kinds(period: &DashPeriod) -> Vec<&Representation> {
    let first = |kind| {
        let mut tracks = playable(period).filter(|t| t.set.media == kind).map(|t| t.own).peekable();
        let first = *tracks.peek()?;
        tracks.all(|own| own.is_protected).then_some(first)
    };
    [DashMediaKind::Video, DashMediaKind::Audio].into_iter().filter_map(first).collect()
}

/// Refuses a manifest whose segments are encrypted as a whole, by its own rules for keys and IVs.
///
/// # Errors
/// It has such segments: as HLS they would be played as clear ones.
pub fn check_encryption(manifest: &DashManifest) -> Result<()> {
    if manifest.has_encrypted_segments {
        return Err(manifest_error(format!(
            "its segments are encrypted as a whole ({SEGMENT_ENCRYPTION}), which is not converted to HLS: DASH players \
             get it at /proxy/mpd/manifest.mpd"
        )));
    }
    Ok(())
}

/// The corresponding track in another period: the one of this name, else the closest of its kind and language.
pub fn find<'a>(
    period: &'a DashPeriod,
    profile: &str,
    media: Option<DashMediaKind>,
    language: &str,
) -> Option<DashTrack<'a>> {
    if let Some(track) = playable(period).find(|t| t.profile() == profile) {
        return Some(track);
    }
    // Names as players already know them: `0` stands for a set without an id.
    let (_, rest) = profile.split_once('_')?;
    let same_rest = |t: &DashTrack<'_>| t.profile().split_once('_').is_some_and(|(_, r)| r == rest);
    if let Some(track) = playable(period).find(same_rest).filter(|t| media.is_none_or(|m| m == t.set.media)) {
        return Some(track);
    }
    let bandwidth: u64 = profile.rsplit('_').next()?.parse().ok()?;
    let media = media?;
    let spoken = |t: &DashTrack<'_>| t.set.language.as_deref().unwrap_or_default() == language;
    let kind = || playable(period).filter(move |t| t.set.media == media && !t.set.is_trick);
    let near = |t: &DashTrack<'_>| t.own.bandwidth.abs_diff(bandwidth);
    kind().filter(spoken).min_by_key(near).or_else(|| kind().min_by_key(near))
}

/// The multivariant playlist. `link` returns the URL of a track's playlist. Checks the size while writing, so that a
/// hostile manifest cannot fill the memory.
///
/// # Errors
/// No media that HLS can carry; more than 10,000 variants, or a playlist over the size limit.
pub fn master(
    period: &DashPeriod,
    options: &HlsOptions,
    mut link: impl FnMut(DashTrack<'_>) -> String,
) -> Result<String> {
    let mut out = String::from("#EXTM3U\n");
    let _ = writeln!(out, "#EXT-X-VERSION:{}\n#EXT-X-INDEPENDENT-SEGMENTS", if options.ts { 4 } else { 7 });
    let groups = audio_groups(period, options);
    let (texts, videos) = (subtitles(period, options), videos(period, options));
    let renditions = groups.iter().map(|(_, sounds)| sounds.len()).sum::<usize>() + texts.len();
    if videos.len().saturating_mul(groups.len().max(1)).saturating_add(renditions) > MAX_VARIANTS {
        return Err(manifest_error(format!("it has more than {MAX_VARIANTS} combinations of picture and sound")));
    }
    let empty = out.len();
    let mut named: BTreeMap<String, u32> = BTreeMap::new();
    for (group, sounds) in &groups {
        let main = sounds.iter().position(|t| t.set.roles.iter().any(|r| r == "main")).unwrap_or(0);
        for (i, track) in sounds.iter().enumerate() {
            audio_rendition(&mut out, group, *track, i == main, &mut named, &link(*track));
            check(&out, options.most)?;
        }
    }
    for track in &texts {
        text_rendition(&mut out, *track, &mut named, &link(*track));
        check(&out, options.most)?;
    }
    let loudest = |sounds: &[DashTrack<'_>]| sounds.iter().map(|s| s.own.bandwidth).max().unwrap_or(0);
    let sounds: Vec<AudioGroup<'_>> = groups
        .iter()
        .map(|(group, sounds)| AudioGroup {
            group,
            bandwidth: loudest(sounds),
            codecs: sounds.iter().find_map(|s| s.own.codecs.as_deref()),
        })
        .collect();
    for track in &videos {
        if sounds.is_empty() {
            variant(&mut out, *track, None, !texts.is_empty(), &link(*track));
        }
        for sound in &sounds {
            variant(&mut out, *track, Some(sound), !texts.is_empty(), &link(*track));
            check(&out, options.most)?;
        }
    }
    if videos.is_empty() {
        // Audio only: each audio group becomes a variant, with the group's renditions to choose from.
        for (group, sounds) in &groups {
            if let Some(track) = sounds.first() {
                let own = AudioGroup { group, ..AudioGroup::default() };
                variant(&mut out, *track, Some(&own), false, &link(*track));
            }
        }
    }
    let besides = playable(period).filter(|t| match t.set.media {
        DashMediaKind::Video => t.set.is_trick,
        media => media == DashMediaKind::Image,
    });
    let mut besides: Vec<_> = besides.take(MAX_VARIANTS).collect();
    besides.sort_by_key(|t| t.set.media == DashMediaKind::Image);
    for track in besides {
        let name = if track.set.media == DashMediaKind::Image { "IMAGE" } else { "I-FRAME" };
        let about = stream_inf_attributes(track, track.own.bandwidth, &[]);
        let _ = writeln!(out, "#EXT-X-{name}-STREAM-INF:{about},URI=\"{}\"", link(track));
        check(&out, options.most)?;
    }
    if out.len() == empty {
        return Err(manifest_error(
            "it lists no media that HLS can carry (WebM is not supported): DASH players get it at /proxy/mpd/manifest.mpd",
        ));
    }
    Ok(out)
}

/// An audio group, as referred to by variants.
#[derive(Default)]
struct AudioGroup<'a> {
    group: &'a str,
    bandwidth: u64,
    codecs: Option<&'a str>,
}

/// The codec without its parameters: `mp4a` of `mp4a.40.2`.
fn family(codecs: Option<&str>) -> &str {
    codecs.and_then(|c| c.split(['.', ',']).next()).unwrap_or("audio")
}

/// Audio by codec and channels, with the best representation of each set; a player selects one group and chooses within
/// it.
fn audio_groups<'a>(period: &'a DashPeriod, options: &HlsOptions) -> Vec<(String, Vec<DashTrack<'a>>)> {
    let mut groups: Vec<(String, Vec<DashTrack<'a>>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let sets: Vec<_> = period.sets.iter().filter(|s| s.media == DashMediaKind::Audio && !s.is_trick).collect();
    let speaks = |set: &AdaptationSet, wanted: &str| {
        let own = set.language.as_deref().unwrap_or_default();
        own.eq_ignore_ascii_case(wanted) || own.split('-').next().is_some_and(|l| l.eq_ignore_ascii_case(wanted))
    };
    let language = options.language.as_deref().filter(|w| sets.iter().any(|s| speaks(s, w)));
    for set in sets.into_iter().filter(|s| language.is_none_or(|w| speaks(s, w))) {
        let mut best: BTreeMap<String, &Representation> = BTreeMap::new();
        for own in set.representations.iter().filter(|own| !own.mime.ends_with("/webm")) {
            let channels = own.channels.as_deref().unwrap_or("x");
            let name = quoted(&format!("audio-{}-{channels}", family(own.codecs.as_deref())));
            let best_own = best.entry(name).or_insert(own);
            if own.bandwidth > best_own.bandwidth {
                *best_own = own;
            }
        }
        for (name, own) in best {
            let index = *places.entry(name.clone()).or_insert(groups.len());
            match groups.get_mut(index) {
                Some((_, tracks)) => tracks.push(DashTrack { set, own }),
                None => groups.push((name, vec![DashTrack { set, own }])),
            }
        }
    }
    groups
}

fn videos<'a>(period: &'a DashPeriod, options: &HlsOptions) -> Vec<DashTrack<'a>> {
    let mut all: Vec<_> = playable(period).filter(|t| t.set.media == DashMediaKind::Video && !t.set.is_trick).collect();
    let heights = all.iter().filter_map(|t| t.own.size.map(|(_, h)| h)).collect::<Vec<_>>();
    if let Some(chosen) = options.height.and_then(|w| w.choose(heights.iter().copied())) {
        all.retain(|t| t.own.size.is_none_or(|(_, h)| h == chosen));
    }
    all
}

/// Subtitles that an HLS player supports: WebVTT, and other text in fragmented MP4 if it is asked for.
fn subtitles<'a>(period: &'a DashPeriod, options: &HlsOptions) -> Vec<DashTrack<'a>> {
    let is_listed = |t: &DashTrack<'_>| {
        !t.own.mime.contains("ttml") && (options.mp4_text || !t.own.mime.ends_with("/mp4") || t.is_wvtt())
    };
    playable(period).filter(|t| t.set.media == DashMediaKind::Text && is_listed(t)).collect()
}

/// A text as the content of a quoted string, which has no escapes (RFC 8216 4.2).
fn quoted(text: &str) -> String {
    text.replace(['"', '\r', '\n'], "'")
}

/// A name unique among renditions, as players identify them by it (RFC 8216 4.3.4.1.1).
fn name(track: DashTrack<'_>, named: &mut BTreeMap<String, u32>) -> String {
    let set = track.set;
    let mut name = set.label.as_deref().or(set.language.as_deref()).unwrap_or(set.media.as_str()).to_owned();
    if set.label.is_none()
        && let Some(role) = set.roles.iter().find(|r| *r != "main")
    {
        let _ = write!(name, " ({role})");
    }
    let key = format!("{}/{}/{name}", set.media.as_str(), family(track.own.codecs.as_deref()));
    let count = named.entry(key).or_insert(0);
    *count += 1;
    if *count > 1 {
        let _ = write!(name, " {count}");
    }
    quoted(&name)
}

fn language(set: &AdaptationSet) -> String {
    let language = set.language.as_deref().filter(|l| !l.is_empty() && *l != "und");
    language.map(|l| format!(",LANGUAGE=\"{}\"", quoted(l))).unwrap_or_default()
}

fn audio_rendition(
    out: &mut String,
    group: &str,
    track: DashTrack<'_>,
    main: bool,
    named: &mut BTreeMap<String, u32>,
    url: &str,
) {
    let yes = if main { "YES" } else { "NO" };
    let channels = track.own.channels.as_ref().map(|c| format!(",CHANNELS=\"{c}\"")).unwrap_or_default();
    let described = track.set.roles.iter().any(|r| r == "description");
    let described = if described { ",CHARACTERISTICS=\"public.accessibility.describes-video\"" } else { "" };
    let _ = writeln!(
        out,
        "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{group}\",NAME=\"{}\"{},DEFAULT={yes},AUTOSELECT=YES{channels}{described},URI=\"{url}\"",
        name(track, named),
        language(track.set)
    );
}

/// A subtitle rendition; forced subtitles are marked, so that players show them without being asked.
fn text_rendition(out: &mut String, track: DashTrack<'_>, named: &mut BTreeMap<String, u32>, url: &str) {
    let forced = track.set.roles.iter().any(|r| r == "forced-subtitle" || r == "forced_subtitle");
    let forced = if forced { ",FORCED=YES" } else { "" };
    let _ = writeln!(
        out,
        "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subs\",NAME=\"{}\"{},DEFAULT=NO,AUTOSELECT=YES{forced},URI=\"{url}\"",
        name(track, named),
        language(track.set)
    );
}

/// The attributes common to all variants.
fn stream_inf_attributes(track: DashTrack<'_>, bandwidth: u64, codecs: &[&str]) -> String {
    let own = track.own;
    let mut out = format!("BANDWIDTH={}", bandwidth.max(1));
    let mut all: Vec<&str> = own.codecs.iter().flat_map(|c| c.split(',')).map(str::trim).collect();
    all.extend(codecs);
    all.dedup();
    // A partial codec list would be worse than none.
    if own.codecs.is_some() {
        let _ = write!(out, ",CODECS=\"{}\"", quoted(&all.join(",")));
    } else if track.set.media == DashMediaKind::Image {
        out.push_str(",CODECS=\"jpeg\"");
    }
    if let Some((width, height)) = own.size {
        let _ = write!(out, ",RESOLUTION={width}x{height}");
    }
    if let Some(rate) = own.frame_rate.filter(|_| !track.set.is_trick) {
        let _ = write!(out, ",FRAME-RATE={rate:.3}");
    }
    if let Some(range) = own.range {
        let _ = write!(out, ",VIDEO-RANGE={range}");
    }
    out
}

/// A variant with the bandwidth and codecs of its most demanding audio rendition.
fn variant(out: &mut String, track: DashTrack<'_>, sound: Option<&AudioGroup<'_>>, subs: bool, url: &str) {
    let (mut bandwidth, mut codecs, mut audio) = (track.own.bandwidth, Vec::new(), String::new());
    if let Some(sound) = sound {
        bandwidth = bandwidth.saturating_add(sound.bandwidth);
        codecs.extend(sound.codecs);
        audio = format!(",AUDIO=\"{}\"", sound.group);
    }
    let subs = if subs { ",SUBTITLES=\"subs\"" } else { "" };
    let _ = writeln!(out, "#EXT-X-STREAM-INF:{}{audio}{subs}\n{url}", stream_inf_attributes(track, bandwidth, &codecs));
}

/// The part of a media playlist that comes from one period. Between two of them is a discontinuity.
pub struct PlaylistPeriod<'a> {
    pub period: &'a DashPeriod,
    pub track: DashTrack<'a>,
    pub segments: Vec<DashSegment>,
    /// Where its file's initialization section was found, if the manifest does not say it.
    pub init: Option<DashByteRange>,
}

/// The parameters of a media playlist, which depend on what the player has seen before.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaylistHeader {
    /// `EXT-X-MEDIA-SEQUENCE`: the number of the first segment.
    pub sequence: u64,
    /// `EXT-X-DISCONTINUITY-SEQUENCE`: the number of discontinuities before the first segment.
    pub discontinuities: u64,
    /// Start offset in seconds; relative to the end if negative.
    pub start: Option<f64>,
    /// Whether segments are remuxed to MPEG-TS, which has no initialization section.
    pub ts: bool,
    /// Maximum size of the playlist, in bytes.
    pub most: Option<u64>,
}

/// What a URL in a media playlist leads to.
pub enum UrlKind<'a> {
    Init(&'a PlaylistPeriod<'a>),
    Segment(&'a PlaylistPeriod<'a>, &'a DashSegment),
}

/// A media playlist. `link` returns URLs.
///
/// # Errors
/// A playlist over the size limit.
pub fn media(
    manifest: &DashManifest,
    parts: &[PlaylistPeriod<'_>],
    frame: PlaylistHeader,
    mut link: impl FnMut(UrlKind<'_>) -> Option<String>,
) -> Result<String> {
    // RFC 8216bis 4.4.3.1: no segment's rounded duration may exceed it.
    let longest = parts.iter().flat_map(|p| &p.segments).map(|s| s.duration).fold(1.0, f64::max);
    let mut out = String::from("#EXTM3U\n");
    let _ = writeln!(out, "#EXT-X-VERSION:{}", if frame.ts { 4 } else { 7 });
    let _ = writeln!(out, "#EXT-X-TARGETDURATION:{}", longest.round().max(1.0) as u64);
    let _ = writeln!(out, "#EXT-X-MEDIA-SEQUENCE:{}", frame.sequence);
    if frame.discontinuities > 0 {
        let _ = writeln!(out, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", frame.discontinuities);
    }
    if !manifest.is_live {
        out.push_str("#EXT-X-PLAYLIST-TYPE:VOD\n");
    }
    if let Some(start) = frame.start {
        let _ = writeln!(out, "#EXT-X-START:TIME-OFFSET={start},PRECISE=YES");
    }
    let first = parts.first().map(|p| p.track);
    if first.is_some_and(|t| t.set.is_trick) {
        out.push_str("#EXT-X-I-FRAMES-ONLY\n");
    }
    if first.is_some_and(|t| t.set.media == DashMediaKind::Image) {
        out.push_str("#EXT-X-IMAGES-ONLY\n");
    }
    let mut any = false;
    for part in parts.iter().filter(|p| !p.segments.is_empty()) {
        if any {
            out.push_str("#EXT-X-DISCONTINUITY\n");
        }
        any = true;
        if !frame.ts
            && let Some(url) = link(UrlKind::Init(part))
        {
            let _ = writeln!(out, "#EXT-X-MAP:URI=\"{url}\"");
        }
        let mut expected: Option<f64> = None;
        // After a gap, the time is given again, so that players do not drift.
        for segment in &part.segments {
            let gap = expected.is_some_and(|e| segment.start - e > 0.1);
            if (manifest.is_live || manifest.available > 0.0) && (expected.is_none() || gap) {
                let at = manifest.available + part.period.start + segment.start;
                let _ = writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", time::format_date_time(at));
            }
            if let Some((columns, rows)) = part.track.own.tiles {
                let (width, height) = part.track.own.size.unwrap_or((0, 0));
                let each = segment.duration / f64::from(columns.saturating_mul(rows).max(1));
                let size = format!("{}x{}", width / columns.max(1), height / rows.max(1));
                let _ = writeln!(out, "#EXT-X-TILES:RESOLUTION={size},LAYOUT={columns}x{rows},DURATION={each:.3}");
            }
            if let Some(url) = link(UrlKind::Segment(part, segment)) {
                let _ = writeln!(out, "#EXTINF:{:.6},\n{url}", segment.duration);
            }
            expected = Some(segment.start + segment.duration);
            check(&out, frame.most)?;
        }
    }
    if !manifest.is_live {
        out.push_str("#EXT-X-ENDLIST\n");
    }
    Ok(out)
}
