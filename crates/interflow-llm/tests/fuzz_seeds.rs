//! Runs every committed fuzz seed through its target's entry point, as regression tests.

#[path = "../../../fuzz/src/llm.rs"]
mod llm;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn fuzz_targets_hold_for_every_seed() {
    seeds::all_hold(&llm::ENTRIES);
}

#[test]
fn fuzz_targets_hold_for_mutated_seeds() {
    seeds::mutations_hold(&llm::ENTRIES);
}
