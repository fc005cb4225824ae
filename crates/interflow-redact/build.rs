//! Packs the word lists of `data/` into one hash table that needs no initialization at run time, and makes enums and
//! constants of the tables there.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

// A part of the module is for others.
#[allow(dead_code)]
#[path = "../interflow-types/src/data_file.rs"]
mod data_file;
#[path = "src/lexicon/hash.rs"]
mod hash;

use data_file::records;
use hash::{fingerprint, hash};

/// Number of slots (log2).
const LOG2_SLOTS: u32 = 19;
/// Bits of a slot that contain the word's class.
const CLASS_BITS: u32 = 12;

/// The lists of words, with the flags of every word in them. Some of `words_other` are common given names elsewhere: those
/// are words only in a text of that language.
const WORD_LISTS: &[(&str, &[&str])] = &[
    ("words_other", &["mark.WORD", "topic.OTHER_LANGUAGE"]),
    ("words_other_given", &["topic.OTHER_LANGUAGE"]),
    ("words_common", &["mark.COMMON"]),
    ("words", &["mark.WORD"]),
    ("first_names", &["mark.FIRST"]),
    ("first_names_top", &["mark.FIRST", "mark.FIRST_TOP"]),
    ("surnames", &["mark.LAST"]),
    ("surnames_top", &["mark.LAST", "mark.LAST_TOP"]),
    ("first_names_more", &["mark.FIRST"]),
    ("surnames_more", &["mark.LAST"]),
    ("places", &["mark.PLACE"]),
    ("regions", &["mark.REGION"]),
    ("regions_more", &["mark.REGION"]),
    ("orgs", &["mark.ORG"]),
];

/// Marks and topics of a word, as bits.
type WordFlags = (u32, u32);

fn main() {
    for path in ["data", "src/lexicon/hash.rs", "../interflow-types/src/data_file.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let (flags, modules) = read_flags();
    write("flags.rs", modules);
    write("lexicon.bin", pack(&read_words(&flags)));
    write("kinds.rs", kinds());
    write("features.rs", features());
}

fn write(name: &str, content: impl AsRef<[u8]>) {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join(name), content).expect("the build folder can be written");
}

/// The flags of `data/flags.txt` by name, and the modules with a constant for each.
fn read_flags() -> (HashMap<&'static str, WordFlags>, String) {
    let (mut flags, mut modules) = (HashMap::new(), String::new());
    for set in ["mark", "topic"] {
        let names = records(include_str!("data/flags.txt")).filter(|[name, _]| name.split('.').next() == Some(set));
        let _ = writeln!(modules, "pub mod {set} {{");
        for (at, [name, doc]) in names.enumerate() {
            let bit = 1u32 << at;
            flags.insert(name, if set == "mark" { (bit, 0) } else { (0, bit) });
            let _ = writeln!(modules, "{} pub const {}: u32 = {bit:#x};", doc_attribute(doc), &name[set.len() + 1..]);
        }
        modules.push_str("}\n");
    }
    (flags, modules)
}

fn doc_attribute(doc: &str) -> String {
    if doc.is_empty() { String::new() } else { format!("#[doc = {doc:?}]") }
}

/// An enum with a variant for each name, and the list of them.
fn enumeration(name: &str, variants: impl Iterator<Item = (String, &'static str)>) -> String {
    let (mut all, mut body) = (String::new(), String::new());
    for (variant, doc) in variants {
        let _ = write!(body, "{} {variant},", doc_attribute(doc));
        let _ = write!(all, "Self::{variant},");
    }
    format!(
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)] #[repr(u8)] pub enum {name} {{ {body} }}
        impl {name} {{ pub const ALL: &'static [Self] = &[{all}]; }}\n"
    )
}

/// `Kind`, and what `data/kinds.txt` says about each.
fn kinds() -> String {
    let kinds = || records(include_str!("data/kinds.txt"));
    let mut code = enumeration("Kind", kinds().map(|[variant, _, _, _, doc]| (variant.to_owned(), doc)));
    code.push_str("const KIND_RECORDS: &[KindRecord] = &[\n");
    for [_, name, label, aliases, doc] in kinds() {
        let aliases: Vec<&str> = aliases.split_whitespace().collect();
        let _ =
            writeln!(code, "KindRecord {{ name: {name:?}, label: {label:?}, aliases: &{aliases:?}, doc: {doc:?} }},");
    }
    code + "];\n"
}

/// `Feature`, and the name of each.
fn features() -> String {
    let features = || records(include_str!("data/features.txt"));
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let variants = features().map(|[name, doc]| (name.split('_').map(capital).collect(), doc));
    let names: Vec<&str> = features().map(|[name, _]| name).collect();
    enumeration("Feature", variants) + &format!("const FEATURE_NAMES: &[&str] = &{names:?};\n")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn add(words: &mut HashMap<String, WordFlags>, word: &str, flags: WordFlags, phrase: WordFlags) {
    if word.is_empty() {
        return;
    }
    let mut set = |word: &str, flags: WordFlags| {
        let entry = words.entry(word.to_owned()).or_default();
        *entry = (entry.0 | flags.0, entry.1 | flags.1);
    };
    set(word, flags);
    if let Some((first, _)) = word.split_once(' ') {
        set(first, phrase);
    }
}

/// The words of all lists, and of the sections of `data/marks.txt`.
fn read_words(flags: &HashMap<&str, WordFlags>) -> HashMap<String, WordFlags> {
    let named = |name: &str| *flags.get(name).unwrap_or_else(|| panic!("data/flags.txt has no {name}"));
    let phrase = named("mark.PHRASE");
    let mut words = HashMap::new();
    for (list, names) in WORD_LISTS {
        let flags = names.iter().map(|name| named(name)).fold((0, 0), |all, f| (all.0 | f.0, all.1 | f.1));
        read(&format!("data/{list}.txt")).lines().for_each(|line| add(&mut words, line.trim(), flags, phrase));
    }
    let mut flags = (0, 0);
    for line in read("data/marks.txt").lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            Some(section) => flags = named(section),
            None => line.split_whitespace().for_each(|word| add(&mut words, word, flags, phrase)),
        }
    }
    words
}

fn pack(words: &HashMap<String, (u32, u32)>) -> Vec<u8> {
    let mut classes: BTreeMap<(u32, u32), u32> = words.values().map(|v| (*v, 0)).collect();
    for (id, class) in classes.values_mut().enumerate() {
        *class = id as u32 + 1;
    }
    assert!(classes.len() < 1 << CLASS_BITS, "too many different combinations of marks");
    let slots = 1usize << LOG2_SLOTS;
    assert!(words.len() < slots * 2 / 3, "the table is too full: raise LOG2_SLOTS");
    let mut table = vec![0u32; slots];
    let mut sorted: Vec<_> = words.iter().collect();
    sorted.sort();
    for (word, marks) in sorted {
        let h = hash(word.as_bytes());
        let mut at = h as usize & (slots - 1);
        while table[at] != 0 {
            at = (at + 1) & (slots - 1);
        }
        table[at] = fingerprint(h) << CLASS_BITS | classes[marks];
    }
    let mut out = Vec::with_capacity(slots * 4 + classes.len() * 8 + 4);
    out.extend((classes.len() as u32).to_le_bytes());
    for (flags, topics) in classes.keys() {
        out.extend(flags.to_le_bytes());
        out.extend(topics.to_le_bytes());
    }
    out.extend(table.into_iter().flat_map(u32::to_le_bytes));
    out
}
