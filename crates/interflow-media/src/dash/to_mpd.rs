//! Rewrites a manifest to route its media through Interflow; everything else is unchanged.

use interflow_types::{Error, Result, data_file};

use super::addressing::{AddressingMode, SegmentAddressing, TemplateValues, fill};
use super::manifest_error;
use super::model::{DashManifest, HTTP_CLOCK, Representation, is_segment_encryption};
use super::xml::XmlElement;
use crate::relay::BaseUrl;

/// The location of a section: alternative absolute URLs, and a range.
pub type SectionSource = (Vec<String>, Option<(u64, u64)>);

/// What a URL in a manifest leads to, so that the caller can build a URL of the gateway for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestUrlKind<'a> {
    /// An initialization section: alternative absolute URLs, range.
    Init(&'a [String], Option<(u64, u64)>),
    /// A clock (`UTCTiming`).
    Clock(&'a str),
    /// The key of segments that are encrypted as a whole.
    Key(&'a str),
    /// A segment: alternative absolute URLs, range, and what is needed to decrypt it.
    Segment {
        /// Its URLs; templates if `pattern` is set.
        addresses: Vec<String>,
        range: Option<(u64, u64)>,
        /// The initialization section that it belongs to.
        init: Option<SectionSource>,
        /// Whether number, time and part are filled in by the player.
        pattern: bool,
    },
}

/// Builds URLs, and counts their bytes against the limit.
struct LinkBuilder<'l> {
    link: &'l mut dyn FnMut(ManifestUrlKind<'_>) -> String,
    left: u64,
}

impl LinkBuilder<'_> {
    fn get(&mut self, wanted: ManifestUrlKind<'_>) -> String {
        let url = (self.link)(wanted);
        self.left = self.left.saturating_sub(url.len() as u64);
        url
    }
}

/// The error for a manifest that would be too long.
pub fn too_long(most: u64) -> Error {
    manifest_error(format!("it would be longer than {most} bytes when rewritten (media.rewritten_bytes)"))
}

/// Rewrites a manifest in place. `manifest` is its parsed form; `own` its URL on this gateway. `decrypted`: remove
/// encryption signalling. `most`: maximum total size of the URLs in bytes.
///
/// # Errors
/// The URLs exceed that size.
pub fn rewrite(
    root: &mut XmlElement<'_>,
    manifest: &DashManifest,
    own: &str,
    decrypted: bool,
    most: u64,
    link: &mut dyn FnMut(ManifestUrlKind<'_>) -> String,
) -> Result<()> {
    let mut links = LinkBuilder { link, left: most };
    // What would lead a player past the gateway: base URLs, patches, steering to other servers, and other manifests.
    root.children.retain(|c| c.name != "BaseURL");
    remove_detours(root);
    place_clocks(root, manifest, &mut links);
    for location in root.children.iter_mut().filter(|c| c.name == "Location") {
        location.text = own.to_owned().into();
    }
    // Periods and sets in other documents (XLink) would be fetched from the origin, and are not in the model.
    root.children.retain(|c| c.name != "Period" || c.get("xlink:href").is_none());
    let periods = root.children.iter_mut().filter(|c| c.name == "Period");
    for (element, period) in periods.zip(&manifest.periods) {
        let of_period = timeline_of(element);
        strip(element, decrypted);
        place_keys(element, period.sets.iter().flat_map(|s| &s.representations), &mut links)?;
        element.children.retain(|c| c.name != "AdaptationSet" || c.get("xlink:href").is_none());
        // Sets without a representation are not in the model; the others are in the same order.
        let mut sets = period.sets.iter();
        let mut next = sets.next();
        let all = element.children.iter_mut().filter(|c| c.name == "AdaptationSet");
        for (place, set) in all.enumerate() {
            let id = set.get("id").map_or_else(|| format!("n{place}"), str::to_owned);
            let timeline = timeline_of(set).or_else(|| of_period.clone());
            strip(set, decrypted);
            let Some(known) = next.filter(|s| s.id == id) else { continue };
            next = sets.next();
            let representations = set.children.iter_mut().filter(|c| c.name == "Representation");
            for (element, representation) in representations.zip(&known.representations) {
                let timeline = timeline_of(element).or_else(|| timeline.clone());
                strip(element, decrypted);
                place_segments(element, representation, timeline, &mut links);
                if links.left == 0 {
                    return Err(too_long(most));
                }
            }
        }
    }
    Ok(())
}

/// Removes elements that send a player to other servers or manifests, wherever they stand.
fn remove_detours(element: &mut XmlElement<'_>) {
    const DETOURS: &str = "ContentSteering ImportedMPD InsertPresentation OverwritePresentation PatchLocation \
                           ReplacePresentation";
    let is_detour = |c: &XmlElement<'_>| data_file::has_word(DETOURS, c.name);
    // An event is nothing without its content.
    let sends_elsewhere = |c: &XmlElement<'_>| c.name == "Event" && c.children.iter().any(is_detour);
    element.children.retain(|c| !is_detour(c) && !sends_elsewhere(c));
    element.children.iter_mut().for_each(remove_detours);
}

/// Routes the clocks that are read over HTTP through the gateway. Others are at addresses of their own, except for a
/// time in the manifest itself.
fn place_clocks(root: &mut XmlElement<'_>, manifest: &DashManifest, links: &mut LinkBuilder<'_>) {
    let mut clocks = manifest.clocks.iter();
    root.children.retain_mut(|c| {
        if c.name != "UTCTiming" {
            return true;
        }
        let Some((scheme, addresses)) = c.get("value").and(c.get("schemeIdUri")).and_then(|_| clocks.next()) else {
            return false;
        };
        if scheme.starts_with(HTTP_CLOCK) {
            let routed: Vec<_> = addresses.split(' ').map(|a| links.get(ManifestUrlKind::Clock(a))).collect();
            c.set("value", routed.join(" "));
            return true;
        }
        scheme.starts_with("urn:mpeg:dash:utc:direct:")
    });
}

/// Routes the keys of segments that are encrypted as a whole through the gateway, anywhere in a period.
fn place_keys<'r>(
    element: &mut XmlElement<'_>,
    mut representations: impl Iterator<Item = &'r Representation>,
    links: &mut LinkBuilder<'_>,
) -> Result<()> {
    let Some(base) = representations.next().and_then(|r| BaseUrl::parse(r.bases.first()?)) else { return Ok(()) };
    place_keys_in(element, &base, links)
}

fn place_keys_in(element: &mut XmlElement<'_>, base: &BaseUrl, links: &mut LinkBuilder<'_>) -> Result<()> {
    if element.name == "CryptoPeriod"
        && let Some(template) = element.get("keyUriTemplate")
    {
        if template.contains('$') {
            return Err(manifest_error("its key addresses have templates (CryptoPeriod@keyUriTemplate)"));
        }
        let url = links.get(ManifestUrlKind::Key(&base.resolve(template)));
        element.set("keyUriTemplate", url);
    }
    element.children.iter_mut().try_for_each(|c| place_keys_in(c, base, links))
}

/// Removes what says where segments are; with `decrypted`, also how they are encrypted.
fn strip(element: &mut XmlElement<'_>, decrypted: bool) {
    const ADDRESSES: [&str; 4] = ["BaseURL", "SegmentTemplate", "SegmentList", "SegmentBase"];
    // The keys of a link are for samples, so that segments stay encrypted as a whole.
    let is_done = |c: &XmlElement<'_>| decrypted && c.name == "ContentProtection" && !is_segment_encryption(c);
    element.children.retain(|c| !ADDRESSES.contains(&c.name) && !is_done(c));
}

/// The timeline in a template or list, which is moved to the new one unchanged.
fn timeline_of<'a>(element: &XmlElement<'a>) -> Option<XmlElement<'a>> {
    element.children.iter().find_map(|c| c.child("SegmentTimeline")).cloned()
}

/// The absolute URLs for a reference, one per base URL.
fn resolved(representation: &Representation, reference: &str) -> Vec<String> {
    let bases = representation.bases.iter().filter_map(|b| BaseUrl::parse(b));
    bases.map(|b| b.resolve(reference)).collect()
}

/// Puts the addressing of a representation into its element, with URLs of the gateway. Inherited values are written
/// out, since the elements that had them are gone.
fn place_segments<'a>(
    element: &mut XmlElement<'a>,
    representation: &Representation,
    timeline: Option<XmlElement<'a>>,
    links: &mut LinkBuilder<'_>,
) {
    let a = &representation.addressing;
    let filling =
        TemplateValues { id: &representation.id, bandwidth: representation.bandwidth, ..TemplateValues::default() };
    let init = a.init.address.as_deref().map(|i| fill(i, filling));
    let init = init.or_else(|| a.init.range.map(|_| String::new()));
    let init = init.map(|i| (resolved(representation, &i), a.init.range));
    let mut made = match &a.form {
        AddressingMode::Template { media } => {
            let addresses = resolved(representation, &fill_partially(media, filling));
            let url = links.get(ManifestUrlKind::Segment { addresses, range: None, init: init.clone(), pattern: true });
            let mut made = XmlElement::new("SegmentTemplate");
            made.set("media", format!("{url}{}", identifiers(media)));
            if let Some((address, range)) = &init {
                made.set("initialization", links.get(ManifestUrlKind::Init(address, *range)));
            }
            made
        }
        AddressingMode::List { media } => {
            let mut made = XmlElement::new("SegmentList");
            if let Some((address, range)) = &init {
                let url = links.get(ManifestUrlKind::Init(address, *range));
                made.children.push(XmlElement::new("Initialization").with("sourceURL", url));
            }
            for (address, range) in media.iter() {
                if links.left == 0 {
                    return;
                }
                let addresses = resolved(representation, address.as_deref().unwrap_or_default());
                let (range, init) = (*range, init.clone());
                let url = links.get(ManifestUrlKind::Segment { addresses, range, init, pattern: false });
                made.children.push(XmlElement::new("SegmentURL").with("media", url));
            }
            made
        }
        AddressingMode::Base { .. } | AddressingMode::Whole => {
            let addresses = resolved(representation, "");
            let segment = ManifestUrlKind::Segment { addresses, range: None, init: init.clone(), pattern: false };
            let text = links.get(segment).into();
            element.children.insert(0, XmlElement { text, ..XmlElement::new("BaseURL") });
            let AddressingMode::Base { index } = &a.form else { return };
            let mut made = XmlElement::new("SegmentBase");
            if let Some((first, last)) = index {
                made.set("indexRange", format!("{first}-{last}"));
            }
            // In another file, or in this one.
            if let Some((address, range)) = init.as_ref().filter(|_| a.init.address.is_some()) {
                let url = links.get(ManifestUrlKind::Init(address, *range));
                made.children.push(XmlElement::new("Initialization").with("sourceURL", url));
            } else if let Some((first, last)) = a.init.range {
                made.children.push(XmlElement::new("Initialization").with("range", format!("{first}-{last}")));
            }
            made
        }
    };
    if let Some(index) = &a.kept.index {
        let mut section = XmlElement::new("RepresentationIndex");
        if let Some((first, last)) = index.range {
            section.set("range", format!("{first}-{last}"));
        }
        if let Some(address) = &index.address {
            let addresses = resolved(representation, &fill(address, filling));
            section.set("sourceURL", links.get(ManifestUrlKind::Init(&addresses, None)));
        }
        let position = made.children.iter().take_while(|c| c.name == "Initialization").count();
        made.children.insert(position, section);
    }
    set_common_attributes(&mut made, a);
    if !matches!(a.form, AddressingMode::Base { .. }) {
        // The schema requires the timeline after the initialization section.
        let position =
            made.children.iter().take_while(|c| matches!(c.name, "Initialization" | "RepresentationIndex")).count();
        made.children.splice(position..position, timeline);
    }
    element.children.push(made);
}

/// The attributes that all forms of addressing have; those that are not set stay away.
fn set_common_attributes(element: &mut XmlElement<'_>, a: &SegmentAddressing) {
    let is_base = matches!(a.form, AddressingMode::Base { .. });
    let early = if a.available_early.is_finite() { a.available_early.to_string() } else { "INF".into() };
    let attributes = [
        ("timescale", Some(a.timescale.max(1).to_string())),
        ("duration", a.duration.filter(|_| !is_base).map(|d| d.to_string())),
        ("startNumber", a.start_number.filter(|_| !is_base).map(|n| n.to_string())),
        ("endNumber", a.end_number.filter(|_| !is_base).map(|n| n.to_string())),
        ("availabilityTimeComplete", a.kept.complete.clone()),
        ("pdDelta", a.kept.pd_delta.clone()),
        ("indexRangeExact", a.kept.index_exact.clone().filter(|_| is_base)),
        ("presentationTimeOffset", (a.offset != 0).then(|| a.offset.to_string())),
        ("eptDelta", (a.delta != 0).then(|| a.delta.to_string())),
        ("availabilityTimeOffset", (a.available_early != 0.0).then_some(early)),
    ];
    for (name, value) in attributes {
        if let Some(value) = value {
            element.set(name, value);
        }
    }
}

/// The template with the values common to all segments filled in. `$` in these values is doubled, since the result is
/// a template again.
fn fill_partially(pattern: &str, with: TemplateValues<'_>) -> String {
    let mut out = String::new();
    let mut parts = pattern.split('$');
    out.push_str(parts.next().unwrap_or_default());
    while let (Some(identifier), rest) = (parts.next(), parts.next()) {
        let is_supported = identifier.starts_with("RepresentationID") || identifier.starts_with("Bandwidth");
        let whole = format!("${identifier}$");
        out.push_str(&if is_supported { fill(&whole, with).replace('$', "$$") } else { whole });
        out.push_str(rest.unwrap_or_default());
    }
    out
}

/// The identifiers that the player fills in, appended to the URL's query.
fn identifiers(pattern: &str) -> String {
    let named = [("Number", "_n"), ("Time", "_t"), ("SubNumber", "_p")];
    let has = |name: &str| pattern.contains(&format!("${name}$")) || pattern.contains(&format!("${name}%"));
    named.iter().filter(|(name, _)| has(name)).map(|(name, ours)| format!("&{ours}=${name}$")).collect()
}
