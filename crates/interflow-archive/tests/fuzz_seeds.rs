//! Runs every committed fuzz seed through its target, as a regression test.

#[path = "../../../fuzz/src/archive.rs"]
mod archive;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn fuzz_targets_hold_for_every_seed() {
    seeds::all_hold(&archive::ENTRIES);
}

#[test]
fn fuzz_targets_hold_for_mutated_seeds() {
    seeds::mutations_hold(&archive::ENTRIES);
}
