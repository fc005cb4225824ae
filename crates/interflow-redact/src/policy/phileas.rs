//! Import of Phileas's policy JSON: the same keys, the same defaults, the same names in `%t`.

use std::sync::LazyLock;

use blake3::Hasher;
use interflow_types::data_file;
use serde_json::{Map, Value};

use super::file::{custom_rule, label_from, regions, suggestion};
use super::{IgnoreList, KindRule, PatternValidator, Policy, PolicyParts, StrategyCondition, compile};
use crate::policy::custom_rules::{CustomPattern, CustomSection};
use crate::strategy::{DateShift, MaskLength, PolicyKeys, RandomReplacement, RedactionStrategy, TruncateSide};
use crate::word_lists::{WordList, words};
use crate::{Kind, KindSet, RedactError, Result};

/// A Phileas identifier: its key, the kinds here, its `filterType`, the key of its strategies.
struct PhileasIdentifier(&'static str, Vec<Kind>, &'static str, &'static str);

/// The identifiers that Phileas knows, by its key. Several may have the same kind here.
static IDENTIFIERS: LazyLock<Vec<PhileasIdentifier>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/phileas_identifiers.txt"));
    let identifier = |[key, kinds, name, strategies]: [&'static str; 4]| {
        PhileasIdentifier(key, kinds.split(' ').filter_map(Kind::from_name).collect(), name, strategies)
    };
    records.map(identifier).collect()
});

/// The names of strategies.
static STRATEGIES: WordList = WordList::new(|| words("phileas_strategies"));

/// Keys of custom rule lists, or without meaning for text.
const OTHER_KEYS: &[&str] = &["dictionaries", "identifiers", "sections", "pheyes", "medicalCondition"];

/// Compiles Phileas's JSON. Unknown identifiers and strategies are errors, since text would pass that the policy
/// meant to redact.
pub(super) fn compile_policy(json: &str) -> Result<Policy> {
    let root: Value =
        serde_json::from_str(json).map_err(|e| RedactError::Policy(format!("the policy is not JSON: {e}")))?;
    let root = root.as_object().ok_or_else(|| RedactError::Policy("the policy is not a JSON object".to_owned()))?;
    let mut builder =
        PolicyParts { name: text(root, "name").unwrap_or("phileas").to_owned(), ..PolicyParts::default() };
    builder.wants.kinds = KindSet::NONE;
    let (crypto, fpe) = (object(root, "crypto"), object(root, "fpe"));
    builder.keys = PolicyKeys::from_config(
        crypto.and_then(|c| text(c, "key")),
        fpe.and_then(|f| Some((text(f, "key")?, text(f, "tweak").unwrap_or_default()))),
    )?;
    read_ignores(root, &mut builder)?;
    for (key, value) in object(root, "identifiers").into_iter().flatten() {
        match key.as_str() {
            "dictionaries" => each(value, key, |v| dictionary(v, &mut builder))?,
            "identifiers" => each(value, key, |v| custom_identifier(v, &mut builder))?,
            "sections" => each(value, key, |v| section(v, &mut builder))?,
            "pheyes" => {
                let known = PhileasIdentifier("pheyes", vec![Kind::Person], "person", "phEyeFilterStrategies");
                each(value, key, |v| identifier(&known, v, &mut builder))?;
            }
            "medicalCondition" => {
                if enabled(as_object(value, key)?) {
                    return Err(RedactError::Policy("identifier `medicalCondition` needs a language model and has none here; set \"enabled\": false".to_owned()));
                }
            }
            _ => {
                let known_identifier = IDENTIFIERS.iter().find(|i| i.0 == key).ok_or_else(|| {
                    let names = IDENTIFIERS.iter().map(|i| i.0).chain(OTHER_KEYS.iter().copied());
                    RedactError::Policy(format!("there is no identifier `{key}`{}", suggestion(key, names)))
                })?;
                let entry = as_object(value, key)?;
                if enabled(entry) {
                    identifier(known_identifier, entry, &mut builder)?;
                }
            }
        }
    }
    builder.build(
        |kind| custom_rule(kind.as_str(), kind.label(), super::DEFAULT_CONFIDENCE, RedactionStrategy::redact()),
        json.as_bytes(),
    )
}

/// Adds an identifier of [`IDENTIFIERS`].
fn identifier(known: &PhileasIdentifier, value: &Map<String, Value>, builder: &mut PolicyParts) -> Result<()> {
    let PhileasIdentifier(key, kinds, name, strategies_key) = known;
    let strategies = strategies(value.get(*strategies_key), key, &mut builder.fingerprint)?;
    let mut ignore = IgnoreList::default();
    own_ignores(value, &mut ignore, &mut builder.fingerprint)?;
    match *key {
        "creditCard" => builder.wants.valid_cards_only = flag(value, "onlyValidCreditCardNumbers", true),
        "ibanCode" => builder.wants.valid_ibans_only = flag(value, "onlyValidIBANCodes", true),
        "phoneNumber" => {
            let list: Vec<String> = strings(value.get("region")).map(str::to_owned).collect();
            if !list.is_empty() {
                builder.wants.phone_regions = regions(&list)?;
            }
        }
        _ => {}
    }
    for kind in kinds {
        builder.wants.kinds.insert(*kind);
        let rule = KindRule {
            name: (*name).to_owned(),
            label: kind.label().to_owned(),
            class: None,
            confidence: min_confidence(*kind),
            strategies: strategies.clone(),
            ignore: ignore.clone(),
        };
        // Of several keys for one kind (first name, surname, person), the first applies.
        builder.rules.entry(*kind).or_insert(rule);
    }
    Ok(())
}

/// Phileas accepts weak evidence for some kinds; a policy that names them expects that.
const fn min_confidence(kind: Kind) -> u8 {
    match kind {
        Kind::StateAbbreviation => 20,
        Kind::Date => 40,
        _ => super::DEFAULT_CONFIDENCE,
    }
}

/// Adds a dictionary: a list of terms, exact or fuzzy.
fn dictionary(value: &Map<String, Value>, builder: &mut PolicyParts) -> Result<()> {
    let name = text(value, "classification").unwrap_or(Kind::Custom.as_str());
    let mut rule = custom_rule(Kind::Custom.as_str(), &label_from(name), 0, RedactionStrategy::redact());
    rule.class = Some(name.to_owned());
    rule.strategies = strategies(value.get("customFilterStrategies"), "dictionaries", &mut builder.fingerprint)?;
    let rule = builder.add_custom_rule(rule)?;
    let fuzzy = flag(value, "fuzzy", false);
    let distance = match text(value, "sensitivity").unwrap_or("off").to_ascii_lowercase().as_str() {
        "low" => 1,
        "high" => 3,
        _ => 2,
    };
    for term in &terms(value, "terms", "files", &mut builder.fingerprint)? {
        if fuzzy { builder.terms.add_fuzzy(term, distance, rule) } else { builder.terms.add_term(term, false, rule) }
    }
    Ok(())
}

/// Adds a custom pattern.
fn custom_identifier(value: &Map<String, Value>, builder: &mut PolicyParts) -> Result<()> {
    let pattern = text(value, "pattern")
        .ok_or_else(|| RedactError::Policy("an entry of `identifiers` has no `pattern`".to_owned()))?;
    let class = text(value, "classification").unwrap_or("custom-identifier");
    let mut rule = custom_rule(Kind::Identifier.as_str(), &label_from(class), 0, RedactionStrategy::redact());
    rule.class = Some(class.to_owned());
    rule.strategies = strategies(value.get("identifierFilterStrategies"), "identifiers", &mut builder.fingerprint)?;
    own_ignores(value, &mut rule.ignore, &mut builder.fingerprint)?;
    let rule = builder.add_custom_rule(rule)?;
    let regex = compile(pattern, flag(value, "caseSensitive", true))?;
    let group = value.get("groupNumber").and_then(Value::as_u64).unwrap_or(0) as usize;
    let validator = object(value, "validator").and_then(|v| text(v, "name")).or_else(|| text(value, "validator"));
    builder.terms.patterns.push(CustomPattern {
        regex,
        group,
        validator: validator.map(validator_named).transpose()?,
        rule,
    });
    Ok(())
}

fn validator_named(name: &str) -> Result<PatternValidator> {
    match name.to_ascii_lowercase().as_str() {
        "luhn" => Ok(PatternValidator::Luhn),
        "mod11" => Ok(PatternValidator::Mod11),
        "mod23-letter" => Ok(PatternValidator::Mod23Letter),
        "mod97" => Ok(PatternValidator::Mod97),
        "de-steuerid" => Ok(PatternValidator::Iso7064),
        "bic-structural" => Ok(PatternValidator::Bic),
        "de-personalausweis" => Ok(PatternValidator::Personalausweis),
        "es-cif" => Ok(PatternValidator::EsCif),
        _ => Err(RedactError::Policy(format!(
            "there is no validator `{name}`; there are luhn, mod11, mod23-letter, mod97, bic-structural, de-personalausweis, \
             de-steuerid, es-cif"
        ))),
    }
}

/// Adds a section between two patterns.
fn section(value: &Map<String, Value>, builder: &mut PolicyParts) -> Result<()> {
    let mark = |key: &str| {
        text(value, key).ok_or_else(|| RedactError::Policy(format!("an entry of `sections` has no `{key}`")))
    };
    let (start, end) = (compile(mark("startPattern")?, true)?, compile(mark("endPattern")?, true)?);
    let mut rule = custom_rule(Kind::Section.as_str(), Kind::Section.label(), 0, RedactionStrategy::redact());
    rule.strategies = strategies(value.get("sectionFilterStrategies"), "sections", &mut builder.fingerprint)?;
    let rule = builder.add_custom_rule(rule)?;
    builder.terms.sections.push(CustomSection { start, end, rule });
    Ok(())
}

/// The strategies of an identifier with their conditions; `REDACT` if there are none.
fn strategies(
    value: Option<&Value>,
    of: &str,
    fingerprint: &mut Hasher,
) -> Result<Vec<(Option<StrategyCondition>, RedactionStrategy)>> {
    let list = match value {
        None | Some(Value::Null) => return Ok(vec![(None, RedactionStrategy::redact())]),
        Some(Value::Array(list)) => list.as_slice(),
        Some(one @ Value::Object(_)) => std::slice::from_ref(one),
        Some(_) => return Err(RedactError::Policy(format!("the strategies of `{of}` are no list"))),
    };
    let one = |v: &Value| {
        let map = as_object(v, of)?;
        let condition =
            text(map, "condition").filter(|c| !c.trim().is_empty()).map(StrategyCondition::parse).transpose()?;
        Ok((condition, strategy(map, of, fingerprint)?))
    };
    let all: Vec<_> = list.iter().map(one).collect::<Result<_>>()?;
    Ok(if all.is_empty() { vec![(None, RedactionStrategy::redact())] } else { all })
}

fn strategy(map: &Map<String, Value>, of: &str, fingerprint: &mut Hasher) -> Result<RedactionStrategy> {
    let name = text(map, "strategy").unwrap_or("REDACT").to_ascii_uppercase();
    let number = |key: &str| map.get(key).and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()));
    let character = |key: &str| text(map, key).and_then(|s| s.chars().next()).unwrap_or('*');
    let leading = text(map, "truncateDirection").is_some_and(|d| d.eq_ignore_ascii_case("LEADING"));
    let keep = number("truncateLeaveCharacters").map_or(4, |n| n.max(0) as usize);
    let redact = || RedactionStrategy::Redact {
        format: text(map, "redactionFormat").map_or_else(RedactionStrategy::default_format, str::to_owned),
    };
    Ok(match name.as_str() {
        "REDACT" => redact(),
        "MASK" => RedactionStrategy::Mask {
            character: character("maskCharacter"),
            length: number("maskLength").filter(|n| *n > 0).map_or(MaskLength::Same, |n| MaskLength::Fixed(n as usize)),
        },
        "STATIC_REPLACE" => RedactionStrategy::Static(text(map, "staticReplacement").unwrap_or_default().to_owned()),
        "RANDOM_REPLACE" => match text(map, "anonymizationMethod").unwrap_or("REALISTIC").to_ascii_uppercase().as_str()
        {
            "UUID" => RedactionStrategy::Random(RandomReplacement::Uuid),
            "FROM_LIST" => RedactionStrategy::Random(RandomReplacement::From(
                strings(map.get("anonymizationCandidates")).map(str::to_owned).collect(),
            )),
            _ => RedactionStrategy::Random(RandomReplacement::Realistic),
        },
        "HASH" | "HASH_SHA256_REPLACE" => RedactionStrategy::Hash { salt: None, random_salt: flag(map, "salt", false) },
        "CRYPTO_REPLACE" => RedactionStrategy::Crypto,
        "FPE_ENCRYPT_REPLACE" => RedactionStrategy::Fpe,
        "LAST_4" => RedactionStrategy::LastFour,
        "TRUNCATE" if of == "zipCode" => RedactionStrategy::Zip {
            keep: number("truncateDigits").or(number("truncateLeaveCharacters")).map_or(2, |n| n.max(0) as usize),
            zeros: false,
        },
        "ZERO_LEADING" => RedactionStrategy::ZeroLeading,
        "TRUNCATE" => RedactionStrategy::Truncate {
            keep,
            character: character("truncateCharacter"),
            side: if leading { TruncateSide::Leading } else { TruncateSide::Trailing },
        },
        "ABBREVIATE" => RedactionStrategy::Abbreviate,
        "MAP_REPLACE" => RedactionStrategy::Map {
            table: object(map, "mappings")
                .into_iter()
                .flatten()
                .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
                .chain(mapping_files(map, fingerprint)?)
                .collect(),
            case_sensitive: flag(map, "caseSensitive", true),
            otherwise: Box::new(redact()),
        },
        "TRUNCATE_TO_YEAR" => RedactionStrategy::Year,
        "SHIFT" | "SHIFT_DATE" => RedactionStrategy::Shift(DateShift {
            days: number("shiftDays").unwrap_or(0),
            months: number("shiftMonths").unwrap_or(0),
            years: number("shiftYears").unwrap_or(0),
            random: flag(map, "shiftRandom", false),
        }),
        "RELATIVE" => RedactionStrategy::Relative,
        other => {
            let closest = suggestion(other, STRATEGIES.iter().copied());
            return Err(RedactError::Policy(format!("`{of}`: there is no strategy `{other}`{closest}")));
        }
    })
}

/// Replacements from files: one per line, value and replacement separated by a tab.
fn mapping_files(map: &Map<String, Value>, fingerprint: &mut Hasher) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for path in strings(map.get("mappingFiles")) {
        let text = read(path, fingerprint)?;
        all.extend(text.lines().filter_map(|l| l.split_once('\t')).map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
    Ok(all)
}

/// The text of a file, which the fingerprint of the policy covers from then on.
fn read(path: &str, fingerprint: &mut Hasher) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| RedactError::Policy(format!("the file `{path}` that the policy names cannot be read: {e}")))?;
    // With its length, so that what moves from one file to the next changes it.
    fingerprint.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    Ok(text)
}

/// The terms of a list, and those of the files that another one names, one per line.
fn terms(map: &Map<String, Value>, list: &str, files: &str, fingerprint: &mut Hasher) -> Result<Vec<String>> {
    let mut all: Vec<String> = strings(map.get(list)).map(str::to_owned).collect();
    for path in strings(map.get(files)) {
        all.extend(read(path, fingerprint)?.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned));
    }
    Ok(all)
}

/// The ignore lists of the whole policy.
fn read_ignores(root: &Map<String, Value>, PolicyParts { ignore, fingerprint, .. }: &mut PolicyParts) -> Result<()> {
    for list in root.get("ignored").and_then(Value::as_array).into_iter().flatten() {
        let map = as_object(list, "ignored")?;
        let sensitive = flag(map, "caseSensitive", false);
        terms(map, "terms", "files", fingerprint)?.iter().for_each(|t| ignore.add(t, sensitive));
    }
    read_patterns(root, ignore)
}

fn read_patterns(map: &Map<String, Value>, ignore: &mut IgnoreList) -> Result<()> {
    for entry in map.get("ignoredPatterns").and_then(Value::as_array).into_iter().flatten() {
        let pattern = entry.as_str().or_else(|| entry.get("pattern")?.as_str());
        ignore.add_pattern(
            pattern.ok_or_else(|| RedactError::Policy("an entry of `ignoredPatterns` has no `pattern`".to_owned()))?,
        )?;
    }
    Ok(())
}

/// The ignore lists of one identifier.
fn own_ignores(map: &Map<String, Value>, ignore: &mut IgnoreList, fingerprint: &mut Hasher) -> Result<()> {
    terms(map, "ignored", "ignoredFiles", fingerprint)?.iter().for_each(|t| ignore.add(t, false));
    read_patterns(map, ignore)
}

/// Reads the entries of a list; disabled ones are ignored.
fn each(value: &Value, of: &str, mut f: impl FnMut(&Map<String, Value>) -> Result<()>) -> Result<()> {
    let list = value.as_array().ok_or_else(|| RedactError::Policy(format!("`{of}` is not a list")))?;
    list.iter().try_for_each(|v| {
        let entry = as_object(v, of)?;
        if enabled(entry) { f(entry) } else { Ok(()) }
    })
}

fn as_object<'a>(value: &'a Value, of: &str) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| RedactError::Policy(format!("`{of}` is not an object")))
}

fn object<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    map.get(key)?.as_object()
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// A boolean, which may be written as text.
fn flag(map: &Map<String, Value>, key: &str, default: bool) -> bool {
    map.get(key).and_then(|v| v.as_bool().or_else(|| v.as_str()?.parse().ok())).unwrap_or(default)
}

fn enabled(map: &Map<String, Value>) -> bool {
    flag(map, "enabled", true)
}

fn strings(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
