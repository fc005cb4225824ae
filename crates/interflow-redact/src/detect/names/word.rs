//! The features of one capitalized word.

use super::super::ScanState;
use super::NameCandidate;
use super::context_cues::{ContextCues, context_cues, is_eponym, is_near_code, org_cue};
use super::features::Feature;
use super::language::{is_foreign_text, is_other_language, is_other_word_at};
use super::lexicon_strength::{first_name_score, is_foreign_word, last_name_score};
use super::organisations::{company_form, context_feature};
use super::person_cues::PersonCue;
use super::software::{described, identifier, technical};
use super::weights::NameModel;
use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordList, words};

/// What the lexicon says of a word.
struct WordFacts {
    token: WordToken,
    given: i32,
    family: i32,
    unknown: bool,
    plain: bool,
    short_capitals: bool,
}

impl WordFacts {
    fn of(token: WordToken) -> Self {
        Self {
            token,
            given: first_name_score(&token),
            family: last_name_score(&token),
            unknown: is_foreign_word(&token),
            plain: token.has(COMMON | WORD),
            short_capitals: token.shape == TokenShape::Upper && token.len() <= 4,
        }
    }

    fn is_unknown_brand(&self) -> bool {
        self.token.shape == TokenShape::Camel && self.token.class == 0
    }

    /// A first name and no English word.
    const fn is_given(&self) -> bool {
        self.given >= 85
    }
}

/// A word with its place in the text and what surrounds it.
struct WordInText<'a, 't> {
    scan: &'a ScanState<'t>,
    i: usize,
    word: &'a WordFacts,
    cues: &'a ContextCues,
}

/// The candidate of one word; `None` for a word that is not a name whatever surrounds it.
pub(super) fn word_candidate(scan: &ScanState<'_>, i: usize) -> Option<NameCandidate> {
    let word = WordFacts::of(scan.list()[i]);
    // A common word that begins a sentence: by far the most frequent case.
    let titled = i > 0 && scan.list()[i - 1].has(HONORIFIC);
    let named = word.given.max(word.family) > 0
        || word.token.has(PLACE | REGION | ORG)
        || word.token.shape == TokenShape::Camel
        || titled;
    if !named && org_cue(scan, i, i) < 2 {
        return None;
    }
    let cues = context_cues(scan, i, i);
    if is_other_than_name(scan, i, &word) {
        return None;
    }
    let common = is_other_word_at(scan, i);
    let other = is_doubtful_abroad(&word, common, &cues) && is_other_language(scan, i, i);
    if other && common {
        return None;
    }
    let at = WordInText { scan, i, word: &word, cues: &cues };
    let mut candidate = NameCandidate::new(NameModel::Word, i, i);
    let person = person_feature(&word);
    let place_kind = place_feature(scan, &word);
    let shape = [
        person,
        place_kind,
        opening_feature(&cues, person),
        word.short_capitals.then_some(Feature::ShortCapitals),
        (cues.shouted && !word.is_given()).then_some(Feature::Shouted),
        (word.token.has(NRP) && !word.token.has(FIRST_TOP)).then_some(Feature::Nationality),
        word.token.has(TECH).then_some(Feature::SoftwareTerm),
    ];
    candidate.extend(scan, shape);
    candidate.extend(scan, person_cue_features(&at, place_kind.is_some()));
    if cues.place_cue && !cues.honorific {
        candidate.extend(scan, place_cue_features(&at, place_kind.is_some()));
    }
    candidate.extend(scan, organization_features(&at, place_kind));
    candidate.extend(scan, label_features(&word, &cues));
    if other {
        candidate.add(scan, Feature::OtherLanguage);
    }
    look_at_passage(&at, &mut candidate);
    Some(candidate).filter(|c| c.scores.best() > 0)
}

/// Whether in a text of another language the word alone is not evidence: German writes every noun with a capital, and
/// the lexicon has few of any other language's words. A given name, a country, a town behind `in`, or a cue is.
fn is_doubtful_abroad(word: &WordFacts, common: bool, cues: &ContextCues) -> bool {
    let token = &word.token;
    let is_place = token.has(REGION) || token.has(PLACE) && cues.place_cue && !word.plain;
    let named = if common { token.has(REGION) && cues.place_cue } else { word.is_given() || is_place };
    // `Fehler: `: a colon behind any word.
    let announced = |cue: PersonCue| cue.is_strong() && (cue != PersonCue(Feature::Speaker) || word.given >= 45);
    let cued = cues.is_personal() || cues.person.is_some_and(announced) && !common;
    !named && !cued
}

/// A word in backticks, a company form, an identifier.
fn is_other_than_name(scan: &ScanState<'_>, i: usize, word: &WordFacts) -> bool {
    let token = &word.token;
    let ticked = scan.byte_before(token.start()) == b'`' && scan.byte_at(token.end()) == b'`';
    let form = token.has(ORG_SUFFIX) && !token.has(FIRST_TOP);
    let code = identifier(scan, token) || word.is_unknown_brand() && described(scan, i);
    ticked || form || code && company_form(scan, token.end()).is_none()
}

/// What kind of personal name the word is.
fn person_feature(word: &WordFacts) -> Option<Feature> {
    match (word.given, word.family) {
        (100, _) => Some(Feature::GivenTop),
        (85.., _) if word.token.len() >= 4 => Some(Feature::Given),
        (85.., _) => Some(Feature::GivenShort),
        (60.., _) => Some(Feature::GivenOrElse),
        (45.., _) => Some(Feature::GivenOrWord),
        (_, 75..) => Some(Feature::Family),
        (_, 60..) => Some(Feature::FamilyOrElse),
        (_, 45..) if word.unknown => Some(Feature::UnknownWord),
        (_, 45..) => Some(Feature::FamilyOrWord),
        (20.., _) => Some(Feature::GivenOrCommonWord),
        (_, 25..) => Some(Feature::FamilyOrCommonWord),
        _ => None,
    }
}

/// What kind of place the word is.
fn place_feature(scan: &ScanState<'_>, word: &WordFacts) -> Option<Feature> {
    let token = &word.token;
    let town = token.has(PLACE) && !token.has(STOP | TECH | MONTH | DAY | NRP);
    if word.short_capitals {
        None
    } else if token.has(REGION) {
        Some(match (token.has(FIRST_TOP), word.plain) {
            (_, true) => Feature::RegionOrWord,
            (true, _) => Feature::RegionOrGiven,
            _ => Feature::Region,
        })
    } else if town {
        Some(match (word.plain, token.has(FIRST | LAST)) {
            (true, _) => Feature::TownOrWord,
            (_, true) => Feature::TownOrName,
            _ => Feature::Town,
        })
    } else {
        (word.unknown && has_town_suffix(scan.word(token))).then_some(Feature::TownSuffix)
    }
}

/// A doubtful word where any word has a capital.
fn opening_feature(cues: &ContextCues, person: Option<Feature>) -> Option<Feature> {
    use Feature::{Family, GivenOrElse, GivenOrWord, UnknownWord};
    let doubtful = matches!(person, Some(GivenOrElse | GivenOrWord | Family | UnknownWord));
    (cues.opening && doubtful).then_some(Feature::SentenceStart)
}

/// The words around that announce a person.
fn person_cue_features(at: &WordInText<'_, '_>, place: bool) -> [Option<Feature>; 2] {
    let WordInText { scan, i, word, cues } = *at;
    if cues.honorific {
        return [Some(Feature::Honorific), None];
    }
    // `Hi Claude`, `Jenkins said`: on its own more likely the software.
    let (Some(cue), false) = (cues.person, word.token.has(TECH)) else { return [None, None] };
    let nothing = word.given == 0 && word.family == 0;
    if cue.is_own() && (cues.code || word.token.has(STOP) || nothing && !place) || nothing && !cue.is_own() {
        return [None, None];
    }
    let doubt = if cue.is_own() && place && (nothing || word.token.has(REGION)) {
        Some(Feature::OwnRelationPlace)
    } else if cue.announces() && word.unknown && !cues.code && !is_keyed(scan, i) {
        Some(Feature::AnnouncedUnknown)
    } else {
        (!cue.is_strong() && word.unknown).then_some(Feature::WeakCueUnknown)
    };
    [Some(cue.0), doubt]
}

/// `in`, `from` and similar before the word.
fn place_cue_features(at: &WordInText<'_, '_>, place: bool) -> [Option<Feature>; 2] {
    let WordInText { scan, i, word, cues } = *at;
    let token = &word.token;
    let may_be_town = (word.unknown || word.family >= 60 && !word.plain)
        && (token.shape == TokenShape::Title || word.unknown && settles(scan, i))
        && !cues.shouted
        && token.len() > 3;
    let kind = if place {
        Some(Feature::PlaceCueKnown)
    } else if !may_be_town {
        None
    } else if cues.code || is_foreign_text(scan, i, i) {
        Some(Feature::PlaceCueDoubtful)
    } else {
        Some(Feature::PlaceCueUnknown)
    };
    [kind, (!word.is_given()).then_some(Feature::PlaceCue)]
}

/// The features that suggest an organisation.
fn organization_features(at: &WordInText<'_, '_>, place: Option<Feature>) -> [Option<Feature>; 4] {
    let WordInText { scan, i, word, cues } = *at;
    let token = &word.token;
    let listed = token.has(ORG) && !(token.has(TECH) && cues.org == 0) && !is_model_name(scan, i);
    let brand = word.is_unknown_brand() && token.len() >= 6 && !cues.code;
    let brand = brand.then_some(if cues.org > 0 { Feature::BrandShapeHint } else { Feature::BrandShape });
    // A known town remains one: `the office in`, `moved from`.
    let town = match place {
        Some(Feature::Region | Feature::RegionOrGiven | Feature::Town | Feature::TownOrName) => true,
        Some(Feature::RegionOrWord) => cues.place_cue,
        _ => false,
    };
    let settled = town && (cues.place_cue || cues.org < 2);
    let context = if word.is_given() || settled { None } else { context_feature(&[*token], cues) };
    let hint = cues.org == 1 && (word.unknown || word.family >= 45 && !word.plain);
    // `at Solarlist`: an organisation rather than an unknown town.
    let at = || cues.at && cues.place_cue && word.unknown && !cues.code && scan.near_word(i, &["at"], 1, 0);
    let context = context.or_else(|| hint.then_some(Feature::OrganizationHint));
    let context = context.or_else(|| at().then_some(Feature::AtUnknown));
    let form = company_form(scan, token.end()).is_some() && !token.has(STOP | JOB);
    [listed.then_some(Feature::KnownOrganization), brand, context, form.then_some(Feature::CompanyForm)]
}

/// A label before the word, or code around it.
fn label_features(word: &WordFacts, cues: &ContextCues) -> [Option<Feature>; 1] {
    let may_be_place = word.unknown || word.token.has(PLACE | REGION) || word.family > 0;
    [match (cues.labelled, cues.code) {
        (true, _) => (cues.place_cue && may_be_place).then_some(Feature::PlaceLabel),
        (false, true) if word.is_given() => Some(Feature::CodeGiven),
        (false, true) => Some(Feature::Code),
        (false, false) => None,
    }]
}

/// What the passage says against a name. Costly, and therefore only asked where the word itself suggests one.
fn look_at_passage(at: &WordInText<'_, '_>, candidate: &mut NameCandidate) {
    let WordInText { scan, i, word, cues } = *at;
    const SUGGESTED: i16 = 50;
    const DOUBTFUL: i16 = 60;
    let sure = word.given == 100 || word.token.has(REGION) && !word.short_capitals;
    if candidate.scores.best() >= SUGGESTED && !sure && !cues.is_personal() && technical(scan, i) {
        candidate.extend(scan, software_features(scan, i, word, cues));
    }
    if candidate.scores.person.max(candidate.scores.place) >= SUGGESTED && !cues.honorific && is_eponym(scan, i) {
        candidate.add(scan, Feature::Eponym);
    }
    if sure || !(SUGGESTED..DOUBTFUL).contains(&candidate.scores.best()) {
        return;
    }
    let cued = cues.honorific || cues.labelled || cues.person.is_some() || cues.place_cue;
    if (!cued || word.unknown) && is_near_code(scan, word.token.start()) {
        candidate.add(scan, Feature::NearCode);
    } else if !cued && is_foreign_text(scan, i, i) {
        candidate.add(scan, Feature::ForeignText);
    }
}

/// The features of a word in a text about software.
fn software_features(scan: &ScanState<'_>, i: usize, word: &WordFacts, cues: &ContextCues) -> [Option<Feature>; 2] {
    let token = &word.token;
    // Tools also tell, ask and say; a word joined to capitals is the name of a symbol or a register.
    let row = token.shape == TokenShape::Upper && i > 0 && scan.list()[i - 1].shape == TokenShape::Upper;
    let strong = cues.person.is_some_and(PersonCue::is_strong);
    let cued = cues.labelled || cues.person.is_some() || cues.place_cue;
    let kind = if row || token.shape == TokenShape::Camel && !token.has(FIRST) {
        Some(Feature::SoftwareSymbol)
    } else if !word.is_given() && !strong {
        Some(Feature::SoftwareText)
    } else {
        (!cued).then_some(Feature::SoftwareGiven)
    };
    [kind, (cues.org == 0).then_some(Feature::SoftwareNoOrganization)]
}

/// Suffixes of towns that surnames rarely have.
fn has_town_suffix(word: &str) -> bool {
    static TOWN_SUFFIXES: WordList = WordList::new(|| words("town_suffixes"));
    word.len() >= 7 && TOWN_SUFFIXES.iter().any(|end| word.ends_with(end))
}

/// `lives in PUNKAHARJU`, `I am in`: a verb of residence or movement, with the word in capitals.
fn settles(scan: &ScanState<'_>, i: usize) -> bool {
    let token = &scan.list()[i];
    let before = scan.list().get(i.saturating_sub(3)..i).unwrap_or_default();
    token.shape == TokenShape::Upper
        && (before.iter().any(|t| t.has(LIVE_CUE) && t.shape == TokenShape::Lower)
            || scan.near_word(i, &["m", "am", "originally"], 3, 0) && !scan.near_word(i, &["all"], 3, 0))
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
