//! Runs every committed fuzz seed through its target's entry point, as regression tests.

#[path = "../../../fuzz/src/query.rs"]
mod query;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    seeds::all_hold(&query::ENTRIES);
}

#[test]
fn fuzz_seeds_pass() {
    seeds::mutations_hold(&query::ENTRIES);
}
