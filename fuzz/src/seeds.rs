//! The committed seeds as a test: each goes through the entry of its target.

use std::path::PathBuf;

/// A target's name and its entry.
type Entry = (&'static str, fn(&[u8]));

/// # Panics
/// A target has no seeds, or an entry did not hold one.
pub fn all_hold(entries: &[Entry]) {
    // From any crate of the workspace.
    let corpus: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus"].iter().collect();
    for (target, entry) in entries {
        let listed = std::fs::read_dir(corpus.join(target)).unwrap_or_else(|e| panic!("{target} has no seeds: {e}"));
        let seeds: Vec<_> = listed.map(|e| e.expect("a folder that can be read").path()).collect();
        assert!(!seeds.is_empty(), "{target} has no seeds");
        for seed in seeds {
            let data = std::fs::read(&seed).expect("a seed that can be read");
            let held = std::panic::catch_unwind(|| entry(&data));
            assert!(held.is_ok(), "{} does not hold", seed.display());
        }
    }
}
