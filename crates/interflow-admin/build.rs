//! Embeds the files of the web UI, each as its Brotli variant if it has one. Without a UI, the crate compiles without Node.

use std::path::Path;
use std::{env, fs};

fn main() {
    let dist = Path::new("../../ui/dist");
    // While the folder is missing, Cargo would run this script at every build.
    if let Err(e) = fs::create_dir_all(dist) {
        println!("cargo::warning=the web UI is left out: {}: {e}", dist.display());
    }
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut table = String::from("[\n");
    if let Ok(dist) = dist.canonicalize() {
        list(&dist, &dist, &mut table);
    }
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("ui_assets.rs"), table + "]").expect("the table can be written");
}

fn list(root: &Path, folder: &Path, table: &mut String) {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let compressed = path.with_added_extension("br");
        if path.is_dir() {
            list(root, &path, table);
        } else if !compressed.exists()
            && let Ok(name) = path.strip_prefix(root)
        {
            let name = name.to_string_lossy().replace('\\', "/");
            table.push_str(&format!("    ({name:?}, include_bytes!({path:?})),\n"));
        }
    }
}
