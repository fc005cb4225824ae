//! Runs every committed fuzz seed through its target's entry point, as regression tests.

#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

#[test]
fn fuzz_targets_hold_for_every_seed() {
    seeds::all_hold(&wire::ENTRIES);
}

#[test]
fn fuzz_targets_hold_for_mutated_seeds() {
    seeds::mutations_hold(&wire::ENTRIES);
}
