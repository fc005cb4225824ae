//! Packs the word lists of `data/` into one hash table that needs no initialization at run time.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::{env, fs};

#[path = "src/lexicon/flags.rs"]
mod flags;

use flags::{fingerprint, hash, mark, topic};

/// Number of slots (log2).
const LOG2_SLOTS: u32 = 19;
/// Bits of a slot that contain the word's class.
const CLASS_BITS: u32 = 12;

fn main() {
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rerun-if-changed=src/lexicon/flags.rs");
    let mut words: HashMap<String, (u32, u32)> = HashMap::new();
    // Some of these are common given names elsewhere: those are words only in a text of that language.
    for (name, flags) in [("words_other", mark::WORD), ("words_other_given", 0)] {
        for line in read(&format!("data/{name}.txt")).lines() {
            add(&mut words, line.trim(), flags, topic::OTHER_LANGUAGE);
        }
    }
    let lists = [
        ("words_common", mark::COMMON),
        ("words", mark::WORD),
        ("first_names", mark::FIRST),
        ("first_names_top", mark::FIRST | mark::FIRST_TOP),
        ("surnames", mark::LAST),
        ("surnames_top", mark::LAST | mark::LAST_TOP),
        ("first_names_more", mark::FIRST),
        ("surnames_more", mark::LAST),
        ("places", mark::PLACE),
        ("regions", mark::REGION),
        ("regions_more", mark::REGION),
        ("orgs", mark::ORG),
    ];
    for (name, flags) in lists {
        for line in read(&format!("data/{name}.txt")).lines() {
            add(&mut words, line.trim(), flags, 0);
        }
    }
    read_marks(&mut words);
    let bytes = pack(&words);
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("lexicon.bin"), bytes).expect("the lexicon can be written");
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn add(words: &mut HashMap<String, (u32, u32)>, word: &str, flags: u32, topics: u32) {
    if word.is_empty() {
        return;
    }
    let entry = words.entry(word.to_owned()).or_default();
    entry.0 |= flags;
    entry.1 |= topics;
    if let Some((first, _)) = word.split_once(' ') {
        words.entry(first.to_owned()).or_default().0 |= mark::PHRASE;
    }
}

fn read_marks(words: &mut HashMap<String, (u32, u32)>) {
    let (mut flags, mut topics) = (0, 0);
    for line in read("data/marks.txt").lines().filter(|l| !l.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let of = |table: &[(&str, u32)], name: &str| {
                table.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("data/marks.txt: [{name}]")).1
            };
            (flags, topics) = match section.strip_prefix("ctx.") {
                Some(name) => (0, of(topic::SECTIONS, name)),
                None => (of(mark::SECTIONS, section), 0),
            };
            continue;
        }
        for word in line.split_whitespace() {
            add(words, word, flags, topics);
        }
    }
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
