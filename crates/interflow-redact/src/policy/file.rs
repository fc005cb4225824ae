//! The policy file: TOML with typed keys; unknown keys are rejected with a suggestion.

use std::collections::BTreeMap;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_CONFIDENCE, KindRule, Policy, PolicyParts, StrategyCondition, compile, default_kinds};
use crate::policy::custom_rules::{CustomPattern, CustomSection};
use crate::strategy::{DateShift, MaskLength, PolicyKeys, RandomReplacement, RedactionStrategy, TruncateSide};
use crate::{Kind, KindSet, RedactError, Result};

/// A redaction policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PolicyFile {
    /// Name in audit records and explanations.
    pub name: String,
    /// Kinds to detect; if empty, all but amounts of money, bare state abbreviations and bare extensions.
    pub kinds: Vec<String>,
    /// Kinds not to detect.
    pub except: Vec<String>,
    /// Minimum confidence in percent; 50 when absent.
    #[schemars(range(max = 100))]
    pub confidence: Option<u8>,
    /// The replacement of a finding; `placeholder` when absent.
    pub strategy: Option<StrategyFile>,
    /// Settings of individual kinds, by name.
    pub kind: BTreeMap<String, KindFile>,
    /// Values that are never redacted, ignoring case.
    pub never: Vec<String>,
    /// Patterns of values that are never redacted; the whole value must match.
    pub never_patterns: Vec<String>,
    /// Terms that are always redacted, ignoring case.
    pub always: Vec<String>,
    /// Term lists with separate settings.
    pub terms: Vec<TermsFile>,
    /// Custom patterns.
    pub patterns: Vec<PatternFile>,
    /// Sections: the text between two markers.
    pub sections: Vec<SectionFile>,
    /// Regions (ISO 3166) whose national phone formats are detected; `["US"]` when empty.
    pub phone_regions: Vec<String>,
    /// Whether card numbers with a wrong check digit are ignored; true when absent.
    pub valid_cards_only: Option<bool>,
    /// Whether IBANs with wrong check digits are ignored; true when absent.
    pub valid_ibans_only: Option<bool>,
    /// The key of `encrypt`.
    pub crypto: Option<CryptoFile>,
    /// The key of `fpe`.
    pub fpe: Option<FpeFile>,
}

/// Settings of one kind.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KindFile {
    /// Minimum confidence in percent.
    #[schemars(range(max = 100))]
    pub confidence: Option<u8>,
    /// The replacement of a finding.
    pub strategy: Option<StrategyFile>,
    /// Several strategies with conditions; the first whose condition holds is applied, and if none holds the finding is
    /// not redacted.
    pub strategies: Vec<ConditionalFile>,
    /// Values that are not redacted, ignoring case.
    pub never: Vec<String>,
    /// Patterns of values that are not redacted.
    pub never_patterns: Vec<String>,
}

/// A strategy with a condition; `use` and the parameters of the strategy are beside it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ConditionalFile {
    /// `token startswith "4" and confidence > 0.8`; fields token, context, confidence, type, classification,
    /// population.
    #[serde(default)]
    pub condition: String,
    /// The strategy.
    #[serde(flatten)]
    pub strategy: StrategyFile,
}

/// The replacement of a finding.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "use", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum StrategyFile {
    /// A stable token such as `PERSON_4k7q2m9x` that is restored in the response; `redact` where restoration is not
    /// possible.
    Placeholder,
    /// A constant text; `%t` is the type, `%l` the label, `%v` the value.
    Redact {
        /// `{{{REDACTED-%t}}}` when absent.
        format: Option<String>,
    },
    /// The same number of mask characters, or `length` of them.
    Mask {
        /// `*` when absent.
        character: Option<char>,
        /// How many; as long as the value when absent.
        length: Option<usize>,
    },
    /// A fixed text.
    Replace {
        /// The text.
        with: String,
    },
    /// A random value of the same format; equal values get the same replacement within one document.
    Random {
        /// Texts to choose from; if empty, random letters and digits.
        #[serde(default)]
        from: Vec<String>,
    },
    /// A random UUID.
    Uuid,
    /// SHA-256 in hexadecimal, keyed by `salt` if set.
    Hash {
        /// The salt.
        salt: Option<String>,
    },
    /// AES-GCM with the policy's `crypto` key: `{{`, the base64 of a random nonce of 12 bytes, ciphertext and tag, `}}`.
    /// Anyone with the key can decrypt it; Interflow has no command for that.
    Encrypt,
    /// FF3-1 with the policy's `fpe` key, format-preserving. If a value has six digits or more and at most four letters,
    /// its digits are encrypted; otherwise its letters and digits, as numerals `0-9A-Za-z` of radix 62, and again as long as
    /// the result is a value of the former kind. Anyone with the key can decrypt it; Interflow has no command for that.
    Fpe,
    /// All but the last four characters masked. Punctuation and spaces are kept, except in secrets.
    LastFour,
    /// Truncated to `keep` characters.
    Truncate {
        /// Number of characters kept; 4 when absent.
        keep: Option<usize>,
        /// The mask; `*` when absent.
        character: Option<char>,
        /// Whether the first characters are kept instead of the last.
        #[serde(default)]
        leading: bool,
    },
    /// Initials.
    Abbreviate,
    /// From a table; `otherwise` for values that are not in it.
    Map {
        /// Value to replacement.
        table: BTreeMap<String, String>,
        /// The replacement of other values; `redact` when absent.
        otherwise: Option<String>,
    },
    /// Dates: keeps only the year.
    Year,
    /// Dates: shifted.
    Shift {
        /// Days.
        #[serde(default)]
        days: i64,
        /// Months.
        #[serde(default)]
        months: i64,
        /// Years.
        #[serde(default)]
        years: i64,
    },
    /// Dates: relative to today.
    Relative,
    /// ZIP codes: keeps the first `keep` digits.
    Zip {
        /// Number of digits kept; 3 when absent.
        keep: Option<usize>,
        /// Whether the rest becomes zeros instead of asterisks.
        #[serde(default)]
        zeros: bool,
    },
}

/// A list of terms.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TermsFile {
    /// The name in explanations.
    pub name: String,
    /// The terms.
    pub terms: Vec<String>,
    /// Whether case is significant.
    #[serde(default)]
    pub case_sensitive: bool,
    /// Maximum number of wrong letters in a term (0 to 3).
    #[serde(default)]
    #[schemars(range(max = 3))]
    pub fuzzy: u8,
    /// The replacement.
    pub strategy: Option<StrategyFile>,
}

/// A custom pattern.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PatternFile {
    /// The name in explanations.
    pub name: String,
    /// A regular expression (without look-around and back-references: matching takes linear time).
    pub pattern: String,
    /// The group to redact; 0 is the whole match.
    #[serde(default)]
    pub group: usize,
    /// Whether case is significant.
    #[serde(default = "default_true")]
    pub case_sensitive: bool,
    /// A check digit that must be valid.
    pub validator: Option<PatternValidator>,
    /// The replacement.
    pub strategy: Option<StrategyFile>,
}

const fn default_true() -> bool {
    true
}

/// The text between two markers, including the markers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SectionFile {
    /// The name in explanations.
    pub name: String,
    /// A regular expression for the start marker.
    pub start: String,
    /// A regular expression for the end marker; without a match the section extends to the end.
    pub end: String,
    /// The replacement.
    pub strategy: Option<StrategyFile>,
}

/// Check digit algorithms for custom patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PatternValidator {
    /// Payment cards, SIN, IMEI.
    Luhn,
    /// Aadhaar.
    Verhoeff,
    /// IBAN.
    Mod97,
    /// CPF, CNPJ.
    Mod11,
    /// ISO 7064 MOD 11,10: German tax numbers, OIB.
    Iso7064,
    /// Spain's DNI and NIE.
    Mod23Letter,
    /// Vehicles.
    Vin,
    /// Bank identifier codes: the format (ISO 9362).
    Bic,
    /// Germany's identity card.
    Personalausweis,
    /// Spain's companies.
    EsCif,
}

/// The key of `encrypt`.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CryptoFile {
    /// 16 or 32 bytes in hexadecimal, or `env:NAME`.
    pub key: String,
}

/// The key of `fpe`.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FpeFile {
    /// 16, 24 or 32 bytes in hexadecimal, or `env:NAME`.
    pub key: String,
    /// 7 (FF3-1) or 8 (FF3) bytes in hexadecimal.
    pub tweak: String,
}

impl std::fmt::Debug for CryptoFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CryptoFile")
    }
}

impl std::fmt::Debug for FpeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FpeFile")
    }
}

impl From<StrategyFile> for RedactionStrategy {
    fn from(file: StrategyFile) -> Self {
        match file {
            StrategyFile::Placeholder => Self::Placeholder,
            StrategyFile::Redact { format } => Self::Redact { format: format.unwrap_or_else(Self::default_format) },
            StrategyFile::Mask { character, length } => Self::Mask {
                character: character.unwrap_or('*'),
                length: length.map_or(MaskLength::Same, MaskLength::Fixed),
            },
            StrategyFile::Replace { with } => Self::Static(with),
            StrategyFile::Random { from } if from.is_empty() => Self::Random(RandomReplacement::Realistic),
            StrategyFile::Random { from } => Self::Random(RandomReplacement::From(from)),
            StrategyFile::Uuid => Self::Random(RandomReplacement::Uuid),
            StrategyFile::Hash { salt } => Self::Hash { salt, random_salt: false },
            StrategyFile::Encrypt => Self::Crypto,
            StrategyFile::Fpe => Self::Fpe,
            StrategyFile::LastFour => Self::LastFour,
            StrategyFile::Truncate { keep, character, leading } => Self::Truncate {
                keep: keep.unwrap_or(4),
                character: character.unwrap_or('*'),
                side: if leading { TruncateSide::Leading } else { TruncateSide::Trailing },
            },
            StrategyFile::Abbreviate => Self::Abbreviate,
            StrategyFile::Map { table, otherwise } => Self::Map {
                table: table.into_iter().collect(),
                case_sensitive: true,
                otherwise: Box::new(otherwise.map_or_else(Self::redact, Self::Static)),
            },
            StrategyFile::Year => Self::Year,
            StrategyFile::Shift { days, months, years } => {
                Self::Shift(DateShift { days, months, years, random: false })
            }
            StrategyFile::Relative => Self::Relative,
            StrategyFile::Zip { keep, zeros } => Self::Zip { keep: keep.unwrap_or(3), zeros },
        }
    }
}

/// The kind of this name, or an error with the closest name.
fn kind_named(name: &str) -> Result<Kind> {
    Kind::from_name(name).ok_or_else(|| {
        let names = Kind::ALL.iter().map(|k| k.as_str());
        RedactError::Policy(format!("there is no kind `{name}`{}", suggestion(name, names)))
    })
}

/// The closest known word as a suggestion; empty if none is close.
pub(super) fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    interflow_query::closest_name(word, known).map_or_else(String::new, |k| format!("; did you mean `{k}`?"))
}

impl PolicyFile {
    /// Compiles the file; `text` is what the fingerprint is of.
    pub(super) fn compile(self, text: &[u8]) -> Result<Policy> {
        let mut builder = PolicyParts {
            name: if self.name.is_empty() { "default".to_owned() } else { self.name.clone() },
            ..PolicyParts::default()
        };
        builder.wants.kinds = self.enabled_kinds()?;
        builder.wants.valid_cards_only = self.valid_cards_only.unwrap_or(true);
        builder.wants.valid_ibans_only = self.valid_ibans_only.unwrap_or(true);
        if !self.phone_regions.is_empty() {
            builder.wants.phone_regions = regions(&self.phone_regions)?;
        }
        builder.keys = PolicyKeys::from_config(
            self.crypto.as_ref().map(|c| c.key.as_str()),
            self.fpe.as_ref().map(|f| (f.key.as_str(), f.tweak.as_str())),
        )?;
        self.never.iter().for_each(|t| builder.ignore.add(t, false));
        self.never_patterns.iter().try_for_each(|p| builder.ignore.add_pattern(p))?;
        let confidence = self.confidence.unwrap_or(DEFAULT_CONFIDENCE);
        let strategy = self.strategy.clone().map_or(RedactionStrategy::Placeholder, RedactionStrategy::from);
        strategy.check(&builder.keys)?;
        for (name, file) in &self.kind {
            let kind = kind_named(name)?;
            let rule = file.rule(kind, confidence, &strategy)?;
            builder.rules.insert(kind, rule);
        }
        self.add_custom_rules(&mut builder, &strategy)?;
        builder.build(|kind| custom_rule(kind.as_str(), kind.label(), confidence, strategy.clone()), text)
    }

    fn enabled_kinds(&self) -> Result<KindSet> {
        let mut kinds = default_kinds();
        if !self.kinds.is_empty() {
            kinds = self.kinds.iter().map(|k| kind_named(k)).collect::<Result<_, _>>()?;
        }
        // Settings for a kind enable it, and `except` prevails over everything.
        for name in self.kind.keys() {
            kinds.insert(kind_named(name)?);
        }
        for name in &self.except {
            kinds.remove(kind_named(name)?);
        }
        Ok(kinds)
    }

    fn add_custom_rules(&self, builder: &mut PolicyParts, default: &RedactionStrategy) -> Result<()> {
        let strategy =
            |file: &Option<StrategyFile>| file.clone().map_or_else(|| default.clone(), RedactionStrategy::from);
        if !self.always.is_empty() {
            // Confidence 0: what the policy itself names is certain.
            let rule = custom_rule(Kind::Custom.as_str(), Kind::Custom.label(), 0, default.clone());
            let rule = builder.add_custom_rule(rule)?;
            self.always.iter().for_each(|t| builder.terms.add_term(t, false, rule));
        }
        for list in &self.terms {
            let rule = builder.add_custom_rule(named_rule(&list.name, strategy(&list.strategy)))?;
            for term in &list.terms {
                match list.fuzzy {
                    0 => builder.terms.add_term(term, list.case_sensitive, rule),
                    n => builder.terms.add_fuzzy(term, usize::from(n.min(3)), rule),
                }
            }
        }
        for file in &self.patterns {
            let rule = builder.add_custom_rule(named_rule(&file.name, strategy(&file.strategy)))?;
            let regex = compile(&file.pattern, file.case_sensitive)?;
            if file.group >= regex.captures_len() {
                return Err(RedactError::Policy(format!("pattern `{}` has no group {}", file.name, file.group)));
            }
            builder.terms.patterns.push(CustomPattern { regex, group: file.group, validator: file.validator, rule });
        }
        for file in &self.sections {
            let rule = builder.add_custom_rule(named_rule(&file.name, strategy(&file.strategy)))?;
            builder.terms.sections.push(CustomSection {
                start: compile(&file.start, true)?,
                end: compile(&file.end, true)?,
                rule,
            });
        }
        Ok(())
    }
}

impl KindFile {
    fn rule(&self, kind: Kind, confidence: u8, default: &RedactionStrategy) -> Result<KindRule> {
        let mut rule = custom_rule(kind.as_str(), kind.label(), self.confidence.unwrap_or(confidence), default.clone());
        if let Some(strategy) = &self.strategy {
            rule.strategies = vec![(None, strategy.clone().into())];
        }
        if !self.strategies.is_empty() {
            let one =
                |c: &ConditionalFile| Ok((Some(StrategyCondition::parse(&c.condition)?), c.strategy.clone().into()));
            rule.strategies = self.strategies.iter().map(one).collect::<Result<_>>()?;
        }
        self.never.iter().for_each(|t| rule.ignore.add(t, false));
        self.never_patterns.iter().try_for_each(|p| rule.ignore.add_pattern(p))?;
        Ok(rule)
    }
}

/// A rule with one strategy and no condition.
pub(super) fn custom_rule(name: &str, label: &str, confidence: u8, strategy: RedactionStrategy) -> KindRule {
    KindRule {
        name: name.to_owned(),
        label: label.to_owned(),
        confidence,
        strategies: vec![(None, strategy)],
        ..KindRule::default()
    }
}

/// The rule of a list, a pattern or a section, whose findings are certain.
fn named_rule(name: &str, strategy: RedactionStrategy) -> KindRule {
    custom_rule(name, &label_from(name), 0, strategy)
}

/// A placeholder's label from a user-defined name: its ASCII letters in capitals, at most 16.
pub(super) fn label_from(name: &str) -> String {
    let label: String =
        name.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_uppercase()).take(16).collect();
    if label.is_empty() { Kind::Custom.label().to_owned() } else { label }
}

/// Two-letter region codes in capitals; whether such a region exists is not checked.
pub(super) fn regions(names: &[String]) -> Result<Vec<[u8; 2]>> {
    let code = |name: &String| {
        let upper = name.to_ascii_uppercase();
        upper
            .as_bytes()
            .try_into()
            .ok()
            .filter(|c: &[u8; 2]| c.iter().all(u8::is_ascii_uppercase))
            .ok_or_else(|| RedactError::Policy(format!("`{name}` is not a two-letter region")))
    };
    names.iter().map(code).collect()
}
