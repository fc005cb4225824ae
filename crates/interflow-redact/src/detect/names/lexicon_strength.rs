//! Scores a run of capitalized words as a person, a place or an organisation.

use super::super::{ScanState, address};
use super::context_cues::{context_cues, is_eponym, is_foreign_text, is_near_code, org_cue};
use super::organisations::{company_form, context_score, organisation};
use super::software::{described, identifier, technical};
use super::{NameCandidate, has_clean_end};
use crate::lexicon::mark::*;
use crate::token::{TokenShape, WordToken};

/// The likelihood of a first name, 0 to 100.
pub(super) fn first_name_score(token: &WordToken) -> i32 {
    let m = token.flags();
    let word = m & (COMMON | WORD) != 0;
    let score = match () {
        () if m & TECH != 0 && m & FIRST != 0 && token.shape == TokenShape::Title && m & (COMMON | STOP) == 0 => 80,
        () if m & (STOP | TECH | MONTH | DAY) != 0 && m & FIRST_TOP == 0 => 0,
        // April, June and August are primarily months.
        () if m & (MONTH | DAY) != 0 => 45,
        () if m & FIRST_TOP != 0 && !word => 100,
        () if m & FIRST_TOP != 0 => 60,
        () if m & FIRST != 0 && m & COMMON == 0 && m & WORD == 0 => 85,
        () if m & FIRST != 0 && m & COMMON == 0 => 45,
        () if m & FIRST != 0 => 20,
        () => 0,
    };
    match () {
        () if m & NRP != 0 && m & FIRST_TOP == 0 => 0,
        () if m & (TECH | ORG) != 0 => score / 2,
        () => score,
    }
}

/// The likelihood of a family name, 0 to 100.
pub(super) fn last_name_score(token: &WordToken) -> i32 {
    let m = token.flags();
    match () {
        () if m & (STOP | TECH | MONTH | DAY | ORG) != 0 && m & LAST_TOP == 0 => 0,
        () if m & LAST_TOP != 0 && m & COMMON == 0 => 85,
        () if m & LAST_TOP != 0 => 60,
        () if m & LAST != 0 && m & (COMMON | WORD) == 0 => 75,
        () if m & LAST != 0 && m & COMMON == 0 => 45,
        () if m & LAST != 0 => 25,
        () if m & FIRST != 0 && m & COMMON == 0 => 60,
        () if is_foreign_word(token) => 45,
        () => 0,
    }
}

/// An unknown word: neither English nor a name. Short capitals are abbreviations.
pub(super) fn is_foreign_word(token: &WordToken) -> bool {
    let m = token.flags();
    let unknown = m
        & (COMMON
            | WORD
            | STOP
            | TECH
            | FIRST
            | LAST
            | PLACE
            | REGION
            | NRP
            | MONTH
            | DAY
            | ORG
            | ORG_SUFFIX
            | ORG_WORD
            | UNIT
            | JOB)
        == 0;
    unknown
        && match token.shape {
            TokenShape::Title => token.len() >= 3,
            TokenShape::Upper => token.len() >= 6,
            TokenShape::Lower => token.len() >= 4,
            _ => false,
        }
}

pub(super) fn classify(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let mut last = last;
    while last > first && !has_clean_end(scan, &list[last]) {
        last -= 1;
    }
    if !has_clean_end(scan, &list[last])
        || list[last].shape == TokenShape::Upper && list[last].len() == 1 && last == first
    {
        return None;
    }
    let capitals = &list[first..=last];
    if capitals.iter().any(|t| t.has(ORG_SUFFIX | ORG_WORD | ORG))
        && let Some(org) = organisation(scan, first, last, &context_cues(scan, first, last))
    {
        return Some(org);
    }
    if let Some(place) = compass_name(scan, first, last) {
        return Some(place);
    }
    // A profession or a common word before a first name belongs to the sentence: `Producer Amanda Sultygov`.
    let mut from = first;
    let named_word = first < last
        && list[first].has(FIRST)
        && !list[first].has(STOP | TECH | JOB | RELATION)
        && last_name_score(&list[last]) >= 75;
    while !named_word
        && from < last
        && first_name_score(&list[from]) < 45
        && list[from].has(COMMON | WORD | JOB | RELATION | STOP | DAY | MONTH | TECH)
        && !is_initial(&list[from])
    {
        from += 1;
    }
    if from > first && first_name_score(&list[from]) < 45 && !(from == last && last_name_score(&list[from]) >= 75) {
        return common_word_phrase(scan, first, last);
    }
    if from == last {
        return score_word(scan, from);
    }
    score_phrase(scan, from, last)
}

/// `North Kristen`, `Port Allison`: a town named after another name.
fn compass_name(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let lead = ["North", "South", "East", "West", "New", "Port", "Lake", "Fort", "Mount", "Saint", "Upper", "Lower"];
    if last == first || last > first + 2 || !lead.contains(&scan.word(&list[first])) || scan.gap(first) != " " {
        return None;
    }
    let tail = &list[first + 1];
    let named = first_name_score(tail) >= 60
        || last_name_score(tail) >= 45
        || tail.has(PLACE | REGION) && !tail.has(COMMON | WORD);
    let place = if context_cues(scan, first, last).place_cue { 80 } else { 58 };
    (named && !tail.has(TECH)).then_some(NameCandidate { first, last, person: 0, place, org: 0 })
}

fn is_initial(token: &WordToken) -> bool {
    token.shape == TokenShape::Upper && token.len() == 1
}

/// A run of English words: none, unless the context announces a name.
fn common_word_phrase(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let around = context_cues(scan, first, last);
    if around.honorific {
        return Some(NameCandidate { first, last: last.min(first + 1), person: 70, place: 0, org: 0 });
    }
    let formed = company_form(scan, scan.list()[last].end()).is_some();
    let org = if formed { 70 } else { context_score(&scan.list()[first..=last], &around) };
    (org > 0).then_some(NameCandidate { first, last, person: 0, place: 0, org })
}

fn score_phrase(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let mut last = last;
    // A run that continues into common words ends before them.
    for (at, t) in list.iter().enumerate().take(last + 1).skip(first + 1) {
        let joined_name = matches!(scan.gap(at - 1), "-" | "'" | "’");
        let known_pair =
            at == first + 1 && first_name_score(&list[first]) >= 85 && last_name_score(t) >= 25 && at == last;
        let plain = !known_pair
            && t.has(COMMON | WORD | JOB | TECH | MONTH | DAY | ORG_WORD | STREET_SUFFIX)
            && last_name_score(t) < 45
            && first_name_score(t) < 45
            && !t.has(CREDENTIAL | PARTICLE)
            && !is_initial(t)
            && !joined_name;
        if plain {
            last = at - 1;
            break;
        }
    }
    if last == first {
        return score_word(scan, first);
    }
    // `Mach-O`: names do not have a letter joined to them like this.
    if is_initial(&list[last]) && scan.gap(last - 1) == "-" {
        return None;
    }
    let around = context_cues(scan, first, last);
    let core: Vec<&WordToken> = list[first..=last]
        .iter()
        .filter(|t| !is_initial(t) && !t.has(CREDENTIAL) && (t.is_capital() || !t.has(PARTICLE)))
        .collect();
    let head = core.first()?;
    let tail = core.last()?;
    let (f, l) = (
        first_name_score(head),
        if core.len() > 1 { last_name_score(tail).max(first_name_score(tail) - 15) } else { 0 },
    );
    let foreigns = core.iter().filter(|t| is_foreign_word(t)).count();
    let tongue = || !around.person_cue && !around.honorific && is_foreign_text(scan, first, last);
    let mut person = match (f, l) {
        _ if core.len() == 1 => f.max(last_name_score(head)) * 6 / 10 + 15,
        (85.., 45..) => 88,
        (85.., 20..) => 72,
        (85.., _) => 60,
        (45.., 60..) => 78,
        (45.., 45..) => 62,
        (20.., 75..) => 56,
        (20.., 60..) => 42,
        _ if last_name_score(head) >= 60 && l >= 60 => {
            if tongue() {
                45
            } else {
                58
            }
        }
        _ if (last_name_score(head) >= 45 || is_foreign_word(head)) && l >= 60 => 52,
        // A first name that is also a computing term, written as a name.
        (40.., 45..) if is_foreign_word(tail) => 52,
        _ if foreigns == core.len() && tongue() => 30,
        _ if foreigns == core.len() && list[first..=last].iter().any(is_initial) => 56,
        _ if foreigns == core.len() && core.len() <= 3 => 50,
        _ if foreigns == core.len() => 40,
        _ if foreigns > 0 && l >= 45 => 40,
        _ => 15,
    };
    let caps = list[first..=last].iter().all(|t| t.shape == TokenShape::Upper);
    if caps && f < 85 {
        person -= 20;
    }
    if core.iter().any(|t| t.has(TECH | ORG_WORD | STREET_SUFFIX | DAY)) && f < 85 {
        person -= 25;
    }
    if around.person_cue || around.honorific {
        person += if around.honorific { 35 } else { 18 };
    }
    if around.code && !around.labelled {
        person -= 15;
    }
    // `Cyrus IMAPd`, `Borland C`: a product.
    let product = list[last].shape == TokenShape::Camel && list[last].class == 0 || is_initial(&list[last]);
    if !around.honorific && product && l < 45 && technical(scan, first) {
        person = person.min(45);
    }
    let known_place = address::place_at(scan, first).is_some_and(|e| e <= last);
    let mut place = if known_place && core.iter().any(|t| t.has(REGION)) {
        45
    } else if known_place {
        30
    } else {
        0
    };
    if around.place_cue && !around.honorific {
        place = (place + 40).max(if foreigns > 0 { 50 } else { 0 });
        if f < 85 {
            person -= 10;
        }
    }
    let mut org = context_score(&list[first..=last], &around);
    if list[first..=last].iter().any(|t| t.shape == TokenShape::Camel && t.class == 0) {
        org = org.max(40);
    }
    if around.org == 1 && foreigns + 1 >= core.len() {
        org = org.max(52);
    }
    if org >= 56 && !(f >= 85 && l >= 20) {
        person = person.min(org - 10);
        place = place.min(org - 10);
    }
    Some(NameCandidate { first, last, person, place, org })
}

/// Suffixes of towns that surnames rarely have.
fn has_town_suffix(word: &str) -> bool {
    const ENDS: &[&str] = &[
        "ville",
        "burgh",
        "stad",
        "stadt",
        "mouth",
        "hausen",
        "borough",
        "polis",
        "grad",
        "abad",
        "chester",
        "haven",
        "sund",
        "fjord",
        "koping",
        "k\u{f6}ping",
        "minster",
        "nagar",
        "shire",
        "kirchen",
        "kirche",
        "hafen",
    ];
    word.len() >= 7 && ENDS.iter().any(|e| word.ends_with(e))
}

fn score_word(scan: &ScanState<'_>, i: usize) -> Option<NameCandidate> {
    let token = scan.list()[i];
    let m = token.flags();
    let (f, l) = (first_name_score(&token), last_name_score(&token));
    // A common word that begins a sentence: by far the most frequent case.
    let titled = i > 0 && scan.list()[i - 1].has(HONORIFIC);
    let named = f.max(l) > 0 || m & (PLACE | REGION | ORG) != 0 || token.shape == TokenShape::Camel || titled;
    if !named && org_cue(scan, i, i) < 2 {
        return None;
    }
    let around = context_cues(scan, i, i);
    let ticked = scan.byte_before(token.start()) == b'`' && scan.byte_at(token.end()) == b'`';
    let form = m & ORG_SUFFIX != 0 && m & FIRST_TOP == 0;
    if ticked
        || form
        || (identifier(scan, &token) || token.shape == TokenShape::Camel && token.class == 0 && described(scan, i))
            && company_form(scan, token.end()).is_none()
    {
        return None;
    }
    let unknown = is_foreign_word(&token);
    let short_caps = token.shape == TokenShape::Upper && token.len() <= 4;
    let mut person = match (f, l) {
        (100, _) => 66,
        (85.., _) if token.len() >= 4 => 58,
        (85.., _) => 45,
        (60.., _) => {
            if around.opening {
                30
            } else {
                42
            }
        }
        (45.., _) => {
            if around.opening {
                20
            } else {
                38
            }
        }
        (_, 75..) => {
            if around.opening {
                36
            } else {
                48
            }
        }
        (_, 60..) => 25,
        (_, 45..) if unknown => {
            if around.opening {
                15
            } else {
                30
            }
        }
        (_, 45..) => 22,
        (20.., _) => 8,
        (_, 25..) => 8,
        _ => 0,
    };
    let region = m & REGION != 0 && !short_caps;
    let town = m & PLACE != 0 && m & (STOP | TECH | MONTH | DAY | NRP) == 0 && !short_caps;
    let plain = m & (COMMON | WORD) != 0;
    let mut place = match (region, town, plain) {
        (true, _, false) => 72,
        (true, _, true) => 40,
        (_, true, false) if m & (FIRST | LAST) == 0 => 54,
        (_, true, false) if !around.opening && !around.person_cue => 51,
        (_, true, false) => 48,
        (_, true, true) => 5,
        _ if unknown && !short_caps && has_town_suffix(scan.word(&token)) => 50,
        _ => 0,
    };
    if short_caps {
        person -= 30;
    }
    if around.shouted && f < 85 {
        (person, place) = (0, 0);
    }
    // `English`, `Polish`: rarely a name on its own.
    if m & NRP != 0 && m & FIRST_TOP == 0 {
        person = 0;
    }
    // A country is rarely a person.
    if region && m & FIRST_TOP == 0 {
        person /= 2;
    }
    if around.honorific {
        person = person.max(20) + 55;
    } else if m & TECH != 0 {
        // `Hi Claude`, `Jenkins said`: on its own more likely the software.
        person = person.min(45);
    } else if around.kin && !around.code && (f > 0 || l > 0 || m & (PLACE | REGION) != 0) && m & STOP == 0 {
        (person, place) = ((person + 22).max(58), 0);
    } else if around.name_told && unknown && !around.code && !is_keyed(scan, i) {
        person = person.max(56);
    } else if around.person_cue {
        person += match (around.strong_cue, unknown) {
            (true, _) if person >= 20 => 26,
            (false, false) if person >= 20 => 22,
            _ if person > 0 => 12,
            _ => 0,
        };
        if place > 0 && person > 0 && !around.place_cue && !region {
            place -= 12;
        }
    }
    if around.place_cue && !around.honorific {
        if place > 0 {
            place += if plain { 20 } else { 25 };
        } else if (unknown || l >= 60 && !plain)
            && (token.shape == TokenShape::Title || unknown && settles(scan, i))
            && !around.shouted
            && token.len() > 3
        {
            place = if around.code || is_foreign_text(scan, i, i) { 30 } else { 52 };
        }
        if f < 85 {
            person -= 12;
        }
    }
    let mut org = if m & ORG == 0 || m & TECH != 0 && around.org == 0 || is_model_name(scan, i) { 0 } else { 62 };
    if token.shape == TokenShape::Camel && token.class == 0 && token.len() >= 6 && !around.code {
        org = org.max(if around.org > 0 { 60 } else { 20 });
    }
    if around.org == 1 && (unknown || l >= 45 && !plain) {
        org = org.max(55);
    }
    // `at Solarlist`: an organisation rather than an unknown town.
    if around.at && around.place_cue && unknown && !around.code && scan.near_word(i, &["at"], 1, 0) {
        org = org.max(54);
    }
    // A known town remains one: `the office in`, `moved from`.
    let settled = place >= 48 && !unknown && (around.place_cue || around.org < 2);
    if f < 85 && !settled {
        org = org.max(context_score(&[token], &around));
        if org >= 56 && around.org >= 2 {
            person = person.min(org - 10);
            place = place.min(org - 10);
        }
    }
    if company_form(scan, token.end()).is_some() && m & (STOP | JOB) == 0 {
        org = org.max(75);
    }
    if around.labelled {
        if around.place_cue && (unknown || m & (PLACE | REGION) != 0 || l > 0) {
            place = place.max(64);
        }
    } else if around.code {
        person -= if f >= 85 { 18 } else { 25 };
        place -= 25;
        org -= 25;
    }
    let cued = around.honorific || around.labelled || around.person_cue || around.place_cue;
    let software = || !around.honorific && !around.kin && !around.labelled && technical(scan, i);
    if person.max(place).max(org) >= 50 && f < 100 && !region && software() {
        // Tools also tell, ask and say; a word joined to capitals is the name of a symbol or a register.
        let row = token.shape == TokenShape::Upper && i > 0 && scan.list()[i - 1].shape == TokenShape::Upper;
        if row || token.shape == TokenShape::Camel && m & FIRST == 0 {
            (person, place, org) = (person.min(40), place.min(40), if around.org >= 3 { org } else { org.min(40) });
        } else if f < 85 && !around.strong_cue {
            (person, place) = (person.min(48), if around.place_cue { place } else { place.min(48) });
        } else if !cued {
            person -= 12;
        }
        if around.org == 0 {
            org = org.min(48);
        }
    }
    if person.max(place) >= 50 && !around.honorific && is_eponym(scan, i) {
        return None;
    }
    let doubtful = (50..60).contains(&person.max(place).max(org)) && f < 100 && !region;
    if doubtful && (!cued || unknown) && is_near_code(scan, token.start()) {
        (person, place, org) = (person - 9, place - 9, org - 9);
    } else if doubtful && !cued && is_foreign_text(scan, i, i) {
        (person, place) = (person - 12, place - 12);
    }
    Some(NameCandidate { first: i, last: i, person, place, org }).filter(|c| c.person.max(c.place).max(c.org) > 0)
}

/// `lives in PUNKAHARJU`: a verb of residence or movement, with the word in capitals.
fn settles(scan: &ScanState<'_>, i: usize) -> bool {
    let token = &scan.list()[i];
    let before = scan.list().get(i.saturating_sub(3)..i).unwrap_or_default();
    token.shape == TokenShape::Upper
        && before.iter().any(|t| t.has(LIVE_CUE) && t.shape == TokenShape::Lower)
        && !technical(scan, i)
}

/// `name: Clippy`, `"name": "Rustfmt"`: a key of a file, whose value may be any name.
fn is_keyed(scan: &ScanState<'_>, i: usize) -> bool {
    let Some(key) = i.checked_sub(1).and_then(|p| scan.token(p)) else { return false };
    let begins = matches!(scan.byte_before(key.start()), b'"' | b'\'' | b'\n' | b'{' | b',')
        || scan.gap_before(i - 1).trim_matches(' ').ends_with(['\n', '-', '{', ',']);
    key.shape == TokenShape::Lower && scan.word(key) == "name" && begins && scan.gap_before(i).contains([':', '='])
}

/// `Boeing 737`, `Airbus A320`: a product model.
fn is_model_name(scan: &ScanState<'_>, i: usize) -> bool {
    scan.gap(i) == " " && scan.token(i + 1).is_some_and(|t| t.is_digits() || t.shape == TokenShape::Mixed)
}
