//! Runs every committed fuzz seed through its target, as a regression test.

#[path = "../../../fuzz/src/archive.rs"]
mod archive;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    seeds::all_hold(&archive::ENTRIES);
}

#[test]
fn what_is_made_from_the_seeds_holds() {
    seeds::mutations_hold(&archive::ENTRIES);
}
