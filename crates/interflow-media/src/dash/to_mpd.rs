//! A manifest whose media passes through us: everything else in it stays, addresses become ours.

use super::addressing::{Addressing, Filling, Form, fill};
use super::model::{Manifest, Representation};
use super::xml::Element;
use crate::relay::Base;

/// Where a section is: absolute addresses to try in turn, and a range.
pub type Section = (Vec<String>, Option<(u64, u64)>);

/// A URL in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// An initialization section: absolute addresses to try in turn, range.
    Init(&'a [String], Option<(u64, u64)>),
    /// A segment: absolute addresses to try in turn, range, and what is needed to decrypt it.
    Segment {
        /// Where it is; patterns when `pattern` says so.
        addresses: Vec<String>,
        /// Its bytes.
        range: Option<(u64, u64)>,
        /// The initialization section that it belongs to.
        init: Option<Section>,
        /// Whether number, time and part are filled in by the player.
        pattern: bool,
    },
}

/// Rewrites a manifest in place. `manifest` is the same one, read; `own` our address of it. `decrypted`: the marks of
/// encryption come out.
pub fn rewrite(
    root: &mut Element<'_>,
    manifest: &Manifest,
    own: &str,
    decrypted: bool,
    link: &mut dyn FnMut(Wanted<'_>) -> String,
) {
    root.children.retain(|c| !matches!(c.name, "BaseURL" | "PatchLocation" | "ContentSteering"));
    for location in root.children.iter_mut().filter(|c| c.name == "Location") {
        location.text = own.to_owned().into();
    }
    root.children.retain(|c| c.name != "Period" || c.get("xlink:href").is_none());
    let periods = root.children.iter_mut().filter(|c| c.name == "Period");
    for (element, period) in periods.zip(&manifest.periods) {
        let of_period = timeline_of(element);
        strip(element, decrypted);
        element.children.retain(|c| c.name != "AdaptationSet" || c.get("xlink:href").is_none());
        // Sets that are none of media are not in the model; those that are stand in the same order.
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
                place_segments(element, representation, timeline, link);
            }
        }
    }
}

fn strip(element: &mut Element<'_>, decrypted: bool) {
    const ADDRESSES: [&str; 4] = ["BaseURL", "SegmentTemplate", "SegmentList", "SegmentBase"];
    element.children.retain(|c| !(ADDRESSES.contains(&c.name) || decrypted && c.name == "ContentProtection"));
}

fn timeline_of<'a>(element: &Element<'a>) -> Option<Element<'a>> {
    element.children.iter().find_map(|c| c.child("SegmentTimeline")).cloned()
}

fn resolved(representation: &Representation, reference: &str) -> Vec<String> {
    let bases = representation.bases.iter().filter_map(|b| Base::read(b));
    bases.map(|b| b.resolve(reference)).collect()
}

fn place_segments<'a>(
    element: &mut Element<'a>,
    representation: &Representation,
    timeline: Option<Element<'a>>,
    link: &mut dyn FnMut(Wanted<'_>) -> String,
) {
    let a = &representation.addressing;
    let filling = Filling { id: &representation.id, bandwidth: representation.bandwidth, ..Filling::default() };
    let init = a.init.address.as_deref().map(|i| fill(i, filling));
    let init = init.or_else(|| a.init.range.map(|_| String::new()));
    let init = init.map(|i| (resolved(representation, &i), a.init.range));
    let mut made = match &a.form {
        Form::Template { media } => {
            let addresses = resolved(representation, &half_filled(media, filling));
            let url = link(Wanted::Segment { addresses, range: None, init: init.clone(), pattern: true });
            let mut made = Element::new("SegmentTemplate");
            made.set("media", format!("{url}{}", identifiers(media)));
            if let Some((address, range)) = &init {
                made.set("initialization", link(Wanted::Init(address, *range)));
            }
            made
        }
        Form::List { media } => {
            let mut made = Element::new("SegmentList");
            if let Some((address, range)) = &init {
                let mut section = Element::new("Initialization");
                section.set("sourceURL", link(Wanted::Init(address, *range)));
                made.children.push(section);
            }
            for (address, range) in media.iter() {
                let addresses = resolved(representation, address.as_deref().unwrap_or_default());
                let mut one = Element::new("SegmentURL");
                one.set(
                    "media",
                    link(Wanted::Segment { addresses, range: *range, init: init.clone(), pattern: false }),
                );
                made.children.push(one);
            }
            made
        }
        Form::Base { .. } | Form::Whole => {
            let addresses = resolved(representation, "");
            let mut base = Element::new("BaseURL");
            base.text = link(Wanted::Segment { addresses, range: None, init: init.clone(), pattern: false }).into();
            element.children.insert(0, base);
            let Form::Base { index } = &a.form else { return };
            let mut made = Element::new("SegmentBase");
            if let Some((first, last)) = index {
                made.set("indexRange", format!("{first}-{last}"));
            }
            if let Some((first, last)) = a.init.range {
                let mut section = Element::new("Initialization");
                section.set("range", format!("{first}-{last}"));
                made.children.push(section);
            }
            made
        }
    };
    common(&mut made, a);
    if !matches!(a.form, Form::Base { .. }) {
        // The schema wants the timeline behind the initialization section.
        let place = made.children.iter().take_while(|c| c.name == "Initialization").count();
        made.children.splice(place..place, timeline);
    }
    element.children.push(made);
}

fn common(element: &mut Element<'_>, a: &Addressing) {
    element.set("timescale", a.timescale.max(1).to_string());
    let numbers = [("duration", a.duration), ("startNumber", a.start_number), ("endNumber", a.end_number)];
    for (name, value) in numbers {
        if let Some(value) = value.filter(|_| !matches!(a.form, Form::Base { .. })) {
            element.set(name, value.to_string());
        }
    }
    if a.offset > 0 {
        element.set("presentationTimeOffset", a.offset.to_string());
    }
    if a.delta != 0 {
        element.set("eptDelta", a.delta.to_string());
    }
    if a.available_early != 0.0 {
        let early = if a.available_early.is_finite() { a.available_early.to_string() } else { "INF".into() };
        element.set("availabilityTimeOffset", early);
    }
}

/// The pattern with what is the same for all segments filled in; `$` of what was filled is doubled.
fn half_filled(pattern: &str, with: Filling<'_>) -> String {
    let mut out = String::new();
    let mut parts = pattern.split('$');
    out.push_str(parts.next().unwrap_or_default());
    while let (Some(identifier), rest) = (parts.next(), parts.next()) {
        let known = identifier.starts_with("RepresentationID") || identifier.starts_with("Bandwidth");
        let whole = format!("${identifier}$");
        out.push_str(&if known { fill(&whole, with).replace('$', "$$") } else { whole });
        out.push_str(rest.unwrap_or_default());
    }
    out
}

/// What the player fills in, behind the URL's own query.
fn identifiers(pattern: &str) -> String {
    let named = [("Number", "_n"), ("Time", "_t"), ("SubNumber", "_p")];
    let has = |name: &str| pattern.contains(&format!("${name}$")) || pattern.contains(&format!("${name}%"));
    named.iter().filter(|(name, _)| has(name)).map(|(name, ours)| format!("&{ours}=${name}$")).collect()
}
