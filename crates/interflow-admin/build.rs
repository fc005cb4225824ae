//! Makes the folder of the web UI where it has not been built, so that the crate compiles without Node, and has cargo
//! look at it again when it is.
fn main() {
    let dist = "../../ui/dist";
    // Cargo runs this at every build as long as the folder is missing.
    if let Err(e) = std::fs::create_dir_all(dist) {
        println!("cargo::warning=the web UI is left out: {dist}: {e}");
    }
    println!("cargo::rerun-if-changed={dist}");
}
