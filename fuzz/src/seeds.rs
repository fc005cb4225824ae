//! Runs the committed seeds, and many mutations of them, through the entries of their targets.

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A target's name and its entry.
type Entry = (&'static str, fn(&[u8]));

/// Default number of inputs per target, and their time limit: a busy machine runs fewer.
const INPUTS: u64 = 400;
const TIME: Duration = Duration::from_secs(3);
/// Generous time limit for one input.
const SLOW: Duration = Duration::from_secs(10);
/// Maximum size of a generated input.
const LONGEST: usize = 64 << 10;
/// Bytes and texts that parsers treat in a special way.
const SPICE: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b"\"",
    b"\\",
    b"0",
    b"-1",
    b"ffffffffffffffff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\xc3\x28",
];

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    // From any crate of the workspace.
    let corpus: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus"].iter().collect();
    let listed = std::fs::read_dir(corpus.join(target)).unwrap_or_else(|e| panic!("{target} has no seeds: {e}"));
    let mut files: Vec<_> = listed.map(|e| e.expect("a folder that can be read").path()).collect();
    assert!(!files.is_empty(), "{target} has no seeds");
    files.sort();
    files.into_iter().map(|f| (f.clone(), std::fs::read(f).expect("a seed that can be read"))).collect()
}

/// # Panics
/// A target has no seeds, or an entry did not hold one.
pub fn all_hold(entries: &[Entry]) {
    for (target, entry) in entries {
        for (file, data) in seeds(target) {
            let held = catch_unwind(|| entry(&data));
            assert!(held.is_ok(), "{} does not hold", file.display());
        }
    }
}

/// A small substitute for `make fuzz` on every toolchain: the same inputs in the same order each time, or for
/// `FUZZ_SECONDS` on each target.
///
/// # Panics
/// An entry did not hold an input, which the message shows, or took far too long for it.
pub fn mutations_hold(entries: &[Entry]) {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let (most, time) = seconds.map_or((INPUTS, TIME), |s| (u64::MAX, Duration::from_secs(s)));
    for (target, entry) in entries {
        let seeds: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, data)| data).collect();
        let begun = Instant::now();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut made = 0;
        while made < most && begun.elapsed() < time {
            made += 1;
            let input = random.mutated(&seeds);
            let started = Instant::now();
            let held = catch_unwind(|| entry(&input));
            assert!(held.is_ok(), "{target} does not hold input {made}: {}", input.escape_ascii());
            assert!(started.elapsed() < SLOW, "{target} is slow with input {made}: {}", input.escape_ascii());
        }
        println!("{target}: {made} inputs held");
    }
}

/// Marsaglia's xorshift: the same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut data = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut data, seeds);
        }
        data.truncate(LONGEST);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(data.len() + 1);
        let to = (at + 1 + self.below(16)).min(data.len());
        match self.below(8) {
            0 if at < data.len() => data[at] ^= 1 << self.below(8),
            1 if at < data.len() => data[at] = self.below(256) as u8,
            2 => data.truncate(at),
            3 => drop(data.drain(at..to)),
            4 => {
                let again = data[at..to].repeat(1 + self.below(40));
                data.splice(at..at, again);
            }
            5 => drop(data.splice(at..to, SPICE[self.below(SPICE.len())].iter().copied())),
            6 => drop(data.splice(at..at, SPICE[self.below(SPICE.len())].iter().copied())),
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                data.splice(at.., other[from..].iter().copied());
            }
        }
    }
}
