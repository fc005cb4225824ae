//! Creates the folder of the web UI if it has not been built, so that the crate compiles without Node, and makes cargo
//! watch the folder.
fn main() {
    let dist = "../../ui/dist";
    // While the folder is missing, Cargo would run this script at every build.
    if let Err(e) = std::fs::create_dir_all(dist) {
        println!("cargo::warning=the web UI is left out: {dist}: {e}");
    }
    println!("cargo::rerun-if-changed={dist}");
}
