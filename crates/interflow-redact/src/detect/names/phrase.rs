//! The features of a run of several capitalized words.

use smallvec::SmallVec;

use super::super::{ScanState, address};
use super::NameCandidate;
use super::context_cues::{ContextCues, context_cues};
use super::features::Feature;
use super::language::{is_foreign_text, is_other_language, is_other_word, is_other_word_at};
use super::lexicon_strength::{first_name_score, is_foreign_word, last_name_score};
use super::organisations::{company_form, context_feature, organisation};
use super::person_cues::PersonCue;
use super::run_bounds::{has_clean_end, is_initial};
use super::software::technical;
use super::weights::NameModel;
use super::word::word_candidate;
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};

/// The candidate of the run `first..=last`, possibly of a part of it.
pub(super) fn classify(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let last = (first..=last).rev().find(|at| has_clean_end(scan, &list[*at]))?;
    if is_initial(&list[last]) && last == first {
        return None;
    }
    let run = &list[first..=last];
    if run.iter().any(|t| t.has(ORG_SUFFIX | ORG_WORD | ORG))
        && let Some(found) = organisation(scan, first, last, &context_cues(scan, first, last))
    {
        return Some(found);
    }
    if let Some(place) = compass_name(scan, first, last) {
        return Some(place);
    }
    let from = skip_words_of_sentence(scan, first, last);
    let named = first_name_score(&list[from]) >= 45 || from == last && last_name_score(&list[from]) >= 75;
    if from > first && !named {
        return common_word_phrase(scan, first, last);
    }
    match trim_to_name(scan, from, last) {
        last if last == from => word_candidate(scan, from),
        last => phrase_candidate(scan, from, last),
    }
}

/// A profession or a common word before a first name belongs to the sentence: `Producer Amanda Sultygov`.
fn skip_words_of_sentence(scan: &ScanState<'_>, first: usize, last: usize) -> usize {
    let list = scan.list();
    let named =
        list[first].has(FIRST) && !list[first].has(STOP | TECH | JOB | RELATION) && last_name_score(&list[last]) >= 75;
    let of_sentence = |t: &WordToken| {
        first_name_score(t) < 45
            && (t.topics & topic::ADDRESSED != 0 || t.has(COMMON | WORD | JOB | RELATION | STOP | DAY | MONTH | TECH))
            && !is_initial(t)
    };
    if named { first } else { (first..last).find(|at| !of_sentence(&list[*at])).unwrap_or(last) }
}

/// A run that continues into common words ends before them.
fn trim_to_name(scan: &ScanState<'_>, first: usize, last: usize) -> usize {
    let list = scan.list();
    let of_sentence = |at: &usize| {
        let t = &list[*at];
        let joined_name = matches!(scan.gap(at - 1), "-" | "'" | "’");
        let known_pair =
            *at == first + 1 && first_name_score(&list[first]) >= 85 && last_name_score(t) >= 25 && *at == last;
        !known_pair
            && t.has(COMMON | WORD | JOB | TECH | MONTH | DAY | ORG_WORD | STREET_SUFFIX)
            && last_name_score(t) < 45
            && first_name_score(t) < 45
            && !t.has(CREDENTIAL | PARTICLE)
            && !is_initial(t)
            && !joined_name
    };
    (first + 1..=last).find(of_sentence).map_or(last, |at| at - 1)
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
    let cue = || context_cues(scan, first, last).place_cue.then_some(Feature::PlaceCueForm);
    (named && !tail.has(TECH)).then(|| NameCandidate::form(scan, first, last, [Some(Feature::CompassTown), cue()]))
}

/// A run of English words: none, unless the context announces a name.
fn common_word_phrase(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let cues = context_cues(scan, first, last);
    let words = Some(Feature::CommonWords);
    if cues.honorific {
        let last = last.min(first + 1);
        return Some(NameCandidate::form(scan, first, last, [words, Some(Feature::Honorific)]));
    }
    let formed = company_form(scan, scan.list()[last].end()).map(|_| Feature::CompanyForm);
    let context = formed.or_else(|| context_feature(&scan.list()[first..=last], &cues))?;
    Some(NameCandidate::form(scan, first, last, [words, Some(context)]))
}

/// The words of a run without initials, titles behind the name and small words.
struct NameCore<'t> {
    first: usize,
    last: usize,
    words: SmallVec<[&'t WordToken; 8]>,
    given: i32,
    family: i32,
    unknown: usize,
}

impl<'t> NameCore<'t> {
    fn of(scan: &'t ScanState<'_>, first: usize, last: usize) -> Option<Self> {
        let counts = |t: &&WordToken| !is_initial(t) && !t.has(CREDENTIAL) && (t.is_capital() || !t.has(PARTICLE));
        let words: SmallVec<[&WordToken; 8]> = scan.list()[first..=last].iter().filter(counts).collect();
        let (head, tail) = (words.first()?, words.last()?);
        let family = if words.len() > 1 { last_name_score(tail).max(first_name_score(tail) - 15) } else { 0 };
        let unknown = words.iter().filter(|t| is_foreign_word(t)).count();
        Some(Self { first, last, given: first_name_score(head), family, unknown, words })
    }

    /// The feature for what the run is made of: the likelihoods of its first and last word.
    fn feature(&self, initial: bool, foreign_text: &dyn Fn() -> bool) -> Feature {
        let (head, tail) = (self.words[0], self.words[self.words.len() - 1]);
        let all_unknown = self.unknown == self.words.len();
        match (self.given, self.family) {
            _ if self.words.len() == 1 => match self.given.max(last_name_score(head)) {
                75.. => Feature::OneName,
                45.. => Feature::OneDoubtfulName,
                _ => Feature::OtherWords,
            },
            (85.., 45..) => Feature::GivenFamily,
            (85.., 20..) => Feature::GivenFamilyOrWord,
            (85.., _) => Feature::GivenOther,
            (45.., 60..) => Feature::DoubtfulGivenFamily,
            (45.., 45..) => Feature::DoubtfulGivenDoubtfulFamily,
            (20.., 75..) => Feature::FaintGivenFamily,
            (20.., 60..) => Feature::FaintGivenDoubtfulFamily,
            (_, 60..) if last_name_score(head) >= 60 && foreign_text() => Feature::FamilyFamilyForeignText,
            (_, 60..) if last_name_score(head) >= 60 => Feature::FamilyFamily,
            (_, 60..) if last_name_score(head) >= 45 || is_foreign_word(head) => Feature::UnknownFamily,
            // A first name that is also a computing term, written as a name.
            (40.., 45..) if is_foreign_word(tail) => Feature::SoftwareTermUnknown,
            _ if all_unknown && foreign_text() => Feature::UnknownsForeignText,
            _ if all_unknown && initial => Feature::UnknownsInitial,
            _ if all_unknown && self.words.len() <= 3 => Feature::Unknowns,
            _ if all_unknown => Feature::ManyUnknowns,
            _ if self.unknown > 0 && self.family >= 45 => Feature::SomeUnknown,
            _ => Feature::OtherWords,
        }
    }
}

/// The candidate of several words, with all features that its words and its context give it.
fn phrase_candidate(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let run = &scan.list()[first..=last];
    // `Mach-O`, `PAM-Modul`: names do not have a letter joined to them like this, nor capitals before a word.
    let joined = is_initial(&run[last - first]) && scan.gap(last - 1) == "-"
        || run[0].shape == TokenShape::Upper
            && run[0].len() > 1
            && scan.gap(first) == "-"
            && run[1].shape != TokenShape::Upper;
    if joined {
        return None;
    }
    let cues = context_cues(scan, first, last);
    let core = NameCore::of(scan, first, last)?;
    if core.given < 45 && !cues.honorific && !cues.labelled && has_german_genitive(scan, run) {
        return None;
    }
    let cued = cues.honorific
        || cues.labelled
        || cues.person.is_some_and(|c| c.is_strong() && (c != PersonCue(Feature::Speaker) || core.given >= 45));
    let placed = cues.place_cue && address::place_at(scan, first).is_some();
    // In a text of another language, only a given name with a word that is not common there is evidence by itself.
    let common = || (first..=last).any(|i| is_other_word_at(scan, i));
    if !cued && !placed && (core.given < 85 || common()) && is_other_language(scan, first, last) {
        return None;
    }
    let foreign_text = || cues.person.is_none() && !cues.honorific && is_foreign_text(scan, first, last);
    let made_of = core.feature(run.iter().any(is_initial), &foreign_text);
    let mut candidate = NameCandidate::new(NameModel::Phrase, first, last);
    candidate.add(scan, made_of);
    candidate.extend(scan, shape_features(scan, &core));
    let person = if cues.honorific { Some(Feature::Honorific) } else { cues.person.map(|c| c.0) };
    let code = (cues.code && !cues.labelled).then_some(Feature::Code);
    candidate.extend(scan, [person, code]);
    candidate.extend(scan, product_feature(scan, &core, &cues));
    candidate.extend(scan, place_features(scan, &core, &cues));
    candidate.extend(scan, organization_features(run, &core, &cues));
    Some(candidate)
}

/// `Liste der Namen`, `Informationen zu den Konten`: an article between two nouns. In names, `von` or `van` precedes it.
fn has_german_genitive(scan: &ScanState<'_>, run: &[WordToken]) -> bool {
    run.windows(2).any(|w| {
        matches!(scan.word(&w[1]), "der" | "den" | "des" | "zu" | "zum" | "zur")
            && w[0].is_capital()
            && (is_foreign_word(&w[0]) || is_other_word(&w[0]))
    })
}

/// Capitals, and words that names do not have. A known first name outweighs them.
fn shape_features(scan: &ScanState<'_>, core: &NameCore<'_>) -> [Option<Feature>; 2] {
    let capitals = scan.list()[core.first..=core.last].iter().all(|t| t.shape == TokenShape::Upper);
    let thing = core.words.iter().any(|t| t.has(TECH | ORG_WORD | STREET_SUFFIX | DAY));
    let weak = core.given < 85;
    [(capitals && weak).then_some(Feature::AllCapitals), (thing && weak).then_some(Feature::ThingWord)]
}

/// A product in a text about software: `Cyrus IMAPd`, `Borland C`.
fn product_feature(scan: &ScanState<'_>, core: &NameCore<'_>, cues: &ContextCues) -> [Option<Feature>; 1] {
    let tail = &scan.list()[core.last];
    let shaped = tail.shape == TokenShape::Camel && tail.class == 0 || is_initial(tail);
    let product = !cues.honorific && shaped && core.family < 45 && technical(scan, core.first);
    [product.then_some(Feature::Product)]
}

fn place_features(scan: &ScanState<'_>, core: &NameCore<'_>, cues: &ContextCues) -> [Option<Feature>; 3] {
    let beginning = address::place_at(scan, core.first).is_some_and(|e| e <= core.last);
    let beginning = match beginning && core.words.iter().any(|t| t.has(REGION)) {
        true => Some(Feature::BeginsWithRegion),
        false => beginning.then_some(Feature::BeginsWithTown),
    };
    if !cues.place_cue || cues.honorific {
        return [beginning, None, None];
    }
    let kind = match beginning {
        Some(_) => Some(Feature::PlaceCueKnown),
        None if core.unknown > 0 => Some(Feature::PlaceCueUnknown),
        None => Some(Feature::PlaceCueDoubtful),
    };
    [beginning, kind, (core.given < 85).then_some(Feature::PlaceCue)]
}

fn organization_features(run: &[WordToken], core: &NameCore<'_>, cues: &ContextCues) -> [Option<Feature>; 2] {
    let brand = run.iter().any(|t| t.shape == TokenShape::Camel && t.class == 0);
    let hint = cues.org == 1 && core.unknown + 1 >= core.words.len();
    let context = context_feature(run, cues).or_else(|| hint.then_some(Feature::OrganizationHint));
    [brand.then_some(Feature::BrandPart), context]
}
