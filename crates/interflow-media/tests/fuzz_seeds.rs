//! Runs every committed fuzz seed through its target, as a regression test.

#[path = "../../../fuzz/src/media.rs"]
mod media;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    seeds::all_hold(&media::ENTRIES);
}

#[test]
fn what_is_made_from_the_seeds_holds() {
    seeds::mutations_hold(&media::ENTRIES);
}
