//! Has the linker fold functions of equal machine code, of which generic code makes many.
use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = var("TARGET").unwrap_or_default();
    // Only there, Rust's own linker is the default: others do not know the option.
    if target == "x86_64-unknown-linux-gnu" && var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
