//! Ceilings of the layout inside crates: import circles, files in a folder, setters that are called after construction, code lines.
//!
//! Each ceiling may only fall: a change that gets below one lowers the constant with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::{assert_none, sources};

/// Files of the largest import circle inside a crate.
const LARGEST_CIRCLE: usize = 3;
/// Files of all import circles together.
const FILES_IN_CIRCLES: usize = 37;
/// Source files in a folder, tests left out.
const FILES_IN_FOLDER: usize = 20;
/// Lines of code in `crates/`, without tests, comments and blank lines (the goal is 142,000).
const CODE_LINES: usize = 176_967;

#[test]
fn import_circles_inside_a_crate_only_shrink() {
    let circles: Vec<String> = circles().into_iter().map(|(krate, files)| format!("{krate}: {files:?}")).collect();
    let sizes: Vec<usize> = self::circles().iter().map(|(_, files)| files.len()).collect();
    let largest = sizes.iter().max().copied().unwrap_or_default();
    let total: usize = sizes.iter().sum();
    assert!(
        largest <= LARGEST_CIRCLE && total <= FILES_IN_CIRCLES,
        "the largest circle has {largest} files (at most {LARGEST_CIRCLE}), all circles {total} (at most \
         {FILES_IN_CIRCLES}):\n  {}\nRemedy: move what both need into a module below both.",
        circles.join("\n  ")
    );
}

#[test]
fn folders_hold_a_limited_number_of_files() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for path in product_sources().keys() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    let broken: Vec<String> = folders
        .into_iter()
        .filter(|(_, files)| *files > FILES_IN_FOLDER)
        .map(|(folder, files)| format!("{folder}: {files} files"))
        .collect();
    assert_none(&broken, &format!("at most {FILES_IN_FOLDER} files: group them by subject in folders"));
}

#[test]
fn nothing_is_set_after_construction() {
    static SETTER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"fn (set_\w+)\(&self\b").expect("a valid regex"));
    let setters: Vec<String> = product_sources()
        .iter()
        .flat_map(|(path, text)| SETTER.captures_iter(text).map(move |setter| format!("{path}: {}", &setter[1])))
        .collect();
    assert_none(
        &setters,
        "a value that is set later can be forgotten: give it to the constructor, or name what the method does",
    );
}

#[test]
fn code_lines_only_become_fewer() {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines: usize = product_sources().values().map(|text| text.lines().filter(is_code).count()).sum();
    assert!(lines <= CODE_LINES, "{lines} lines of code (at most {CODE_LINES})\nRemedy: delete before adding.");
    // A ceiling far above the tree holds nothing.
    assert!(lines + 2_000 > CODE_LINES, "{lines} lines of code: lower CODE_LINES from {CODE_LINES} to this.");
}

/// The sources of the crates that make the product, each up to its first unit test.
fn product_sources() -> BTreeMap<String, String> {
    static TEST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"/tests?/|/examples/|/benches/|testkit|tests\.rs$|_tests?\.rs$").expect("a valid regex")
    });
    sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/") && !TEST.is_match(path))
        .map(|(path, text)| {
            let mut product = String::new();
            for line in text.split_inclusive('\n') {
                if line.starts_with("#[cfg(test)]") && !line.contains("mod ") {
                    break;
                }
                product.push_str(line);
            }
            (path, product)
        })
        .collect()
}

/// Crate and module path of a source file: `a/b` for `src/a/b.rs` and `src/a/b/mod.rs`.
fn module(path: &str) -> Option<(String, String)> {
    let (krate, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.strip_suffix(".rs")?;
    Some((krate.to_owned(), module.strip_suffix("/mod").unwrap_or(module).to_owned()))
}

/// Each import circle of more than one file, with its crate.
///
/// A path that begins with `crate::`, `self::` or `super::` is an import of the longest module it names. A module that
/// is inside the importing one does not count: declaring it is not a dependency.
fn circles() -> Vec<(String, BTreeSet<String>)> {
    static IMPORT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(crate|self|(?:super::)*super)::((?:[a-z_0-9]+::)*)(\{[^;]*?\}|[A-Za-z_0-9]+)")
            .expect("a valid regex")
    });
    let sources = product_sources();
    let modules: BTreeSet<(String, String)> = sources.keys().filter_map(|path| module(path)).collect();
    let mut graphs: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (path, text) in &sources {
        let Some((krate, importer)) = module(path) else { continue };
        for import in IMPORT.captures_iter(text) {
            let own: Vec<&str> = importer.split('/').collect();
            let base = match &import[1] {
                "crate" => Vec::new(),
                up => own[..own.len().saturating_sub(up.matches("super").count())].to_vec(),
            };
            let prefix: Vec<&str> =
                base.into_iter().chain(import[2].split("::").filter(|part| !part.is_empty())).collect();
            for end in import[3].trim_matches(['{', '}']).split(',') {
                let names = end.trim().split("::").filter(|part| !part.is_empty());
                let names =
                    names.map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""));
                let parts: Vec<&str> = prefix.iter().copied().chain(names).collect();
                let imported = (1..=parts.len())
                    .rev()
                    .map(|length| (krate.clone(), parts[..length].join("/")))
                    .find(|imported| modules.contains(imported));
                if let Some((_, imported)) = imported
                    && imported != importer
                    && !Path::new(&imported).starts_with(&importer)
                {
                    graphs.entry(krate.clone()).or_default().entry(importer.clone()).or_default().insert(imported);
                }
            }
        }
    }
    graphs
        .into_iter()
        .flat_map(|(krate, graph)| components(&graph).into_iter().map(move |c| (krate.clone(), c)))
        .collect()
}

/// The strongly connected components of more than one node: nodes that reach each other.
fn components(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reachable = |from: &String| {
        let mut reached: BTreeSet<String> = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(node) = open.pop() {
            for next in graph.get(&node).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|node| (node, reachable(node))).collect();
    reached
        .iter()
        .filter(|(node, nodes)| nodes.contains(**node))
        .map(|(node, nodes)| {
            nodes.iter().filter(|other| reached.get(other).is_some_and(|n| n.contains(*node))).cloned().collect()
        })
        .filter(|component: &BTreeSet<String>| component.len() > 1)
        .collect()
}
