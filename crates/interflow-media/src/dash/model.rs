//! The manifest model, with inheritance and base URLs resolved, so that the writers need no knowledge of it.

use interflow_types::Result;
use interflow_types::labelled_enum;

use super::addressing::{AddressingMode, SegmentAddressing, availability_offset};
use super::manifest_error;
use super::time::{duration, parse_date_time};
use super::xml::XmlElement;
use crate::relay::BaseUrl;

/// Maximum number of alternative base URLs; further ones are ignored. Levels multiply, so few would become many.
const MAX_BASE_URLS: usize = 4;
/// Maximum number of representations of all periods together; more are an error.
const MAX_REPRESENTATIONS: usize = 20_000;
/// Maximum number of periods, each of which repeats all sets.
const MAX_PERIODS: usize = 10_000;
/// Maximum size of inherited data, counted once per representation.
const MAX_INHERITED_BYTES: usize = 64 << 20;

/// A manifest (ISO 23009-1). Times and durations are in seconds, whatever their notation in the XML.
#[derive(Clone, Debug, Default)]
pub struct DashManifest {
    /// Whether the manifest is dynamic: a live stream that grows.
    pub is_live: bool,
    /// When it became available, in seconds since 1970.
    pub available: f64,
    /// Total duration (`mediaPresentationDuration`).
    pub duration: Option<f64>,
    /// How far back segments remain available (`timeShiftBufferDepth`).
    pub window: Option<f64>,
    /// How far behind the live edge to play (`suggestedPresentationDelay`).
    pub delay: Option<f64>,
    /// How often to fetch the manifest again (`minimumUpdatePeriod`).
    pub update: Option<f64>,
    /// Clocks to synchronise with (`UTCTiming`): scheme and value of each, in order of preference.
    pub clocks: Vec<(String, String)>,
    /// Whether any segments are encrypted as a whole (ISO 23009-4).
    pub has_encrypted_segments: bool,
    /// The URL from which the next update is to be fetched (`Location`).
    pub location: Option<String>,
    pub periods: Vec<DashPeriod>,
}

#[derive(Clone, Debug, Default)]
pub struct DashPeriod {
    pub id: String,
    /// When it begins, in seconds of the presentation.
    pub start: f64,
    /// How long it is, in seconds, when that is known.
    pub duration: Option<f64>,
    pub sets: Vec<AdaptationSet>,
}

labelled_enum! {
    /// The content type of an adaptation set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DashMediaKind {
        Video "video",
        Audio "audio",
        Text "text",
        Image "image",
        /// Anything else, which only DASH players can use.
        Other "other",
    }
}

impl DashMediaKind {
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Video, Self::Audio, Self::Text, Self::Image].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// An adaptation set: interchangeable representations of the same content.
#[derive(Clone, Debug)]
pub struct AdaptationSet {
    /// Its id; `n` and its index in the period if it has none.
    pub id: String,
    pub media: DashMediaKind,
    pub language: Option<String>,
    pub label: Option<String>,
    /// `main`, `alternate`, `forced-subtitle` and others, which become attributes of HLS renditions.
    pub roles: Vec<String>,
    /// Whether it is a trick-mode set (for fast forward and rewind).
    pub is_trick: bool,
    pub representations: Vec<Representation>,
}

#[derive(Clone, Debug)]
pub struct Representation {
    pub id: String,
    /// Peak bits per second, as `BANDWIDTH` in HLS.
    pub bandwidth: u64,
    pub mime: String,
    pub codecs: Option<String>,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    pub frame_rate: Option<f64>,
    /// The value of HLS's `CHANNELS`.
    pub channels: Option<String>,
    /// The value of HLS's `VIDEO-RANGE`: `PQ` or `HLG`.
    pub range: Option<&'static str>,
    /// Columns and rows of thumbnails in one picture.
    pub tiles: Option<(u32, u32)>,
    pub is_protected: bool,
    /// The id of its key (`cenc:default_KID`), in hex.
    pub key_id: Option<String>,
    /// Its base URLs, absolute and in order of preference.
    pub bases: Vec<String>,
    pub addressing: SegmentAddressing,
}

/// Reads a manifest that came from this URL.
///
/// # Errors
/// The manifest is invalid, exceeds a limit, or refers to remote parts; the error says why.
pub fn read(root: &XmlElement<'_>, base: &BaseUrl) -> Result<DashManifest> {
    if root.name != "MPD" {
        return Err(manifest_error(format!("it begins with <{}>, not with <MPD>", root.name)));
    }
    refuse_remote(root)?;
    let seconds = |name: &str| root.get(name).and_then(duration);
    let mut manifest = DashManifest {
        is_live: root.get("type") == Some("dynamic"),
        available: root.get("availabilityStartTime").and_then(parse_date_time).unwrap_or(0.0),
        duration: seconds("mediaPresentationDuration"),
        window: seconds("timeShiftBufferDepth"),
        delay: seconds("suggestedPresentationDelay"),
        update: seconds("minimumUpdatePeriod"),
        clocks: root.all("UTCTiming").filter_map(|element| clock(element, base)).collect(),
        has_encrypted_segments: root.all("Period").any(has_encrypted_segments),
        location: root.child("Location").map(|l| base.resolve(&l.text)),
        periods: Vec::new(),
    };
    let level = BaseUrlLevel { bases: vec![base.clone()], early: 0.0 }.child_level(root);
    let periods: Vec<&XmlElement<'_>> = root.all("Period").filter(|p| !is_emptied(p)).collect();
    if periods.len() > MAX_PERIODS {
        return Err(manifest_error(format!("it has more than {MAX_PERIODS} periods")));
    }
    let mut budget = ManifestBudget { representations: MAX_REPRESENTATIONS, bytes: MAX_INHERITED_BYTES };
    let mut begins = 0.0;
    for (i, element) in periods.iter().enumerate() {
        // Without `start`, a period begins where the one before it ends.
        let start = element.get("start").and_then(duration).unwrap_or(begins);
        let next = periods.get(i + 1).and_then(|p| p.get("start")).and_then(duration);
        let end = manifest.duration.filter(|_| i + 1 == periods.len());
        let length = element.get("duration").and_then(duration).or_else(|| next.or(end).map(|e| e - start));
        let length = length.filter(|l| *l > 0.0);
        begins = start + length.unwrap_or(0.0);
        let inside = level.child_level(element);
        let addressing = SegmentAddressing { timescale: 1, ..SegmentAddressing::default() }.inherit(element);
        let sets = element
            .all("AdaptationSet")
            .filter(|s| !is_emptied(s))
            .enumerate()
            .filter_map(|(n, s)| set(s, n, &inside, &addressing, &mut budget).transpose())
            .collect::<Result<_>>()?;
        let id = element.get("id").map_or_else(|| format!("p{start}"), str::to_owned);
        manifest.periods.push(DashPeriod { id, start, duration: length, sets });
    }
    if manifest.periods.is_empty() { Err(manifest_error("it has no period")) } else { Ok(manifest) }
}

/// A clock to synchronise with, with absolute URLs; `None` if it has no value.
fn clock(element: &XmlElement<'_>, base: &BaseUrl) -> Option<(String, String)> {
    let (scheme, value) = (element.get("schemeIdUri")?, element.get("value")?);
    let value = match scheme.starts_with(HTTP_CLOCK) {
        true => value.split_whitespace().map(|url| base.resolve(url)).collect::<Vec<_>>().join(" "),
        false => value.to_owned(),
    };
    Some((scheme.to_owned(), value))
}

/// The schemes of clocks that are read over HTTP.
pub const HTTP_CLOCK: &str = "urn:mpeg:dash:utc:http-";

/// The scheme of segments that are encrypted as a whole (ISO 23009-4).
pub const SEGMENT_ENCRYPTION: &str = "urn:mpeg:dash:sea:2012";

/// Whether a `ContentProtection` is about segments that are encrypted as a whole.
pub fn is_segment_encryption(element: &XmlElement<'_>) -> bool {
    element.get("schemeIdUri") == Some(SEGMENT_ENCRYPTION)
}

/// Whether any segments inside an element are encrypted as a whole.
fn has_encrypted_segments(element: &XmlElement<'_>) -> bool {
    element.children.iter().any(|c| {
        c.name == "ContentProtection" && is_segment_encryption(c)
            || matches!(c.name, "AdaptationSet" | "Representation") && has_encrypted_segments(c)
    })
}

/// An element with a remote reference that means nothing (`resolve-to-zero`), and is treated as absent.
fn is_emptied(element: &XmlElement<'_>) -> bool {
    element.get("xlink:href") == Some("urn:mpeg:dash:resolve-to-zero:2013")
}

/// Remote elements (XLink) are rejected: they could refer to anything.
fn refuse_remote(root: &XmlElement<'_>) -> Result<()> {
    let remote = |e: &XmlElement| e.get("xlink:href").is_some() && !is_emptied(e);
    if root.all("Period").any(|period| remote(period) || period.children.iter().any(remote)) {
        return Err(manifest_error("it has parts to be fetched from elsewhere (xlink), which is not done"));
    }
    Ok(())
}

/// The alternative base URLs at one level of the manifest, and how much earlier than complete segments are available
/// through them.
#[derive(Clone)]
struct BaseUrlLevel {
    bases: Vec<BaseUrl>,
    early: f64,
}

impl BaseUrlLevel {
    /// Those inside an element that may have base URLs of its own, each combined with each of the level above.
    fn child_level(&self, element: &XmlElement<'_>) -> Self {
        let own: Vec<&XmlElement<'_>> = element.all("BaseURL").collect();
        if own.is_empty() {
            return self.clone();
        }
        // A base URL may be relative to any of those of the level above.
        let resolved = own.iter().flat_map(|base| self.bases.iter().map(move |parent| parent.resolve(&base.text)));
        let bases: Vec<BaseUrl> = resolved.filter_map(|url| BaseUrl::parse(&url)).take(MAX_BASE_URLS).collect();
        let early = own.first().and_then(|b| b.get("availabilityTimeOffset")).map_or(0.0, availability_offset);
        Self { bases: if bases.is_empty() { self.bases.clone() } else { bases }, early: self.early + early }
    }
}

/// The value of a property descriptor with this scheme; empty if it has none.
fn property<'a>(element: &'a XmlElement<'_>, scheme: &str) -> Option<&'a str> {
    let is_one = |e: &&XmlElement<'_>| {
        matches!(e.name, "EssentialProperty" | "SupplementalProperty") && e.get("schemeIdUri") == Some(scheme)
    };
    element.children.iter().find(is_one).map(|e| e.get("value").unwrap_or_default())
}

/// The key id that a `ContentProtection` of an element states (ISO 23001-7 11.2), in hex.
fn key_id(element: &XmlElement<'_>) -> Option<String> {
    let is_one = |name: &str| name.rsplit(':').next() == Some("default_KID");
    let mut stated =
        element.all("ContentProtection").flat_map(|c| c.attributes.iter().filter(|(name, _)| is_one(name)));
    stated.find_map(|(_, value)| {
        let id = value.split_whitespace().next()?.replace('-', "").to_ascii_lowercase();
        (id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
    })
}

/// What remains of the limits on representations. Inherited data is counted for each that inherits it, because it is
/// copied.
struct ManifestBudget {
    representations: usize,
    bytes: usize,
}

impl ManifestBudget {
    fn take(&mut self, own: &Representation) -> Result<()> {
        let a = &own.addressing;
        let form = match &a.form {
            AddressingMode::Template { media } => media.len(),
            _ => 0,
        };
        let texts = [own.id.len(), own.mime.len(), own.codecs.as_ref().map_or(0, String::len), form];
        let bytes = texts.iter().sum::<usize>()
            + own.bases.iter().map(String::len).sum::<usize>()
            + a.init.address.as_ref().map_or(0, String::len);
        let remaining = (self.representations.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(representations), Some(bytes)) = remaining else {
            return Err(manifest_error(format!(
                "it has more than {MAX_REPRESENTATIONS} representations, or their addresses and codecs take more than \
                 {MAX_INHERITED_BYTES} bytes"
            )));
        };
        *self = Self { representations, bytes };
        Ok(())
    }
}

/// Attributes of a set that are common to its representations: looked up once.
struct AdaptationSetInfo<'a> {
    set: &'a XmlElement<'a>,
    characteristics: Option<&'a str>,
    tiles: Option<&'a str>,
    channels: Option<&'a XmlElement<'a>>,
    is_protected: bool,
    key_id: Option<String>,
}

const CHARACTERISTICS: &str = "urn:mpeg:mpegB:cicp:TransferCharacteristics";
const TILES: &str = "http://dashif.org/guidelines/thumbnail_tile";

/// An adaptation set; `None` if it has no representation.
fn set(
    element: &XmlElement<'_>,
    place: usize,
    level: &BaseUrlLevel,
    addressing: &SegmentAddressing,
    budget: &mut ManifestBudget,
) -> Result<Option<AdaptationSet>> {
    let level = level.child_level(element);
    let addressing = addressing.inherit(element);
    let Some(first) = element.child("Representation") else { return Ok(None) };
    let either = |name: &str| first.get(name).or_else(|| element.get(name));
    let media = media_of(either("mimeType"), element.get("contentType"), either("codecs"), element);
    let media = media.unwrap_or(DashMediaKind::Other);
    let common = AdaptationSetInfo {
        set: element,
        characteristics: property(element, CHARACTERISTICS),
        tiles: property(element, TILES),
        channels: element.child("AudioChannelConfiguration"),
        is_protected: element.child("ContentProtection").is_some(),
        key_id: key_id(element),
    };
    let mut representations = Vec::new();
    for r in element.all("Representation") {
        let own = representation(r, &common, &level, &addressing);
        budget.take(&own)?;
        representations.push(own);
    }
    Ok(Some(AdaptationSet {
        id: element.get("id").map_or_else(|| format!("n{place}"), str::to_owned),
        media,
        language: element.get("lang").map(str::to_owned),
        label: element
            .child("Label")
            .map(|l| l.text.clone().into_owned())
            .or_else(|| element.get("label").map(str::to_owned)),
        roles: element.all("Role").filter_map(|r| r.get("value")).map(str::to_owned).collect(),
        is_trick: property(element, "http://dashif.org/guidelines/trickmode").is_some(),
        representations,
    }))
}

/// The content type: by codec for text, then by declaration, by media type, by codec, and by the attributes it has.
fn media_of(
    mime: Option<&str>,
    content: Option<&str>,
    codecs: Option<&str>,
    element: &XmlElement<'_>,
) -> Option<DashMediaKind> {
    let by_codec = |codecs: &str| {
        let codec = codecs.split(['.', ',']).next().unwrap_or_default().trim();
        match codec {
            "stpp" | "wvtt" => Some(DashMediaKind::Text),
            "avc1" | "avc3" | "hvc1" | "hev1" | "dvh1" | "dvhe" | "dva1" | "dvav" | "av01" | "vp08" | "vp09"
            | "vp8" | "vp9" | "vvc1" | "vvi1" | "mp4v" => Some(DashMediaKind::Video),
            "mp4a" | "ac-3" | "ec-3" | "ac-4" | "opus" | "Opus" | "fLaC" | "flac" | "mp3" | "dtsc" | "dtse"
            | "dtsx" | "mhm1" | "alac" => Some(DashMediaKind::Audio),
            _ => None,
        }
    };
    let mime = mime.unwrap_or_default();
    if let Some(media) = codecs.and_then(by_codec).filter(|m| *m == DashMediaKind::Text) {
        return Some(media);
    }
    let top = content.unwrap_or_else(|| mime.split('/').next().unwrap_or_default());
    let is_text = mime.contains("ttml") || mime.contains("vtt");
    let by_type = DashMediaKind::from_name(top).or(is_text.then_some(DashMediaKind::Text));
    by_type.or_else(|| codecs.and_then(by_codec)).or_else(|| {
        let has =
            |name: &str| element.get(name).is_some() || element.all("Representation").any(|r| r.get(name).is_some());
        if has("width") || has("height") {
            Some(DashMediaKind::Video)
        } else {
            has("audioSamplingRate").then_some(DashMediaKind::Audio)
        }
    })
}

fn representation(
    element: &XmlElement<'_>,
    common: &AdaptationSetInfo<'_>,
    level: &BaseUrlLevel,
    addressing: &SegmentAddressing,
) -> Representation {
    let either = |name: &str| element.get(name).or_else(|| common.set.get(name));
    let level = level.child_level(element);
    let mut addressing = addressing.inherit(element);
    addressing.available_early += level.early;
    let number = |name: &str| either(name).and_then(|v| v.trim().parse::<u32>().ok());
    let characteristics =
        property(element, CHARACTERISTICS).or(common.characteristics).and_then(|v| v.trim().parse::<u32>().ok());
    Representation {
        id: element.get("id").unwrap_or_default().to_owned(),
        bandwidth: element.number("bandwidth").unwrap_or(0),
        mime: either("mimeType").unwrap_or_default().to_owned(),
        codecs: either("codecs").map(str::to_owned),
        size: number("width").zip(number("height")),
        frame_rate: either("frameRate").and_then(rate),
        channels: element.child("AudioChannelConfiguration").or(common.channels).and_then(channels),
        range: match characteristics {
            Some(16) => Some("PQ"),
            Some(18) => Some("HLG"),
            _ => None,
        },
        tiles: property(element, TILES)
            .or(common.tiles)
            .and_then(|v| v.split_once('x'))
            .and_then(|(c, r)| Some((c.trim().parse().ok()?, r.trim().parse().ok()?))),
        is_protected: common.is_protected || element.child("ContentProtection").is_some(),
        key_id: key_id(element).or_else(|| common.key_id.clone()),
        bases: level.bases.iter().map(|b| b.resolve("")).collect(),
        addressing,
    }
}

/// A frame rate such as `25` or `30000/1001`; `None` if it is malformed or not positive.
fn rate(text: &str) -> Option<f64> {
    let (n, d) = text.split_once('/').unwrap_or((text, "1"));
    let (n, d): (f64, f64) = (n.trim().parse().ok()?, d.trim().parse().ok()?);
    (n > 0.0 && d > 0.0).then(|| n / d)
}

/// The channel count by whichever scheme is used (ISO 23001-8, Dolby).
fn channels(element: &XmlElement<'_>) -> Option<String> {
    let value = element.get("value")?.trim();
    let scheme = element.get("schemeIdUri").unwrap_or_default();
    if scheme.contains("dolby") {
        let bits = u32::from_str_radix(value, 16).ok()?;
        return Some(dolby_channels(bits).to_string());
    }
    if scheme.ends_with("ChannelConfiguration") && scheme.contains("cicp") {
        let count = match value.parse::<u32>().ok()? {
            n @ 1..=6 => n,
            7 | 12 | 14 => 8,
            9 => 3,
            10 => 4,
            11 => 7,
            n => n,
        };
        return Some(count.to_string());
    }
    value.parse::<u32>().ok().filter(|n| *n > 0).map(|n| n.to_string())
}

/// The number of speakers in a Dolby channel map; some of its bits stand for a pair.
fn dolby_channels(bits: u32) -> u32 {
    const PAIRS: u32 = 0x0674;
    let bits = bits & 0xffff;
    bits.count_ones() + (bits & PAIRS).count_ones()
}
