//! Organisations by their form: firms named after people, company forms, institutions `of` something.

use std::sync::LazyLock;

use super::super::{ScanState, number_context};
use super::NameCandidate;
use super::context_cues::{ContextCues, DEFINED, context_cues};
use super::features::Feature;
use super::language::is_other_language;
use super::lexicon_strength::{first_name_score, is_foreign_word, last_name_score};
use super::person_cues::PersonCue;
use super::run_bounds::{has_clean_end, is_initial, run_end};
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordList, WordSet, words};

/// Maximum number of partners in a firm's name.
const MAX_PARTNERS: usize = 12;

/// A candidate of this form, possibly with a word of business nearby.
fn formed(scan: &ScanState<'_>, first: usize, last: usize, form: Feature, business: bool) -> NameCandidate {
    NameCandidate::form(scan, first, last, [Some(form), business.then_some(Feature::BusinessNearby)])
}

/// `Smith, Jones and Brown`, `Ricci & Bauer`, `Lopez-Garcia`, if one begins at token `i`.
pub(super) fn partnership(scan: &ScanState<'_>, i: usize) -> Option<NameCandidate> {
    let mut last = partner(scan, i)?;
    let mut heads = [i; MAX_PARTNERS];
    let mut count = 1;
    let mut listed = false;
    loop {
        let (next, closing) = match scan.gap(last) {
            ", " => {
                let and = scan.token(last + 1).is_some_and(|t| scan.word(t) == "and") && scan.gap(last + 1) == " ";
                (if and { last + 2 } else { last + 1 }, and)
            }
            " & " => (last + 1, true),
            " " if listed && scan.token(last + 1).is_some_and(|t| scan.word(t) == "and") => (last + 2, true),
            _ => break,
        };
        let Some(end) = partner(scan, next).filter(|_| count < MAX_PARTNERS) else { break };
        listed = true;
        heads[count] = next;
        count += 1;
        let ampersand = scan.gap(next - 1) == " & ";
        last = end;
        if closing {
            return join_partners(scan, &heads[..count], last, ampersand);
        }
    }
    double_name(scan, i, partner(scan, i)?)
}

/// Maximum number of parts of a hyphenated family name.
const MAX_NAME_PARTS: usize = 4;

/// The last token of one family name: `Smith`, `O'Neil`, `Lopez-Garcia`.
fn partner(scan: &ScanState<'_>, i: usize) -> Option<usize> {
    let mut at = i;
    let token = scan.token(at)?;
    if token.shape == TokenShape::Upper && token.len() == 1 && matches!(scan.gap(at), "'" | "’") {
        at += 1;
    }
    if !scan.token(at).is_some_and(may_be_family_name) {
        return None;
    }
    while at < i + MAX_NAME_PARTS && scan.gap(at) == "-" && scan.token(at + 1).is_some_and(may_be_family_name) {
        at += 1;
    }
    Some(at)
}

/// Whether the token can be one of the partners: a family name, and nothing that only looks like one.
fn may_be_family_name(token: &WordToken) -> bool {
    matches!(token.shape, TokenShape::Title | TokenShape::Camel)
        && token.len() >= 2
        && !token.has(STOP | MONTH | DAY | NRP | HONORIFIC | TECH | ORG_SUFFIX | JOB | UNIT)
        && last_name_score(token) > 0
}

/// Classifies names joined by `and` or `&`.
fn join_partners(scan: &ScanState<'_>, heads: &[usize], last: usize, ampersand: bool) -> Option<NameCandidate> {
    let list = scan.list();
    let first = *heads.first()?;
    let (last, suffixed) = extend_to_company_form(scan, last);
    let goes_on = scan.gap(last) == " " && scan.token(last + 1).is_some_and(|t| t.is_capital() && !t.has(STOP));
    let begun =
        first > 0 && scan.gap_before(first) == " " && list[first - 1].is_capital() && !list[first - 1].has(STOP | JOB);
    if goes_on || begun || !has_clean_end(scan, &list[last]) || heads.len() == 2 && !ampersand {
        return None;
    }
    let count = |f: &dyn Fn(&WordToken) -> bool| heads.iter().filter(|h| f(&list[**h])).count();
    let called = count(&|t| t.has(FIRST_TOP) || first_name_score(t) >= 85 && last_name_score(t) < 75);
    let towns = count(&|t| t.has(PLACE | REGION) && !t.has(LAST_TOP));
    let names = count(&|t| !t.has(COMMON | WORD) && (t.has(LAST) || t.shape != TokenShape::Title) || t.has(LAST_TOP));
    let around = context_cues(scan, first, last);
    if suffixed {
        return Some(NameCandidate::form(scan, first, last, [Some(Feature::CompanySuffix)]));
    }
    let people = around.honorific || around.announces_name() || has_people_cue(scan, first, last);
    let many = heads.len() > 4 && around.org < 2;
    if called >= 2 && called * 2 >= heads.len() || many || towns >= 2 || people || around.code && !around.labelled {
        return None;
    }
    let unlisted = names == 0 && around.org < 3;
    (!unlisted).then(|| formed(scan, first, last, Feature::Partnership, around.org > 0))
}

/// `the founders: A, B and C`, `A, B and C were`: people, not a firm.
fn has_people_cue(scan: &ScanState<'_>, first: usize, last: usize) -> bool {
    let plural =
        ["were", "are", "have", "all", "both", "met", "went", "agree", "say", "agreed", "told", "said", "testified"];
    let listed = scan.gap_before(first).contains([':', '(']);
    let before = first.checked_sub(1).and_then(|p| scan.token(p));
    let company = before.is_some_and(|t| t.has(ORG_CUE | ORG_SUFFIX) || t.topics & topic::ORG_NEAR != 0);
    let relatives = scan.near_word(
        first,
        &[
            "founders", "authors", "members", "children", "friends", "students", "brothers", "between", "among",
            "messrs",
        ],
        2,
        0,
    );
    scan.gap(last) == " " && scan.near_word(last, &plural, 0, 1) || listed && !company || relatives
}

/// A separate `Lopez-Garcia`: companies have such names; a person has a first name, a title or a verb.
fn double_name(scan: &ScanState<'_>, i: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let hyphens = (i..last).filter(|n| scan.gap(*n) == "-").count();
    if hyphens != 1 || run_end(scan, i) != last || !has_clean_end(scan, &list[last]) {
        return None;
    }
    let (a, b) = (&list[last - 1], &list[last]);
    let before = i.checked_sub(1).map(|p| &list[p]);
    let begun = before.is_some_and(|t| {
        scan.gap_before(i) == " " && (t.has(PARTICLE) && !t.has(STOP | PREP) || t.is_capital() && !t.has(STOP))
            || scan.gap_before(i).starts_with(". ") && t.len() == 1
            || scan.gap_before(i).trim().is_empty() && t.has(HONORIFIC | NAME_CUE)
    });
    let both_first = first_name_score(a) >= 60 && first_name_score(b) >= 60 && !(a.has(LAST_TOP) && b.has(LAST_TOP));
    let words = a.has(COMMON | WORD) && !a.has(LAST_TOP) || b.has(COMMON | WORD) && !b.has(LAST_TOP);
    let named = a.has(LAST) && !a.has(COMMON) || b.has(LAST) && !b.has(COMMON);
    let towns = a.has(PLACE | REGION) && b.has(PLACE | REGION) && !a.has(LAST_TOP) && !b.has(LAST_TOP);
    let around = context_cues(scan, i, last);
    let personal = around.honorific || around.person.is_some_and(PersonCue::is_strong);
    if begun || both_first || personal || towns || around.code && !around.labelled {
        return None;
    }
    let bare = around.org == 0 && (words || !named || is_other_language(scan, i, last));
    (!bare).then(|| formed(scan, i, last, Feature::DoubleName, around.org > 0))
}

/// The firm's name including `LLP`, `Ltd` or `Group`; whether there was such a word.
fn extend_to_company_form(scan: &ScanState<'_>, last: usize) -> (usize, bool) {
    let form = |t: &WordToken| t.is_capital() && t.has(ORG_SUFFIX | ORG_WORD);
    let mut end = last;
    while matches!(scan.gap(end), " " | ", ") && scan.token(end + 1).is_some_and(form) && end < last + 3 {
        end += 1;
    }
    (end, end > last)
}

/// Institutions that are named `of` something, also in other languages.
static ORGANISATION_NOUNS: WordSet = WordSet::new(|| words("organisation_nouns"));

/// The end of the institution whose noun ends the run `first..=last`: `Bank of Norwood`, `Padua Chamber of Commerce`.
pub(super) fn organisation_of(scan: &ScanState<'_>, first: usize, last: usize) -> Option<NameCandidate> {
    let list = scan.list();
    let kind = &list[last];
    let linked = |t: &WordToken| t.has(PARTICLE | PREP | STOP) && t.len() <= 5;
    if kind.shape != TokenShape::Title
        || scan.gap(last) != " "
        || !scan.token(last + 1).is_some_and(linked)
        || !ORGANISATION_NOUNS.contains(scan.word(kind).to_lowercase().as_str())
    {
        return None;
    }
    let mut at = last + 1;
    let link = scan.word(scan.token(at)?).to_lowercase();
    if !matches!(link.as_str(), "of" | "for" | "de" | "di" | "du" | "do" | "da" | "des" | "della" | "degli" | "für") {
        return None;
    }
    at += 1;
    while scan.gap(at - 1) == " "
        && scan.token(at).is_some_and(|t| t.has(STOP | PARTICLE) && t.shape == TokenShape::Lower)
    {
        at += 1;
    }
    let named =
        scan.token(at).filter(|t| t.is_capital() && scan.gap(at - 1) == " " && t.len() > 1 && at <= last + 3)?;
    // `Court of the`, `Office of the CEO`: the institution's own name follows.
    if named.has(TECH | JOB | HONORIFIC) || link == "for" && named.has(NRP) {
        return None;
    }
    let mut end = run_end(scan, at);
    // `Health and Human Services`
    while scan.gap(end) == " "
        && scan.token(end + 1).is_some_and(|t| scan.word(t) == "and")
        && scan.gap(end + 1) == " "
        && scan
            .token(end + 2)
            .is_some_and(|t| t.is_capital() && t.has(COMMON | WORD | ORG_WORD) && !t.has(STOP | FIRST_TOP))
        && list[end].has(COMMON | WORD)
    {
        end = run_end(scan, end + 2);
    }
    while end > at && !has_clean_end(scan, &list[end]) {
        end -= 1;
    }
    let mut from = first;
    while from < last && list[from].has(STOP) {
        from += 1;
    }
    let around = context_cues(scan, from, end);
    (has_clean_end(scan, &list[end]) && (!around.code || around.labelled))
        .then(|| NameCandidate::form(scan, from, end, [Some(Feature::InstitutionOf)]))
}

/// Company forms with full stops, slashes or small words.
static COMPANY_FORMS: WordList = WordList::new(|| words("company_forms"));

/// The forms by their second byte, so that few are compared at each name.
static FORMS_BY_SECOND_BYTE: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| {
    let mut buckets = vec![Vec::new(); 128];
    COMPANY_FORMS.iter().for_each(|f| buckets[usize::from(f.as_bytes()[1])].push(*f));
    buckets
});

/// The end of a company form after a name.
pub(super) fn company_form(scan: &ScanState<'_>, end: usize) -> Option<usize> {
    let rest = scan.text.get(end..)?;
    let [first @ (b' ' | b','), second, ..] = *rest.as_bytes() else { return None };
    if !(second == b' ' || second == b'&' || second.is_ascii_uppercase() || b"asedokvpy".contains(&second)) {
        return None;
    }
    let bucket = FORMS_BY_SECOND_BYTE.get(usize::from(second))?;
    let fits = |f: &&&str| {
        f.as_bytes()[0] == first
            && rest.starts_with(**f)
            && (f.ends_with('.') || rest.as_bytes().get(f.len()).is_none_or(|b| !b.is_ascii_alphanumeric()))
    };
    let form = bucket.iter().filter(fits).max_by_key(|f| f.len())?;
    // A final full stop that also ends the sentence belongs to the sentence.
    Some(end + form.len())
}

/// Short company forms that rarely mean anything else in this spelling.
static HELD_FORMS: WordSet = WordSet::new(|| words("held_forms"));

/// Forms that rarely mean anything else in this spelling.
fn is_held_word(word: &str) -> bool {
    match word.len() {
        0 | 1 => false,
        2 | 3 => word.bytes().all(|b| b.is_ascii_uppercase()) || HELD_FORMS.contains(word),
        _ => !matches!(word, "Cooperative" | "Syndicate" | "Conglomerate" | "Coop"),
    }
}

/// A run that contains a company form or an institution's noun.
pub(super) fn organisation(
    scan: &ScanState<'_>,
    first: usize,
    last: usize,
    around: &ContextCues,
) -> Option<NameCandidate> {
    let list = scan.list();
    let words = &list[first..=last];
    if !words.iter().any(|t| t.has(ORG_SUFFIX | ORG_WORD | ORG)) {
        return None;
    }
    let apart = |at: usize| at > 0 && scan.gap(first + at - 1) != "-";
    let suffix = (0..words.len()).rev().find(|at| words[*at].has(ORG_SUFFIX) && words[*at].is_capital() && apart(*at));
    if let Some(at) = suffix.filter(|at| *at > 0 && is_held_word(scan.word(&words[*at]))) {
        let plain = words[..at].iter().all(|t| t.has(STOP | TECH | DAY | MONTH)) && around.org == 0;
        let loose = matches!(scan.word(&words[at]), "Group" | "Company" | "Holding" | "Limited" | "Co")
            && words[..at].iter().all(|t| t.has(COMMON | STOP | TECH));
        // `Calgary AB`, `Denver CO`: a province or state abbreviation.
        let coded = matches!(scan.word(&words[at]), "AB" | "CO" | "SC" | "PA" | "PC" | "SA" | "NSW")
            && words[at - 1].has(PLACE | REGION);
        let hex = words[at].len() == 2 && number_context::is_in_hex_pairs(scan, first + at);
        if !(hex || plain || coded || loose && around.org == 0 && (around.opening || at < 2)) {
            return Some(NameCandidate::form(scan, first, first + at, [Some(Feature::CompanySuffix)]));
        }
    }
    if words.len() < 2 || around.code && !around.labelled {
        return None;
    }
    let kind_at = words.iter().rposition(|t| t.has(ORG_WORD) && t.shape == TokenShape::Title);
    let spaced = (first..last).any(|n| scan.gap(n) != "-");
    if let Some(at) = kind_at.filter(|at| *at > 0 && spaced) {
        // German writes every noun with a capital: there an unknown word is not a name.
        let other = around.org == 0 && is_other_language(scan, first, last);
        let named = words.iter().any(|t| {
            t.marks & (COMMON | WORD | STOP | ORG_WORD | TECH) == 0 && !(other && is_foreign_word(t))
                || t.has(PLACE | REGION | LAST_TOP) && !t.has(STOP)
        });
        let person_first =
            first_name_score(&words[0]) >= 85 && at + 1 == words.len() && last_name_score(&words[at]) >= 45;
        // `State Farm Insurance`: common words, but not at the beginning of a sentence, or in the context of a company.
        let cued = around.org >= 2
            || words.len() >= 3 && !other && !around.opening && !words.iter().any(|t| t.has(STOP | TECH));
        if (named || cued) && !person_first && at + 1 >= words.len().saturating_sub(1) {
            return Some(formed(scan, first, last, Feature::Institution, around.org > 0));
        }
    }
    // `Google Cloud Storage`, `Managed Microsoft AD`: a product, unless the vendor is meant.
    let product = around.org == 0
        && words.iter().all(|t| t.has(TECH | COMMON | WORD | STOP) || t.shape == TokenShape::Upper)
        && words.iter().any(|t| t.has(ORG) && t.has(TECH));
    if !product && words.iter().any(|t| t.has(ORG)) && !words.iter().any(|t| first_name_score(t) >= 85) {
        return Some(NameCandidate::form(scan, first, last, [Some(Feature::KnownInRun)]));
    }
    None
}

/// `Faina D. Yefremova`, but not `Norwood L.L.C.`
fn has_middle_initial(words: &[WordToken]) -> bool {
    let [_, initial, last] = words else { return false };
    is_initial(initial) && last.len() > 1 && last.start() == initial.end() + 2
}

/// Whether an unknown or common run is an organisation because of its context.
pub(super) fn context_feature(words: &[WordToken], around: &ContextCues) -> Option<Feature> {
    let at_names = around.at && around.place_cue && words.len() > 1;
    let known_first = words.first().is_some_and(|t| first_name_score(t) >= 85) && words.len() > 1;
    if around.org < 2 && !at_names
        || known_first
        || has_middle_initial(words)
        || around.honorific
        || around.shouted && !around.labelled
        || around.code && !around.labelled
    {
        return None;
    }
    // `acquire JDBC`: capitals are as often a thing, unless a label or `at` precedes them.
    let introduced = around.labelled || around.place_cue;
    let brand = |t: &WordToken| {
        t.class == 0 && (t.shape == TokenShape::Camel || introduced && t.shape == TokenShape::Upper) && t.len() > 2
    };
    let strange = words.iter().any(|t| is_foreign_word(t) || around.org >= 3 && brand(t));
    let plain = words.iter().all(|t| t.has(STOP | JOB | DAY | MONTH | TECH | NRP));
    let placed = words.len() == 1 && words[0].has(REGION);
    match (strange, plain || placed) {
        (_, true) => None,
        (true, _) => Some(Feature::OrganizationContextUnknown),
        (false, _) if around.opening && !around.labelled && around.org < DEFINED => None,
        (false, _) if words.iter().any(|t| t.has(STOP | MONTH | DAY) || t.shape != TokenShape::Title) => None,
        (false, _) if around.org < 3 && !at_names || words.len() == 1 && !around.labelled && !around.at => None,
        _ => Some(Feature::OrganizationContext),
    }
}
