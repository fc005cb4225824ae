//! Runs every committed fuzz seed through its target's entry point, as regression tests.

#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

#[test]
fn every_seed_holds() {
    seeds::all_hold(&wire::ENTRIES);
}

#[test]
fn fuzz_seeds_pass() {
    seeds::mutations_hold(&wire::ENTRIES);
}
