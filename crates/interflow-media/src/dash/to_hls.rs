//! HLS playlists made of a manifest.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::model::{AdaptationSet, Manifest, Media, Period, Representation};
use super::segments::Segment;
use super::time;
use crate::hls::variants::Wish;

/// What is wished for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Which heights.
    pub height: Option<Wish>,
    /// Which language of sound.
    pub language: Option<String>,
    /// MPEG-TS segments, each whole in itself.
    pub ts: bool,
}

/// A representation with its set.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    /// The set.
    pub set: &'a AdaptationSet,
    /// The representation.
    pub own: &'a Representation,
}

impl Track<'_> {
    /// The name of the track's playlist.
    pub fn profile(&self) -> String {
        format!("{}_{}_{}", self.set.id, self.own.id, self.own.bandwidth)
    }
}

/// The period that variants are drawn from: the last of a live manifest, the longest of another.
pub fn main_period(manifest: &Manifest) -> Option<&Period> {
    let full = || manifest.periods.iter().filter(|p| !p.sets.is_empty());
    if manifest.is_live {
        return full().next_back();
    }
    let length = |p: &&Period| (p.duration.unwrap_or(0.0) * 1000.0) as u64;
    full().fold(
        None,
        |best: Option<&Period>, p| if best.is_none_or(|b| length(&p) > length(&b)) { Some(p) } else { best },
    )
}

/// All tracks of a period.
pub fn tracks(period: &Period) -> impl Iterator<Item = Track<'_>> {
    period.sets.iter().flat_map(|set| set.representations.iter().map(move |own| Track { set, own }))
}

/// The track of a period that goes on with a playlist: the one of this name, else the nearest of its kind and language.
pub fn find<'a>(period: &'a Period, profile: &str, media: Option<Media>, language: &str) -> Option<Track<'a>> {
    if let Some(track) = tracks(period).find(|t| t.profile() == profile) {
        return Some(track);
    }
    // Python's names: `0` stands for a set without a name.
    let (_, rest) = profile.split_once('_')?;
    let same_rest = |t: &Track<'_>| t.profile().split_once('_').is_some_and(|(_, r)| r == rest);
    if let Some(track) = tracks(period).find(same_rest).filter(|t| media.is_none_or(|m| m == t.set.media)) {
        return Some(track);
    }
    let bandwidth: u64 = profile.rsplit('_').next()?.parse().ok()?;
    let media = media?;
    let spoken = |t: &Track<'_>| t.set.language.as_deref().unwrap_or_default() == language;
    let kind = || tracks(period).filter(move |t| t.set.media == media && !t.set.is_trick);
    let near = |t: &Track<'_>| t.own.bandwidth.abs_diff(bandwidth);
    kind().filter(spoken).min_by_key(near).or_else(|| kind().min_by_key(near))
}

/// The multivariant playlist. `link` gives the URL of a track's playlist.
pub fn master(period: &Period, wishes: &Wishes, mut link: impl FnMut(Track<'_>) -> String) -> String {
    let mut out = String::from("#EXTM3U\n");
    let _ = writeln!(out, "#EXT-X-VERSION:{}\n#EXT-X-INDEPENDENT-SEGMENTS", if wishes.ts { 4 } else { 7 });
    let groups = audio_groups(period, wishes);
    let mut named: BTreeMap<String, u32> = BTreeMap::new();
    for (group, sounds) in &groups {
        let main = sounds.iter().position(|t| t.set.roles.iter().any(|r| r == "main")).unwrap_or(0);
        for (i, track) in sounds.iter().enumerate() {
            audio_rendition(&mut out, group, *track, i == main, &mut named, &link(*track));
        }
    }
    let texts = subtitles(period);
    for track in &texts {
        text_rendition(&mut out, *track, &mut named, &link(*track));
    }
    let videos = videos(period, wishes);
    for track in &videos {
        if groups.is_empty() {
            variant(&mut out, *track, None, !texts.is_empty(), &link(*track));
        }
        for (group, sounds) in &groups {
            variant(&mut out, *track, Some((group, sounds)), !texts.is_empty(), &link(*track));
        }
    }
    if videos.is_empty() {
        // Sound alone: each group's sound is a variant, with the group's renditions to choose from.
        for (group, sounds) in &groups {
            for track in sounds.iter().take(1) {
                sound_variant(&mut out, group, *track, &link(*track));
            }
        }
    }
    for track in tracks(period).filter(|t| t.set.media == Media::Video && t.set.is_trick) {
        let _ = writeln!(
            out,
            "#EXT-X-I-FRAME-STREAM-INF:{},URI=\"{}\"",
            picture(track, track.own.bandwidth, &[]),
            link(track)
        );
    }
    for track in tracks(period).filter(|t| t.set.media == Media::Image) {
        let _ = writeln!(
            out,
            "#EXT-X-IMAGE-STREAM-INF:{},URI=\"{}\"",
            picture(track, track.own.bandwidth, &[]),
            link(track)
        );
    }
    out
}

fn family(codecs: Option<&str>) -> &str {
    codecs.and_then(|c| c.split(['.', ',']).next()).unwrap_or("audio")
}

/// Sound by codec and channels, the best representation of each set; a player takes one group and chooses within it.
fn audio_groups<'a>(period: &'a Period, wishes: &Wishes) -> Vec<(String, Vec<Track<'a>>)> {
    let mut groups: Vec<(String, Vec<Track<'a>>)> = Vec::new();
    let sets: Vec<_> = period.sets.iter().filter(|s| s.media == Media::Audio && !s.is_trick).collect();
    let speaks = |set: &AdaptationSet, wanted: &str| {
        let own = set.language.as_deref().unwrap_or_default();
        own.eq_ignore_ascii_case(wanted) || own.split('-').next().is_some_and(|l| l.eq_ignore_ascii_case(wanted))
    };
    let wanted = wishes.language.as_deref().filter(|w| sets.iter().any(|s| speaks(s, w)));
    for set in sets.into_iter().filter(|s| wanted.is_none_or(|w| speaks(s, w))) {
        let mut best: BTreeMap<String, &Representation> = BTreeMap::new();
        for own in &set.representations {
            let name = format!("audio-{}-{}", family(own.codecs.as_deref()), own.channels.as_deref().unwrap_or("x"));
            let kept = best.entry(name).or_insert(own);
            if own.bandwidth > kept.bandwidth {
                *kept = own;
            }
        }
        for (name, own) in best {
            match groups.iter_mut().find(|(n, _)| *n == name) {
                Some((_, tracks)) => tracks.push(Track { set, own }),
                None => groups.push((name, vec![Track { set, own }])),
            }
        }
    }
    groups
}

fn videos<'a>(period: &'a Period, wishes: &Wishes) -> Vec<Track<'a>> {
    let mut all: Vec<_> = tracks(period).filter(|t| t.set.media == Media::Video && !t.set.is_trick).collect();
    let heights = all.iter().filter_map(|t| t.own.size.map(|(_, h)| h)).collect::<Vec<_>>();
    if let Some(chosen) = wishes.height.and_then(|w| w.choose(heights.iter().copied())) {
        all.retain(|t| t.own.size.is_none_or(|(_, h)| h == chosen));
    }
    all
}

/// Text that an HLS player can be given: WebVTT as it is, and both in fragments.
fn subtitles(period: &Period) -> Vec<Track<'_>> {
    tracks(period).filter(|t| t.set.media == Media::Text && !t.own.mime.contains("ttml")).collect()
}

fn quoted(text: &str) -> String {
    text.replace(['"', '\r', '\n'], "'")
}

/// A name that no other rendition has.
fn name(track: Track<'_>, named: &mut BTreeMap<String, u32>) -> String {
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
    let known = set.language.as_deref().filter(|l| !l.is_empty() && *l != "und");
    known.map(|l| format!(",LANGUAGE=\"{}\"", quoted(l))).unwrap_or_default()
}

fn audio_rendition(
    out: &mut String,
    group: &str,
    track: Track<'_>,
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

fn text_rendition(out: &mut String, track: Track<'_>, named: &mut BTreeMap<String, u32>, url: &str) {
    let forced = track.set.roles.iter().any(|r| r == "forced-subtitle" || r == "forced_subtitle");
    let forced = if forced { ",FORCED=YES" } else { "" };
    let _ = writeln!(
        out,
        "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subs\",NAME=\"{}\"{},DEFAULT=NO,AUTOSELECT=YES{forced},URI=\"{url}\"",
        name(track, named),
        language(track.set)
    );
}

/// What every kind of variant says of itself.
fn picture(track: Track<'_>, bandwidth: u64, codecs: &[&str]) -> String {
    let own = track.own;
    let mut out = format!("BANDWIDTH={}", bandwidth.max(1));
    let mut all: Vec<&str> = own.codecs.iter().flat_map(|c| c.split(',')).map(str::trim).collect();
    all.extend(codecs);
    all.dedup();
    // Half of a list would be worse than none.
    if own.codecs.is_some() {
        let _ = write!(out, ",CODECS=\"{}\"", quoted(&all.join(",")));
    } else if track.set.media == Media::Image {
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

fn variant(out: &mut String, track: Track<'_>, sound: Option<(&String, &Vec<Track<'_>>)>, subs: bool, url: &str) {
    let (mut bandwidth, mut codecs, mut audio) = (track.own.bandwidth, Vec::new(), String::new());
    if let Some((group, sounds)) = sound {
        bandwidth += sounds.iter().map(|s| s.own.bandwidth).max().unwrap_or(0);
        codecs.extend(sounds.iter().filter_map(|s| s.own.codecs.as_deref()).take(1));
        audio = format!(",AUDIO=\"{group}\"");
    }
    let subs = if subs { ",SUBTITLES=\"subs\"" } else { "" };
    let _ = writeln!(out, "#EXT-X-STREAM-INF:{}{audio}{subs}\n{url}", picture(track, bandwidth, &codecs));
}

fn sound_variant(out: &mut String, group: &str, track: Track<'_>, url: &str) {
    let _ = writeln!(out, "#EXT-X-STREAM-INF:{},AUDIO=\"{group}\"\n{url}", picture(track, track.own.bandwidth, &[]));
}

/// What a playlist shows of one period.
pub struct Part<'a> {
    /// The period.
    pub period: &'a Period,
    /// The track.
    pub track: Track<'a>,
    /// Its segments.
    pub segments: Vec<Segment>,
}

/// What a media playlist is made of besides its parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// Number of the first segment.
    pub sequence: u64,
    /// Discontinuities before the first segment.
    pub discontinuities: u64,
    /// Where to begin, in seconds from the end when negative.
    pub start: Option<f64>,
    /// MPEG-TS segments.
    pub ts: bool,
}

/// A URL in a media playlist.
pub enum Wanted<'a> {
    /// The initialization section of a part.
    Init(&'a Part<'a>),
    /// A segment.
    Segment(&'a Part<'a>, &'a Segment),
}

/// A media playlist. `link` gives URLs.
pub fn media(
    manifest: &Manifest,
    parts: &[Part<'_>],
    frame: Frame,
    mut link: impl FnMut(Wanted<'_>) -> Option<String>,
) -> String {
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
    if first.is_some_and(|t| t.set.media == Media::Image) {
        out.push_str("#EXT-X-IMAGES-ONLY\n");
    }
    let mut any = false;
    for part in parts.iter().filter(|p| !p.segments.is_empty()) {
        if any {
            out.push_str("#EXT-X-DISCONTINUITY\n");
        }
        any = true;
        if !frame.ts
            && let Some(url) = link(Wanted::Init(part))
        {
            let _ = writeln!(out, "#EXT-X-MAP:URI=\"{url}\"");
        }
        let mut expected: Option<f64> = None;
        for segment in &part.segments {
            let gap = expected.is_some_and(|e| segment.start - e > 0.1);
            if (manifest.is_live || manifest.available > 0.0) && (expected.is_none() || gap) {
                let at = manifest.available + part.period.start + segment.start;
                let _ = writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", time::show(at));
            }
            if let Some((columns, rows)) = part.track.own.tiles {
                let (width, height) = part.track.own.size.unwrap_or((0, 0));
                let each = segment.duration / f64::from((columns * rows).max(1));
                let size = format!("{}x{}", width / columns.max(1), height / rows.max(1));
                let _ = writeln!(out, "#EXT-X-TILES:RESOLUTION={size},LAYOUT={columns}x{rows},DURATION={each:.3}");
            }
            if let Some(url) = link(Wanted::Segment(part, segment)) {
                let _ = writeln!(out, "#EXTINF:{:.6},\n{url}", segment.duration);
            }
            expected = Some(segment.start + segment.duration);
        }
    }
    if !manifest.is_live {
        out.push_str("#EXT-X-ENDLIST\n");
    }
    out
}
