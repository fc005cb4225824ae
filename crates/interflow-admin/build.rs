//! Embeds the files of the web UI, each as its Brotli variant if it has one, and the table of metrics. Without a UI, the
//! crate compiles without Node.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const DIST: &str = "../../ui/dist";
const METRICS: &str = "data/metrics.txt";

fn main() {
    let dist = Path::new(DIST);
    // While the folder is missing, Cargo would run this script at every build.
    if let Err(e) = fs::create_dir_all(dist) {
        println!("cargo::warning=the web UI is left out: {}: {e}", dist.display());
    }
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed={METRICS}");
    let mut table = String::from("[\n");
    list(dist, &mut table);
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("ui_assets.rs"), table + "]").expect("the table can be written");
    let metrics = fs::read_to_string(METRICS).expect("the file of metrics can be read");
    fs::write(Path::new(&out).join("metrics.rs"), metric_statics(&metrics)).expect("the metrics can be written");
}

/// A static per metric, and the table of all.
fn metric_statics(file: &str) -> String {
    let (mut statics, mut table) = (String::new(), String::new());
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(subsystem) = line.strip_prefix("## ") {
            let end = if table.is_empty() { "" } else { "])," };
            let _ = write!(table, "{end} ({subsystem:?}, &[");
            continue;
        }
        let fields: Vec<_> = line.split(" | ").map(str::trim).collect();
        let [name, kind, metric, labels, help] = fields[..] else { panic!("{METRICS}: `{line}` has no five fields") };
        let labels: Vec<_> = labels.split_whitespace().collect();
        let family = format!(
            "MetricFamily {{ name: {metric:?}, kind: MetricKind::{kind}, labels: &{labels:?}, help: {help:?} }}"
        );
        let _ = writeln!(statics, "pub static {name}: MetricFamily = {family};");
        let _ = write!(table, "&{name}, ");
    }
    format!("{statics}/// All of them, by subsystem.\npub static TABLE: &MetricTable = &[{table}])];\n")
}

fn list(folder: &Path, table: &mut String) {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let compressed = path.with_added_extension("br");
        if path.is_dir() {
            list(&path, table);
        } else if !compressed.exists()
            && let Ok(name) = path.strip_prefix(DIST)
        {
            let name = name.to_string_lossy().replace('\\', "/");
            // The path of this folder stays out of the source: positions in it would differ, and by them the binary.
            let file = format!("/{DIST}/{name}");
            let _ = writeln!(table, "    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),");
        }
    }
}
