//! Runs every committed fuzz seed through the entry of its target, so that each finding stays found.

#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

#[test]
fn every_seed_holds() {
    seeds::all_hold(&wire::ENTRIES);
}

#[test]
fn what_is_made_from_the_seeds_holds() {
    seeds::mutations_hold(&wire::ENTRIES);
}
