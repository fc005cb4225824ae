//! Other programs are named in `interflow-compat` only.

use std::collections::BTreeSet;

use crate::{assert_none, sources};

/// Programs whose settings, rules and files Interflow reads. Only `compat` names them.
const FOREIGN_NAMES: [&str; 5] = ["greyproxy", "philter", "mediaflow", "fluxzy", "mitmproxy"];

/// Files that name them all the same, and why. The list may only become shorter.
const NAMES_PROGRAMS: [(&str, &str); 10] = [
    ("crates/interflow-archive/src/lib.rs", "the list of archive formats"),
    ("crates/interflow-archive/src/fxzy/", "a file format"),
    ("crates/interflow-archive/src/mitm/", "a file format"),
    ("crates/interflow-media/src/config.rs", "the key `media.compat.mediaflow`"),
    ("crates/interflow-media/src/endpoint/links.rs", "a field of link requests"),
    ("crates/interflow-query/src/tilde_syntax.rs", "a filter syntax"),
    ("crates/interflow-redact/src/remote/config.rs", "a kind of `redact.backend`"),
    ("crates/interflow-redact/src/remote/service.rs", "the client of that server"),
    ("crates/interflow/src/cli/import/", "commands that carry the names"),
    ("crates/interflow/src/cli/flows/mod.rs", "the help lists archive formats"),
];

#[test]
fn other_programs_are_named_in_compat_only() {
    // Tests and benchmarks compare with other programs, and convert their files.
    let is_test = |path: &str| {
        path.contains("/tests/")
            || path.ends_with("tests.rs")
            || path.starts_with("bench/")
            || path.starts_with("fuzz/")
    };
    let exemption = |path: &str| NAMES_PROGRAMS.iter().position(|(exempt, _)| path.starts_with(exempt));
    let (mut broken, mut used) = (Vec::new(), BTreeSet::new());
    for (path, text) in sources() {
        if path.starts_with("crates/interflow-compat/") || is_test(&path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.to_ascii_lowercase();
            if let Some(name) = FOREIGN_NAMES.iter().find(|name| line.contains(**name)) {
                match exemption(&path) {
                    Some(i) => drop(used.insert(i)),
                    None => broken.push(format!("{path}:{}: {name}", number + 1)),
                }
            }
        }
    }
    assert_none(&broken, "move it to crates/interflow-compat, or describe it without the name");
    let idle = (0..NAMES_PROGRAMS.len()).filter(|i| !used.contains(i)).map(|i| NAMES_PROGRAMS[i].0.to_owned());
    assert_none(&idle.collect::<Vec<_>>(), "it names no program any more: take it out of NAMES_PROGRAMS");
}
