//! Measures detection on labelled texts (presidio-research's JSON format): per type the exact and the overlapping spans
//! found, the characters covered, precision and F2; and false positives on texts without personal data.
//!
//! `accuracy LABELLED.json [--least PERCENT] [--show TYPE|FP|FP:kind] [--negatives FILE...] [--spans OUT.json]`

use std::collections::{BTreeMap, HashMap};

use interflow_redact::{Finding, Kind, Policy, RedactionSession, Redactor};
use serde::Deserialize;

#[derive(Deserialize)]
struct Item {
    full_text: String,
    spans: Vec<Label>,
}

#[derive(Deserialize)]
struct Label {
    entity_type: String,
    entity_value: String,
    start_position: usize,
    end_position: usize,
}

/// Whether a kind counts as a detection of a label's type.
fn matches_type(kind: Kind, label: &str) -> bool {
    use Kind::*;
    match label {
        // Labels of persons may include the title, or label title and name separately.
        "PERSON" => matches!(kind, Person | Title),
        "TITLE" | "PREFIX" => matches!(kind, Person | Title),
        "PASSPORT" => matches!(kind, Passport),
        "LOCATION" | "GPE" | "ADDRESS" | "STREET_ADDRESS" | "ZIP_CODE" => {
            matches!(kind, Location | StreetAddress | ZipCode | StateAbbreviation)
        }
        "ORGANIZATION" => matches!(kind, Organization),
        "CREDIT_CARD" => matches!(kind, CreditCard),
        "PHONE_NUMBER" => matches!(kind, Phone),
        "DATE_TIME" => matches!(kind, Date),
        "EMAIL_ADDRESS" => matches!(kind, Email),
        "US_SSN" => matches!(kind, Ssn | Itin),
        "IBAN_CODE" => matches!(kind, Iban),
        "DOMAIN_NAME" | "URL" => matches!(kind, Url | Domain),
        "US_DRIVER_LICENSE" => matches!(kind, DriversLicense),
        "IP_ADDRESS" => matches!(kind, IpAddress),
        "AGE" => matches!(kind, Age),
        "NRP" => matches!(kind, Nationality),
        "SECRET" => kind.is_secret(),
        _ => kind.as_str().eq_ignore_ascii_case(label) || Kind::from_name(label) == Some(kind),
    }
}

/// The label's type for a kind, if this data set has one.
fn label_of(kind: Kind) -> &'static str {
    use Kind::*;
    match kind {
        Person => "PERSON",
        Title => "TITLE",
        Passport => "PASSPORT",
        Location => "LOCATION",
        StreetAddress | ZipCode => "ADDRESS",
        Organization => "ORGANIZATION",
        CreditCard => "CREDIT_CARD",
        Phone => "PHONE_NUMBER",
        Date => "DATE_TIME",
        Email => "EMAIL_ADDRESS",
        Ssn | Itin => "US_SSN",
        Iban => "IBAN_CODE",
        Url | Domain => "DOMAIN_NAME",
        DriversLicense => "US_DRIVER_LICENSE",
        IpAddress => "IP_ADDRESS",
        Age => "AGE",
        Nationality => "NRP",
        other if other.is_secret() => "SECRET",
        other => other.as_str(),
    }
}

#[derive(Default)]
struct Score {
    labels: usize,
    exact: usize,
    overlap: usize,
    covered_anyhow: usize,
    chars: usize,
    chars_covered: usize,
    found: usize,
    found_true: usize,
    found_any: usize,
}

fn overlaps(a: (usize, usize), b: (usize, usize)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("the path of a labelled file");
    let rest: Vec<String> = args.collect();
    let value_of = |flag: &str| rest.iter().position(|a| a == flag).and_then(|i| rest.get(i + 1)).cloned();
    let least: u8 = value_of("--least").and_then(|v| v.parse().ok()).unwrap_or(50);
    let redactor = Redactor::new(Policy::parse(&format!("confidence = {least}")).expect("a policy"));
    let find = |text: &str| redactor.find(text, &RedactionSession::one_way()).to_vec();
    let show = value_of("--show");
    let items: Vec<Item> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a readable file")).expect("labelled texts");
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    let mut plain = Score::default();
    for item in &items {
        score(item, &find(&item.full_text), &mut scores, &mut plain, show.as_deref());
    }
    report(&scores, &plain);
    if let Some(out) = value_of("--spans") {
        write_spans(&out, &items, &find);
    }
    negatives(&rest, &find);
}

/// CPU time of this thread in seconds, which is less affected by load than wall time.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

/// Writes the findings of each text as `[kind, start, end]` in code points, with the time taken, for other scorers.
fn write_spans(out: &str, items: &[Item], find: &dyn Fn(&str) -> Vec<Finding>) {
    let begun = on_cpu();
    let all: Vec<Vec<Finding>> = items.iter().map(|i| find(&i.full_text)).collect();
    let seconds = on_cpu() - begun;
    let spans = |(item, found): (&Item, &Vec<Finding>)| {
        let chars = |byte: usize| item.full_text[..byte].chars().count();
        found.iter().map(|f| serde_json::json!([f.kind.as_str(), chars(f.start), chars(f.end)])).collect::<Vec<_>>()
    };
    let spans: Vec<_> = items.iter().zip(&all).map(spans).collect();
    let text = serde_json::json!({ "seconds": seconds, "spans": spans }).to_string();
    std::fs::write(out, text).expect("the file for spans can be written");
}

fn score(item: &Item, found: &[Finding], scores: &mut BTreeMap<String, Score>, plain: &mut Score, show: Option<&str>) {
    let chars: HashMap<usize, usize> = item
        .full_text
        .char_indices()
        .map(|(b, _)| b)
        .chain([item.full_text.len()])
        .enumerate()
        .map(|(c, b)| (b, c))
        .collect();
    let at = |f: &Finding| (chars[&f.start], chars[&f.end]);
    let mut cover = vec![false; chars.len()];
    found.iter().for_each(|f| cover[at(f).0..at(f).1].iter_mut().for_each(|c| *c = true));
    let mut labelled = vec![false; chars.len()];
    for label in &item.spans {
        let span = (label.start_position, label.end_position);
        labelled[span.0..span.1].iter_mut().for_each(|c| *c = true);
        let s = scores.entry(label.entity_type.clone()).or_default();
        s.labels += 1;
        let same = |f: &&Finding| matches_type(f.kind, &label.entity_type);
        s.exact += usize::from(found.iter().filter(same).any(|f| at(f) == span));
        let hit = found.iter().filter(same).any(|f| overlaps(at(f), span));
        s.overlap += usize::from(hit);
        let covered = cover[span.0..span.1].iter().filter(|c| **c).count();
        s.covered_anyhow += usize::from(covered * 2 >= span.1 - span.0);
        s.chars += span.1 - span.0;
        s.chars_covered += covered;
        plain.labels += 1;
        plain.overlap += usize::from(found.iter().any(|f| overlaps(at(f), span)));
        if show == Some(&label.entity_type) && !hit {
            println!("MISS {:?} in {:?}", label.entity_value, item.full_text);
        }
    }
    for f in found {
        let s = scores.entry(label_of(f.kind).to_owned()).or_default();
        let near: Vec<_> = item.spans.iter().filter(|l| overlaps(at(f), (l.start_position, l.end_position))).collect();
        let right = near.iter().any(|l| matches_type(f.kind, &l.entity_type));
        s.found += 1;
        s.found_true += usize::from(right);
        s.found_any += usize::from(!near.is_empty());
        plain.found += 1;
        plain.found_true += usize::from(!near.is_empty());
        if show == Some("FP") && near.is_empty() || show == Some(&format!("FP:{}", f.kind)) && !right {
            println!("EXTRA {} {} {:?} in {:?}", f.kind, f.confidence, &item.full_text[f.start..f.end], item.full_text);
        }
    }
    let word = |at: usize| item.full_text.chars().nth(at).is_some_and(char::is_alphanumeric);
    let chars_of = |set: &[bool]| set.iter().enumerate().filter(|(i, c)| **c && word(*i)).count();
    plain.chars += chars_of(&labelled);
    plain.chars_covered += chars_of(&labelled.iter().zip(&cover).map(|(a, b)| *a && *b).collect::<Vec<_>>());
    plain.exact += chars_of(&cover);
}

fn f2(precision: f64, recall: f64) -> f64 {
    if precision + recall == 0.0 { 0.0 } else { 5.0 * precision * recall / (4.0 * precision + recall) }
}

fn ratio(a: usize, b: usize) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn report(scores: &BTreeMap<String, Score>, plain: &Score) {
    println!(
        "{:<24}{:>7}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "type", "labels", "exact", "overlap", "covered", "chars", "found", "prec", "F2"
    );
    let mut all = Score::default();
    for (name, s) in scores {
        let (recall, precision) = (ratio(s.overlap, s.labels), ratio(s.found_true, s.found));
        println!(
            "{name:<24}{:>7}{:>8.3}{recall:>8.3}{:>8.3}{:>8.3}{:>8}{precision:>8.3}{:>8.3}",
            s.labels,
            ratio(s.exact, s.labels),
            ratio(s.covered_anyhow, s.labels),
            ratio(s.chars_covered, s.chars),
            s.found,
            f2(precision, recall)
        );
        all.labels += s.labels;
        all.exact += s.exact;
        all.overlap += s.overlap;
        all.found += s.found;
        all.found_true += s.found_true;
    }
    let (p, r) = (ratio(all.found_true, all.found), ratio(all.overlap, all.labels));
    println!(
        "all, type must match:    exact {:.3} recall {r:.3} precision {p:.3} F2 {:.3}",
        ratio(all.exact, all.labels),
        f2(p, r)
    );
    let (p, r) = (ratio(plain.found_true, plain.found), ratio(plain.overlap, plain.labels));
    println!("all, any type:           recall {r:.3} precision {p:.3} F2 {:.3}", f2(p, r));
    let (p, r) = (ratio(plain.chars_covered, plain.exact), ratio(plain.chars_covered, plain.chars));
    println!("characters:              recall {r:.3} precision {p:.3} F2 {:.3}", f2(p, r));
}

/// False positives per thousand words of texts without personal data.
fn negatives(args: &[String], find: &dyn Fn(&str) -> Vec<Finding>) {
    let Some(from) = args.iter().position(|a| a == "--negatives") else { return };
    let (mut words, mut hits) = (0, 0);
    for path in &args[from + 1..] {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let found = find(&text);
        let n = text.split_whitespace().count();
        println!("{path}: {} in {n} words ({:.2} per 1,000)", found.len(), ratio(found.len() * 1000, n));
        for f in found.iter().take(60) {
            let line = text[..f.start].rfind('\n').map_or(0, |i| i + 1);
            let end = text[f.end..].find('\n').map_or(text.len(), |i| f.end + i);
            println!(
                "    {} {} {:?}  <- {:.140}",
                f.kind,
                f.confidence,
                &text[f.start..f.end],
                &text[line..end].trim()
            );
        }
        words += n;
        hits += found.len();
    }
    println!("negatives: {:.3} false positives per 1,000 words", ratio(hits * 1000, words));
}
