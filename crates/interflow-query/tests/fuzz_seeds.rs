//! Runs every committed fuzz seed through the entry of its target, so that each finding stays found.

#[path = "../../../fuzz/src/query.rs"]
mod query;

#[test]
fn every_seed_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    for (target, entry) in query::ENTRIES {
        let seeds: Vec<_> =
            std::fs::read_dir(format!("{corpus}/{target}")).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(!seeds.is_empty(), "{target} has no seeds");
        for seed in seeds {
            let data = std::fs::read(&seed).unwrap();
            let held = std::panic::catch_unwind(|| entry(&data));
            assert!(held.is_ok(), "{} does not hold", seed.display());
        }
    }
}
