//! National ids made of digits only: length, grouping, check digit, and the words that identify them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::ScanState;
use super::digit_run::{DigitRun, NumberMatch};
use crate::Kind::{self, *};
use crate::detect::check_digits::{any, luhn, mod11, mod11_10, nir, verhoeff, weighted};
use crate::lexicon::topic;
use crate::word_lists;

/// The format of one country's id. Many nine- and eleven-digit numbers satisfy some country's check digit, so it is
/// taken for an id only with its own grouping or one of its words nearby.
struct IdentifierRule {
    kind: Kind,
    digits: usize,
    /// A grouping that is unique to this id, with its separators.
    grouping: Option<(&'static [usize], &'static [u8])>,
    check: fn(&[u8]) -> bool,
    /// The list of [`ID_WORDS`] that identifies it, in the languages of its country.
    words: &'static str,
}

/// The words of the ids, by name.
static ID_WORDS: LazyLock<HashMap<String, Vec<String>>> =
    LazyLock::new(|| word_lists::parse(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/national_ids.toml"))));

const fn rule(
    kind: Kind,
    digits: usize,
    grouping: Option<(&'static [usize], &'static [u8])>,
    check: fn(&[u8]) -> bool,
    words: &'static str,
) -> IdentifierRule {
    IdentifierRule { kind, digits, grouping, check, words }
}

static RULES: &[IdentifierRule] = &[
    rule(Cpf, 11, Some((&[3, 3, 3, 2], b".-")), mod11, "cpf"),
    rule(Cnpj, 14, Some((&[2, 3, 3, 4, 2], b"./-")), mod11, "cnpj"),
    rule(Nir, 15, Some((&[1, 2, 2, 2, 3, 3, 2], b" ")), |d| nir(&ascii(d)), "nir"),
    rule(Nhs, 10, Some((&[3, 3, 4], b"")), nhs, "nhs"),
    rule(Sin, 9, Some((&[3, 3, 3], b"- ")), |d| d[0] != 0 && d[0] != 8 && luhn(d), "sin"),
    rule(Tfn, 9, Some((&[3, 3, 3], b"")), |d| weighted(d, &[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11), "tfn"),
    rule(Abn, 11, Some((&[2, 3, 3, 3], b" ")), abn, "abn"),
    rule(Acn, 9, Some((&[3, 3, 3], b"")), acn, "acn"),
    rule(AuMedicare, 10, Some((&[4, 5, 1], b" ")), au_medicare, "au_medicare"),
    rule(Aadhaar, 12, Some((&[4, 4, 4], b" -")), |d| d[0] > 1 && verhoeff(d), "aadhaar"),
    rule(Pesel, 11, None, pesel, "pesel"),
    rule(Nip, 10, Some((&[3, 3, 2, 2], b"-")), nip, "nip"),
    rule(Personnummer, 10, Some((&[6, 4], b"-+")), personnummer, "personnummer"),
    rule(Personnummer, 12, Some((&[8, 4], b"-+")), |d| personnummer(&d[2..]), "personnummer"),
    rule(Fodselsnummer, 11, Some((&[6, 5], b"")), fodselsnummer, "fodselsnummer"),
    rule(Cpr, 10, Some((&[6, 4], b"")), birth_dmy, "cpr"),
    rule(Bsn, 9, None, bsn, "bsn"),
    rule(BeNationalNumber, 11, Some((&[2, 2, 2, 3, 2], b".-")), be_number, "be_national_number"),
    rule(SteuerId, 11, Some((&[2, 3, 3, 3], b"")), steuer_id, "steuer_id"),
    rule(Ahv, 13, Some((&[3, 4, 4, 2], b".")), ahv, "ahv"),
    rule(PartitaIva, 11, None, luhn, "partita_iva"),
    rule(PtNif, 9, None, pt_nif, "pt_nif"),
    rule(Rrn, 13, Some((&[6, 7], b"-")), rrn, "rrn"),
    rule(CnId, 18, None, cn_id, "cn_id"),
    rule(MyNumber, 12, Some((&[4, 4, 4], b"")), my_number, "my_number"),
    rule(ThId, 13, Some((&[1, 4, 5, 2, 1], b"- ")), th_id, "th_id"),
    rule(ZaId, 13, None, |d| birth_ymd(d) && d[10] < 2 && luhn(d), "za_id"),
    rule(Tckn, 11, None, tckn, "tckn"),
    rule(IlId, 9, None, luhn, "il_id"),
    rule(Egn, 10, None, egn, "egn"),
    rule(Cnp, 13, None, cnp, "cnp"),
    rule(Oib, 11, None, mod11_10, "oib"),
    rule(RodneCislo, 10, Some((&[6, 4], b"/")), |d| number(d).is_multiple_of(11), "rodne_cislo"),
    rule(RodneCislo, 9, Some((&[6, 3], b"/")), old_rodne_cislo, "rodne_cislo"),
    rule(Isikukood, 11, None, isikukood, "isikukood"),
    rule(Cuit, 11, Some((&[2, 8, 1], b"-")), cuit, "cuit"),
    rule(Rut, 9, Some((&[2, 3, 3, 1], b".-")), |d| rut_check(&d[..8]) == u32::from(d[8]), "rut"),
    rule(CompanyNumber, 10, Some((&[3, 2, 5], b"-")), kr_brn, "company_number"),
    rule(CompanyNumber, 10, Some((&[6, 4], b"-")), |d| d[2] > 1 && luhn(d), "company_number_organisationsnummer"),
    rule(CompanyNumber, 12, Some((&[4, 6, 2], b"/")), |d| matches!(two(d, 0), 19 | 20), "company_number_registration"),
    rule(CompanyNumber, 9, Some((&[3, 3, 3], b" ")), luhn, "company_number_siren"),
    rule(CompanyNumber, 14, Some((&[3, 3, 3, 5], b" ")), luhn, "company_number_siret"),
    rule(TaxNumber, 12, Some((&[3, 3, 3, 3], b"-")), any, "tax_number"),
    rule(TaxNumber, 9, Some((&[3, 3, 3], b"-")), any, "tax_number"),
    rule(TaxNumber, 10, Some((&[2, 3, 5], b"/")), any, "tax_number_steuernummer"),
    rule(TaxNumber, 11, Some((&[3, 3, 5], b"/")), any, "tax_number_steuernummer"),
    rule(TaxNumber, 10, None, any, "tax_number_utr"),
    rule(VatNumber, 10, None, |d| d[0] == 4, "vat_number"),
    rule(NationalId, 12, Some((&[4, 7, 1], b"-")), any, "national_id"),
    rule(NationalId, 11, None, any, "national_id_nin"),
    rule(DriversLicense, 12, Some((&[2, 2, 6, 2], b"-")), any, "drivers_license"),
    rule(Rut, 8, Some((&[1, 3, 3, 1], b".-")), |d| rut_check(&d[..7]) == u32::from(d[7]), "rut"),
    rule(Npi, 10, None, npi, "npi"),
    rule(BankRouting, 9, None, aba, "bank_routing"),
    rule(Ein, 9, Some((&[2, 7], b"-")), ein_prefix, "ein"),
    rule(Itin, 9, None, |d| d[0] == 9 && matches!(two(d, 3), 50..=65 | 70..=88 | 90..=92 | 94..=99), "itin"),
];

/// The id that begins at group `k`, if a rule matches.
pub(super) fn numeric_id(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let at = run.first + k;
    let digits: usize = (k..(k + 7).min(run.groups.len())).map(|i| run.group_len(i)).sum();
    if digits < 8 {
        return None;
    }
    let topics = scan.topics_near(at, 6, 3);
    let spoken = topics & topic::NATIONAL_ID != 0 && has_identity_cue(scan, at);
    let mut best: Option<NumberMatch> = None;
    let mut total = 0;
    // Several groupings of the same digits may fit: the most certain counts, and of equal ones the longest.
    for n in 1..=(run.groups.len() - k).min(7) {
        if n > 1 && matches!(run.separator_after(k + n - 2), b':' | b'(') {
            break;
        }
        total += run.group_len(k + n - 1);
        if total > 18 {
            break;
        }
        if total < 8 {
            continue;
        }
        let digits = run.digits(scan.bytes, k, n);
        for rule in RULES.iter().filter(|r| r.digits == digits.len() && scan.wants(r.kind)) {
            if !(rule.check)(&digits) {
                continue;
            }
            let named = scan.near_word(at, &ID_WORDS[rule.words], 6, 3);
            let Some(confidence) = confidence(rule, run, k, n, named, topics, spoken) else { continue };
            let better = |b: &NumberMatch| confidence > b.confidence || confidence == b.confidence && n > b.groups;
            if best.as_ref().is_none_or(better) {
                best = Some(NumberMatch::new(n, rule.kind, confidence));
            }
        }
    }
    best
}

fn confidence(
    rule: &IdentifierRule,
    run: &DigitRun,
    k: usize,
    n: usize,
    named: bool,
    topics: u32,
    spoken: bool,
) -> Option<u8> {
    let lengths = (k..k + n).map(|i| run.group_len(i));
    let grouped = rule.grouping.is_some_and(|(groups, seps)| {
        lengths.eq(groups.iter().copied()) && (k..k + n - 1).all(|i| seps.contains(&run.separator_after(i)))
    });
    let usual = n == 1 || grouped || rule.grouping.is_some_and(|(g, _)| g.len() == n);
    // Groupings that no other number in common use has, so that no word is needed.
    let distinct = grouped
        && (matches!(rule.kind, Cpf | Cnpj | Nir | Abn | Ahv | Personnummer | Rrn | ThId)
            || matches!(rule.kind, BeNationalNumber | Cuit | Rut | Aadhaar | AuMedicare));
    // More groups after it mean a longer number or a table, and beside these, which are grouped like a row of numbers,
    // so do others on either side.
    let before = k.checked_sub(1).map_or(0, |p| run.separator_after(p));
    let after = if k + n < run.groups.len() { run.separator_after(k + n - 1) } else { 0 };
    let row = matches!(rule.kind, Aadhaar | Abn) && (matches!(before, b' ' | b'-') || after == b' ');
    let whole = !row && matches!(after, 0 | b' ');
    match (named, distinct) {
        (true, _) if usual => Some(95),
        (true, _) => Some(70),
        (false, true) if whole => Some(75),
        (false, false) if rule.kind == Ein && grouped && whole && topics & topic::TAX != 0 => Some(85),
        (false, false) if n == 1 && spoken && rule.digits >= 10 && has_check(rule) => Some(60),
        _ => None,
    }
}

/// Whether a preceding word refers to a person's identity. `id` alone does not: orders, rows and objects have one, and
/// one number in ten passes some country's check digit.
fn has_identity_cue(scan: &ScanState<'_>, at: usize) -> bool {
    let before = scan.list().get(at.saturating_sub(4)..at).unwrap_or_default();
    before.iter().any(|t| {
        t.topics & topic::NATIONAL_ID != 0
            && t.shape != crate::text::token::TokenShape::Camel
            && !["id", "ids", "number"].iter().any(|w| scan.word(t).eq_ignore_ascii_case(w))
    })
}

fn has_check(rule: &IdentifierRule) -> bool {
    !std::ptr::fn_addr_eq(rule.check, any as fn(&[u8]) -> bool) && !matches!(rule.kind, Itin | Cpr | Ein)
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n, d| n * 10 + u64::from(*d))
}

fn two(digits: &[u8], at: usize) -> u64 {
    number(digits.get(at..at + 2).unwrap_or_default())
}

fn all_same(digits: &[u8]) -> bool {
    digits.windows(2).all(|w| w[0] == w[1])
}

fn is_month_and_day(d: &[u8], at: usize) -> bool {
    (1..=12).contains(&two(d, at)) && (1..=31).contains(&two(d, at + 2))
}

fn birth_ymd(d: &[u8]) -> bool {
    is_month_and_day(d, 2)
}

fn birth_dmy(d: &[u8]) -> bool {
    (1..=31).contains(&two(d, 0)) && (1..=12).contains(&two(d, 2))
}

fn ascii(digits: &[u8]) -> Vec<u8> {
    digits.iter().map(|d| d + b'0').collect()
}

/// Before 1954, the number had three digits behind the date, and no check digit; 50 is added to the month of women.
fn old_rodne_cislo(d: &[u8]) -> bool {
    two(d, 0) < 54 && (1..=12).contains(&(two(d, 2) % 50)) && (1..=31).contains(&two(d, 4))
}

fn nhs(d: &[u8]) -> bool {
    let check = 11 - weighted(d, &[10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11;
    !all_same(d) && check != 10 && check % 11 == u32::from(d[9])
}

fn abn(d: &[u8]) -> bool {
    // The first digit is reduced by one, which is ten with its weight.
    d[0] > 0 && (weighted(d, &[10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]) - 10).is_multiple_of(89)
}

fn acn(d: &[u8]) -> bool {
    (10 - weighted(d, &[8, 7, 6, 5, 4, 3, 2, 1]) % 10) % 10 == u32::from(d[8])
}

fn au_medicare(d: &[u8]) -> bool {
    matches!(d[0], 2..=6) && weighted(d, &[1, 3, 7, 9, 1, 3, 7, 9]) % 10 == u32::from(d[8])
}

fn pesel(d: &[u8]) -> bool {
    let check = (10 - weighted(d, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3]) % 10) % 10;
    // The month carries the century, in steps of 20.
    (1..=12).contains(&(two(d, 2) % 20)) && (1..=31).contains(&two(d, 4)) && check == u32::from(d[10])
}

fn nip(d: &[u8]) -> bool {
    weighted(d, &[6, 5, 7, 2, 3, 4, 5, 6, 7]) % 11 == u32::from(d[9])
}

fn personnummer(d: &[u8]) -> bool {
    // Coordination numbers, for people who are not registered, have 60 added to the day.
    (1..=12).contains(&two(d, 2)) && (1..=31).contains(&(two(d, 4) % 60)) && luhn(d)
}

fn fodselsnummer(d: &[u8]) -> bool {
    let check = |w: &[u32]| (11 - weighted(d, w) % 11) % 11;
    // D-numbers, for people without residence, have 40 added to the day.
    (1..=31).contains(&(two(d, 0) % 40))
        && check(&[3, 7, 6, 1, 8, 9, 4, 5, 2]) == u32::from(d[9])
        && check(&[5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) == u32::from(d[10])
}

fn bsn(d: &[u8]) -> bool {
    let sum = weighted(&d[..8], &[9, 8, 7, 6, 5, 4, 3, 2]) as i64 - i64::from(d[8]);
    !all_same(d) && sum % 11 == 0
}

fn be_number(d: &[u8]) -> bool {
    let (body, check) = (number(&d[..9]), two(d, 9));
    // For births from 2000 on, a 2 is put before the number.
    (1..=12).contains(&(two(d, 2) % 20)) && (97 - body % 97 == check || 97 - (2_000_000_000 + body) % 97 == check)
}

fn steuer_id(d: &[u8]) -> bool {
    let mut counts = [0u8; 10];
    d[..10].iter().for_each(|d| counts[usize::from(*d)] += 1);
    let repeated = counts.iter().filter(|c| **c > 1).count();
    // Among the first ten digits exactly one occurs more than once, at most three times.
    d[0] != 0 && repeated == 1 && counts.iter().all(|c| *c <= 3) && mod11_10(d)
}

fn ahv(d: &[u8]) -> bool {
    d.starts_with(&[7, 5, 6]) && (10 - weighted(d, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3]) % 10) % 10 == u32::from(d[12])
}

fn pt_nif(d: &[u8]) -> bool {
    let rest = weighted(d, &[9, 8, 7, 6, 5, 4, 3, 2]) % 11;
    // 4, and most of 7, are not issued.
    let issued = matches!(d[0], 1..=3 | 5 | 6 | 8 | 9) || matches!(two(d, 0), 45 | 70..=72 | 74 | 75 | 77..=79);
    issued && (if rest < 2 { 0 } else { 11 - rest }) == u32::from(d[8])
}

fn rrn(d: &[u8]) -> bool {
    // Since October 2020 all but the sex and the century of birth is random.
    let is_random = matches!(d[6], 3 | 4 | 7 | 8) && (201_001..500_000).contains(&number(&d[..6]));
    birth_ymd(d)
        && (is_random || (11 - weighted(d, &[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5]) % 11) % 10 == u32::from(d[12]))
}

/// China's check digit over seventeen digits (ISO 7064 MOD 11-2); the value ten is written `X`.
pub(super) fn cn_check(d: &[u8]) -> u32 {
    let rest = weighted(d, &[7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]) % 11;
    (12 - rest) % 11
}

fn cn_id(d: &[u8]) -> bool {
    matches!(number(&d[6..10]), 1900..=2099) && is_month_and_day(d, 10) && cn_check(d) == u32::from(d[17])
}

fn my_number(d: &[u8]) -> bool {
    let rest = weighted(d, &[6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11;
    !all_same(d) && (if rest <= 1 { 0 } else { 11 - rest }) == u32::from(d[11])
}

fn th_id(d: &[u8]) -> bool {
    d[0] != 0
        && d[0] != 9
        && (11 - weighted(d, &[13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11) % 10 == u32::from(d[12])
}

fn tckn(d: &[u8]) -> bool {
    let d: Vec<i64> = d.iter().map(|d| i64::from(*d)).collect();
    let odd = d[0] + d[2] + d[4] + d[6] + d[8];
    let even = d[1] + d[3] + d[5] + d[7];
    d[0] != 0 && (odd * 7 - even).rem_euclid(10) == d[9] && d[..10].iter().sum::<i64>() % 10 == d[10]
}

fn kr_brn(d: &[u8]) -> bool {
    let carried = u32::from(d[8]) * 5 / 10;
    (10 - (weighted(d, &[1, 3, 7, 1, 3, 7, 1, 3, 5]) + carried) % 10) % 10 == u32::from(d[9])
}

fn egn(d: &[u8]) -> bool {
    let month = two(d, 2);
    // As in Poland, the month carries the century.
    (1..=12).contains(&(month % 20))
        && (1..=31).contains(&two(d, 4))
        && weighted(d, &[2, 4, 8, 5, 10, 9, 7, 3, 6]) % 11 % 10 == u32::from(d[9])
}

fn cnp(d: &[u8]) -> bool {
    let rest = weighted(d, &[2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9]) % 11;
    d[0] != 0 && is_month_and_day(d, 3) && (if rest == 10 { 1 } else { rest }) == u32::from(d[12])
}

fn isikukood(d: &[u8]) -> bool {
    let mut rest = weighted(d, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 1]) % 11;
    // Where the first weights give ten, others are used.
    if rest == 10 {
        rest = weighted(d, &[3, 4, 5, 6, 7, 8, 9, 1, 2, 3]) % 11 % 10;
    }
    matches!(d[0], 1..=8) && is_month_and_day(d, 3) && rest == u32::from(d[10])
}

fn cuit(d: &[u8]) -> bool {
    let rest = weighted(d, &[5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11;
    matches!(two(d, 0), 20 | 23..=27 | 30 | 33 | 34) && (11 - rest) % 11 % 10 == u32::from(d[10])
}

/// Chile's check digit; the value ten is written `K`.
pub(super) fn rut_check(d: &[u8]) -> u32 {
    let sum: u32 = d.iter().rev().zip([2, 3, 4, 5, 6, 7].into_iter().cycle()).map(|(d, w)| u32::from(*d) * w).sum();
    (11 - sum % 11) % 11
}

/// US NPI: Luhn with the prefix 80840.
fn npi(d: &[u8]) -> bool {
    matches!(d[0], 1 | 2) && luhn(&[&[8, 0, 8, 4, 0], d].concat())
}

fn aba(d: &[u8]) -> bool {
    // The Federal Reserve's districts, for banks, thrifts and electronic payments, and 80 for traveller's cheques.
    matches!(two(d, 0), 1..=12 | 21..=32 | 61..=72 | 80) && weighted(d, &[3, 7, 1, 3, 7, 1, 3, 7, 1]).is_multiple_of(10)
}

fn ein_prefix(d: &[u8]) -> bool {
    !matches!(two(d, 0), 0 | 7..=9 | 17..=19 | 28 | 29 | 49 | 69 | 70 | 78 | 79 | 89 | 96 | 97)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_words_of_the_file() {
        let named: std::collections::HashSet<&str> = RULES.iter().map(|rule| rule.words).collect();
        assert_eq!(named, ID_WORDS.keys().map(String::as_str).collect());
    }

    #[test]
    fn national_id_check_digits_accept_issued_and_reject_changed_numbers() {
        for (kind, text) in [
            (Cpf, "52998224725"),
            (Cnpj, "11222333000181"),
            (Nir, "255081416802538"),
            (Nhs, "9434765919"),
            (Sin, "130692544"),
            (Tfn, "123456782"),
            (Abn, "51824753556"),
            (Acn, "000000019"),
            (AuMedicare, "2123456701"),
            (Aadhaar, "234123412346"),
            (Pesel, "44051401359"),
            (Nip, "1234563218"),
            (Personnummer, "8112189876"),
            (Fodselsnummer, "15076500565"),
            (Bsn, "111222333"),
            (BeNationalNumber, "85073003328"),
            (SteuerId, "86095742719"),
            (Ahv, "7569217076985"),
            (PartitaIva, "00743110157"),
            (PtNif, "123456789"),
            (CnId, "110105199003078019"),
            (ThId, "1101700230708"),
            (ZaId, "8001015009087"),
            (Tckn, "10000000146"),
            (IlId, "123456782"),
            (Egn, "7523169263"),
            (Cnp, "1800101221144"),
            (Oib, "33392005961"),
            (Isikukood, "37605030299"),
            (Cuit, "20123456786"),
            (Rut, "123456785"),
            (Npi, "1234567893"),
            (BankRouting, "021000021"),
        ] {
            let mut digits: Vec<u8> = text.bytes().map(|b| b - b'0').collect();
            let rule = RULES.iter().find(|r| r.kind == kind && r.digits == digits.len()).expect("a rule");
            assert!((rule.check)(&digits), "{kind} {text}");
            let last = digits.last_mut().expect("digits");
            *last = (*last + 1) % 10;
            if kind == AuMedicare {
                digits[8] = (digits[8] + 1) % 10;
            }
            assert!(!(rule.check)(&digits), "{kind} {text} changed");
        }
    }
}
