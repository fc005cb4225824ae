//! Enforces the architecture rules (ARCHITECTURE.md): crate dependencies, unsafe code, file names and file sizes.

mod foreign_names;
mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// Crates for one format or feature, without network I/O.
const LIBRARIES: [&str; 5] = ["rules", "limits", "llm", "redact", "store"];
/// Crates that join features to the proxy core through the traits of `types`.
const FEATURES: [&str; 5] = ["llm-gateway", "mcp-gateway", "approvals", "conversations", "media"];

/// What each crate may depend on. A new crate must be added here and in ARCHITECTURE.md first.
fn allowed(name: &str) -> Option<BTreeSet<&'static str>> {
    let base = ["types", "codec", "query", "files", "tasks", "models"];
    let crates: Vec<&str> = match name {
        // The macro of builds without JSON Schemas.
        "schema-off" | "files" => vec![],
        "types" => vec!["schema-off"],
        "codec" | "query" | "tasks" | "models" | "testkit" => vec!["types"],
        "net" => vec!["types", "codec", "files"],
        library if LIBRARIES.contains(&library) => base.to_vec(),
        "archive" => [&base[..], &["store"]].concat(),
        // What goes beyond one machine: only the binary knows it, and others see the traits of `store` and `limits`.
        "fleet" => [&base[..], &["store", "limits", "archive"]].concat(),
        // The core names no feature.
        "proxy" => [&base[..], &["net", "limits"]].concat(),
        feature if FEATURES.contains(&feature) => [&base[..], &LIBRARIES[..]].concat(),
        "admin" => [&base[..], &LIBRARIES[..], &FEATURES[..], &["archive", "proxy"]].concat(),
        // Other programs' settings and rules become those of the crates that they concern.
        "compat" => [&base[..], &LIBRARIES[..], &["media", "proxy"]].concat(),
        // What the demo talks to and through: origins and clients of its own, besides the proxy.
        "demo" => vec!["types", "codec", "llm", "net"],
        // This machine: it knows neither the configuration nor a feature.
        "host" => [&base[..], &["store", "net"]].concat(),
        // The binary wires everything together.
        "interflow" => [
            &base[..],
            &LIBRARIES[..],
            &FEATURES[..],
            &["archive", "fleet", "proxy", "net", "admin", "host", "demo", "compat"],
        ]
        .concat(),
        // The harness measures any crate by itself.
        "bench" => [&base[..], &LIBRARIES[..], &FEATURES[..], &["archive", "proxy", "net", "testkit"]].concat(),
        _ => return None,
    };
    Some(crates.into_iter().collect())
}

/// Crates in which the types of these dependencies may be named.
const CONFINED: [(&str, &[&str]); 12] = [
    ("btls", &["net"]),
    ("btls-sys", &["net"]),
    ("tokio-btls", &["net"]),
    ("http2", &["net"]),
    ("h2", &["net", "testkit", "bench"]),
    ("rustls", &["net", "testkit", "bench"]),
    ("tokio-rustls", &["net", "testkit", "bench"]),
    ("deadpool-postgres", &["fleet"]),
    ("object_store", &["fleet"]),
    ("redis", &["fleet"]),
    ("refinery", &["fleet"]),
    ("tokio-postgres", &["fleet"]),
];

/// The files that may hold unsafe blocks: two system calls, and a call into BoringSSL that its binding lacks.
const UNSAFE: [&str; 3] = [
    "crates/interflow-net/src/text_pages.rs",
    "crates/interflow-net/src/relay/splice.rs",
    "crates/interflow-net/src/tls/impersonate/trust_anchors.rs",
];

/// Forbidden crate and file names, because they do not describe the content.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "common", "misc", "manager"];

/// Maximum number of lines in a source file.
const MAX_LINES: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is two folders up")
}

#[test]
fn dependencies_between_crates_point_downward_only() {
    let mut broken = Vec::new();
    for (name, used) in dependencies(|kind| kind != "dev") {
        let Some(allowed) = allowed(&name) else {
            broken.push(format!("{name}: a new crate; add it to `allowed` and to ARCHITECTURE.md"));
            continue;
        };
        for other in used.iter().filter_map(|name| short_name(name)).filter(|other| !allowed.contains(other.as_str())) {
            broken.push(format!("{name} may not use {other}; allowed are {allowed:?}"));
        }
    }
    assert_none(
        &broken,
        "move what both need down into types, codec, query, files or tasks, or join the two in the binary",
    );
}

#[test]
fn dev_dependencies_point_downward_only() {
    let mut broken = Vec::new();
    for (name, used) in dependencies(|kind| kind == "dev") {
        let direct = allowed(&name).unwrap_or_default();
        // Tests may also depend on what their dependencies depend on, to set them up.
        let below: BTreeSet<_> = direct.iter().filter_map(|other| allowed(other)).flatten().collect();
        for other in used.iter().filter_map(|name| short_name(name)) {
            // Stages of a feature are tested in a running proxy.
            let in_a_proxy = FEATURES.contains(&name.as_str()) && ["proxy", "net"].contains(&other.as_str());
            // What a damaged store still exports is tested with the store.
            let exports = name == "store" && other == "archive";
            // The shared store passes the tests of the embedded one, and is indexed as that is.
            let shared = ["store", "conversations"].contains(&name.as_str()) && other == "fleet";
            // Requests of object storage are tested over connections.
            let over_connections = name == "fleet" && other == "net";
            // A crate's own feature `schema`.
            if other != name
                && other != "testkit"
                && !in_a_proxy
                && !over_connections
                && !exports
                && !shared
                && !direct.contains(other.as_str())
                && !below.contains(other.as_str())
            {
                broken.push(format!("the tests of {name} may not use {other}"));
            }
        }
    }
    assert_none(&broken, "test it with testkit, or in the crate that joins the two");
}

#[test]
fn clients_of_protocols_stay_inside_their_crates() {
    let mut broken = Vec::new();
    for (krate, used) in dependencies(|kind| kind != "dev") {
        for (name, crates) in CONFINED {
            if used.contains(name) && !crates.contains(&krate.as_str()) {
                broken.push(format!("{krate} depends on {name}"));
            }
        }
    }
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with("crates/interflow-net/")) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if ["h2", "btls", "tokio_btls", "rustls", "tokio_rustls"]
                .iter()
                .any(|name| line.starts_with(&format!("pub use {name}::")))
            {
                broken.push(format!("{path}:{}: hands a foreign type out: {line}", number + 1));
            }
        }
    }
    assert_none(&broken, "wrap it in a type of net's own");
}

#[test]
fn unsafe_code_is_forbidden_everywhere_but_in_three_files() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/");
        let level = if path == "crates/interflow-net/src/lib.rs" { "deny" } else { "forbid" };
        let fuzzed = path.starts_with("fuzz/");
        if is_root && !fuzzed && !text.contains(&format!("#![{level}(unsafe_code)]")) {
            broken.push(format!("{path}: does not say #![{level}(unsafe_code)]"));
        }
        let allowed = UNSAFE.contains(&path.as_str());
        if text.contains("allow(unsafe_code)") && !allowed && !is_this_file(&path) {
            broken.push(format!("{path}: allows unsafe code"));
        }
    }
    assert_none(&broken, "only the files in UNSAFE may hold unsafe blocks, each with its SAFETY line");
}

#[test]
fn every_source_file_has_a_module_doc() {
    let broken: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.trim_start_matches("#![no_main]").trim_start().starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert_none(&broken, "begin each with `//!` and one or two sentences");
}

#[test]
fn source_files_are_within_the_line_limit() {
    let lines = sources().into_iter().map(|(path, text)| (path, text.lines().count()));
    let broken: Vec<_> = lines.filter(|(_, n)| *n > MAX_LINES).map(|(path, n)| format!("{path}: {n} lines")).collect();
    assert_none(&broken, &format!("{MAX_LINES} lines at the most: give each idea a file of its own"));
}

#[test]
fn modules_have_no_meaningless_names() {
    let mut broken = Vec::new();
    for (path, _) in sources() {
        let parts = Path::new(&path).with_extension("");
        if parts.iter().any(|part| EMPTY_NAMES.contains(&&*part.to_string_lossy())) {
            broken.push(path);
        }
    }
    assert_none(&broken, "name a module after what it does");
}

#[test]
fn no_todo_markers_remain() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("unimplemented", "!("), concat!("todo", "!(")];
    let broken = lines_with(&marks, is_data);
    assert_none(&broken, "finish it, or take it out");
}

#[test]
fn commands_write_to_a_terminal_through_its_filter_only() {
    let outputs =
        ["anstream::std", "anstream::print", "anstream::eprint", "io::stdout().", " println!(", " eprintln!("];
    // `top` draws cells, `mcp` speaks to a program, `main` flushes.
    let exempt = ["cli/top/", "cli/mcp.rs", "src/lib.rs", "build.rs", "instance/", "src/terminal.rs", "/tests"];
    let commands = |path: &str| ["crates/interflow/", "crates/interflow-host/"].iter().any(|c| path.starts_with(c));
    let mut broken = lines_with(&outputs, |path| !commands(path) || exempt.iter().any(|e| path.contains(e)));
    broken.retain(|line| !line.contains("is_terminal()"));
    assert_none(&broken, "use `outln!`, `errln!` or a stream of interflow_host::terminal");
}

#[test]
fn no_file_contains_a_local_path() {
    let home = |name: &str| format!("/{name}/");
    let marks = [home("work"), home("root")];
    let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
    let broken = lines_with(&marks, is_data);
    assert_none(&broken, "name paths from the folder of the project, or by a variable");
}

#[test]
fn packages_come_from_the_public_registries() {
    let mut broken = Vec::new();
    for (path, text) in texts(|path| path.ends_with("Cargo.lock") || path.ends_with("package-lock.json")) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let foreign = match line.split_once([':', '=']) {
                Some(("source ", from)) => !from.contains("registry+https://github.com/rust-lang/crates.io-index"),
                Some(("\"resolved\"", from)) => !from.contains("https://registry.npmjs.org/"),
                _ => false,
            };
            if foreign {
                broken.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    let configs = ["cargo/config.toml", ".npmrc", "pip.conf"];
    broken.extend(texts(|path| configs.iter().any(|c| path.ends_with(c))).into_keys());
    assert_none(&broken, "a mirror belongs into the machine's settings, not into the project");
}

#[test]
fn yaml_is_not_parsed_by_unsafe_libyaml() {
    // Peers of the benchmarks are other people's programs.
    let locks = texts(|path| path.ends_with("Cargo.lock") && !path.starts_with("bench/peers/"));
    let broken: Vec<String> =
        locks.into_iter().filter(|(_, text)| text.contains("\"unsafe-libyaml\"")).map(|(path, _)| path).collect();
    assert_none(&broken, "read YAML with interflow_codec::document");
}

fn assert_none(broken: &[String], remedy: &str) {
    assert!(broken.is_empty(), "\nThe level is broken here:\n  {}\nRemedy: {remedy}.\n", broken.join("\n  "));
}

/// Each crate with its direct dependencies.
fn dependencies(wanted: impl Fn(&str) -> bool) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Json = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    packages
        .iter()
        .map(|package| {
            let name = package["name"].as_str().expect("a package has a name");
            let used = package["dependencies"].as_array().into_iter().flatten();
            let used = used.filter(|d| wanted(d["kind"].as_str().unwrap_or("normal")));
            let used = used.filter_map(|d| d["name"].as_str()).map(str::to_owned).collect();
            (short_name(name).unwrap_or_else(|| name.to_owned()), used)
        })
        .collect()
}

/// Short name of a workspace package: `net` for `interflow-net`.
fn short_name(package: &str) -> Option<String> {
    match package.strip_prefix("interflow") {
        Some("") => Some("interflow".into()),
        Some(rest) => rest.strip_prefix('-').map(str::to_owned),
        None => None,
    }
}

/// All lines that contain one of the markers, as `path:line: text`.
fn lines_with(marks: &[&str], exempt: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts(|path| !exempt(path) && !is_this_file(path)) {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

fn is_this_file(path: &str) -> bool {
    path == "crates/interflow/tests/architecture/main.rs"
}

/// Word lists, seeds and lock files, which are generated.
fn is_data(path: &str) -> bool {
    let written =
        ["rs", "toml", "md", "sh", "py", "go", "js", "cjs", "mjs", "ts", "svelte", "css", "html", "yaml", "yml", "mk"];
    let extension = Path::new(path).extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
    let script = ["scripts/", ".ci/"].iter().any(|f| path.starts_with(f))
        || ["Makefile", "/run"].iter().any(|n| path.ends_with(n));
    !(script || written.contains(&extension.as_str())) || path.ends_with("Cargo.lock") || path.contains("/data/")
}

/// All Rust files, as paths relative to the root.
fn sources() -> BTreeMap<String, String> {
    let sources = texts(|path| path.ends_with(".rs"));
    assert!(sources.len() > 100, "only {} files of code were found: is this the whole project?", sources.len());
    sources
}

/// All text files accepted by the filter, as paths relative to the root.
fn texts(wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let root = root();
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project can be read").flatten() {
            let path = entry.path();
            let shown = path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() && !is_foreign(&entry.file_name().to_string_lossy()) {
                folders.push(path);
            } else if kind.is_file()
                && wanted(&shown)
                && let Ok(text) = fs::read_to_string(&path)
            {
                found.insert(shown, text);
            }
        }
    }
    found
}

/// Directories with build output, downloads or fuzzing corpora.
fn is_foreign(folder: &str) -> bool {
    let hidden = folder.starts_with('.') && !matches!(folder, ".ci" | ".cargo" | ".github");
    hidden || matches!(folder, "target" | "node_modules" | "dist" | "__pycache__" | "corpus" | "results")
}
