//! Runs every committed fuzz seed through its target's entry point, as regression tests.

#[path = "../../../fuzz/src/query.rs"]
mod query;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn fuzz_targets_hold_for_every_seed() {
    seeds::all_hold(&query::ENTRIES);
}

#[test]
fn fuzz_targets_hold_for_mutated_seeds() {
    seeds::mutations_hold(&query::ENTRIES);
}
