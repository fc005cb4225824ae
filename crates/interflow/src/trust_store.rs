//! The trust stores of systems and runtimes: what would be done is said first, and asked about.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::ca::confirm;
use crate::home::Home;

/// One store, and the commands that put our CA in or take it out.
struct TrustStore {
    name: &'static str,
    install: Vec<Vec<String>>,
    uninstall: Vec<Vec<String>>,
}

/// The name under which the CA stands in stores that name their entries.
const LABEL: &str = "Interflow";

/// Makes the stores of this machine trust the CA.
pub fn install(home: &Home, yes: bool, dry_run: bool) -> Result<(), Failure> {
    interflow_net::ca::Ca::open_or_create(&home.ca()).map_err(|e| e.to_string())?;
    let stores = stores(&home.ca().join("ca.pem"), false);
    let warning = "Whoever has this CA's key can then read this machine's TLS: keep the data folder private.";
    act(&stores, |s| &s.install, warning, yes, dry_run)
}

/// Takes the CA out again.
pub fn uninstall(home: &Home, yes: bool, dry_run: bool) -> Result<(), Failure> {
    act(&stores(&home.ca().join("ca.pem"), true), |s| &s.uninstall, "", yes, dry_run)
}

fn act(
    stores: &[TrustStore],
    commands: impl Fn(&TrustStore) -> &Vec<Vec<String>>,
    warning: &str,
    yes: bool,
    dry_run: bool,
) -> Result<(), Failure> {
    if stores.is_empty() {
        let text = "no trust store that Interflow knows was found; `interflow ca export` gives the certificate";
        return Err(Failure::Failed(text.into()));
    }
    for store in stores {
        anstream::println!("{}:", store.name);
        for command in commands(store) {
            anstream::println!("  {}", command.join(" "));
        }
    }
    if dry_run || (!yes && !confirm(&format!("These commands are run. {warning}"))?) {
        return Ok(());
    }
    let mut failed = Vec::new();
    for store in stores {
        match commands(store).iter().try_for_each(|c| run(c)) {
            Ok(()) => anstream::println!("{}: done", store.name),
            Err(e) => failed.push(format!("{}: {e}", store.name)),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed.join("\n"))) }
}

fn run(command: &[String]) -> Result<(), String> {
    let (program, args) = command.split_first().ok_or("an empty command")?;
    let status =
        Command::new(program).args(args).status().map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", command.join(" "))) }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// The stores that this machine has. `leaving` looks for what else has to go.
fn stores(ca: &Path, leaving: bool) -> Vec<TrustStore> {
    let ca_text = ca.display().to_string();
    let mut found = system(&ca_text);
    found.extend(nss(&ca_text));
    found.extend(java(&ca_text, leaving));
    found
}

/// Commands that write below `/etc` or `/usr` run as root.
fn as_root(command: &[&str]) -> Vec<String> {
    let root = cfg!(unix) && std::env::var("USER").is_ok_and(|u| u == "root") || in_root_home();
    if root { words(command) } else { [words(&["sudo"]), words(command)].concat() }
}

fn in_root_home() -> bool {
    std::env::var("HOME").is_ok_and(|h| h == "/root")
}

fn system(ca: &str) -> Vec<TrustStore> {
    if cfg!(target_os = "macos") {
        let keychain = "/Library/Keychains/System.keychain";
        return vec![TrustStore {
            name: "macOS keychain",
            install: vec![as_root(&["security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", keychain, ca])],
            uninstall: vec![as_root(&["security", "remove-trusted-cert", "-d", ca])],
        }];
    }
    if cfg!(windows) {
        return vec![TrustStore {
            name: "Windows, this user",
            install: vec![words(&["certutil", "-user", "-addstore", "Root", ca])],
            uninstall: vec![words(&["certutil", "-user", "-delstore", "Root", LABEL])],
        }];
    }
    let mut found = Vec::new();
    // Without `--fresh` Debian leaves links to what is gone.
    let debian = [&["update-ca-certificates"][..], &["update-ca-certificates", "--fresh"]];
    let fedora = [&["update-ca-trust", "extract"][..]; 2];
    for (name, folder, file, [update, update_without]) in [
        ("Debian, Ubuntu", "/usr/local/share/ca-certificates", "interflow.crt", debian),
        ("Fedora, RHEL", "/etc/pki/ca-trust/source/anchors", "interflow.pem", fedora),
    ] {
        if Path::new(folder).is_dir() {
            let place = format!("{folder}/{file}");
            found.push(TrustStore {
                name,
                install: vec![as_root(&["cp", ca, &place]), as_root(update)],
                uninstall: vec![as_root(&["rm", "-f", &place]), as_root(update_without)],
            });
        }
    }
    found
}

/// Stores of Firefox and Chrome on Linux, when NSS's tool is there.
fn nss(ca: &str) -> Vec<TrustStore> {
    if !on_path("certutil") || cfg!(windows) {
        return Vec::new();
    }
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let mut folders = vec![home.join(".pki/nssdb")];
    for profiles in [".mozilla/firefox", "snap/firefox/common/.mozilla/firefox"] {
        let entries = std::fs::read_dir(home.join(profiles)).into_iter().flatten().flatten();
        folders.extend(entries.map(|e| e.path()));
    }
    let databases = folders.into_iter().filter(|f| f.join("cert9.db").exists());
    databases
        .map(|folder| {
            let database = format!("sql:{}", folder.display());
            TrustStore {
                name: "NSS (Firefox, Chrome)",
                install: vec![words(&["certutil", "-d", &database, "-A", "-t", "C,,", "-n", LABEL, "-i", ca])],
                uninstall: vec![words(&["certutil", "-d", &database, "-D", "-n", LABEL])],
            }
        })
        .collect()
}

/// Java's own store.
fn java(ca: &str, leaving: bool) -> Vec<TrustStore> {
    if !on_path("keytool") {
        return Vec::new();
    }
    let keytool = |action: &[&str], alias: &str| {
        let entry = ["-cacerts", "-storepass", "changeit", "-alias", alias];
        [words(&["keytool"]), words(action), words(&entry)].concat()
    };
    let install = keytool(&["-importcert", "-noprompt", "-file", ca], "interflow");
    let mut uninstall = vec![keytool(&["-delete"], "interflow")];
    // Debian hands the system's certificates on to Java, and never takes one back.
    const HANDED_ON: &str = "debian:interflow.pem";
    if leaving && succeeds(&keytool(&["-list"], HANDED_ON)) {
        uninstall.push(keytool(&["-delete"], HANDED_ON));
    }
    vec![TrustStore { name: "Java", install: vec![install], uninstall }]
}

fn succeeds(command: &[String]) -> bool {
    let Some((program, args)) = command.split_first() else { return false };
    let quiet = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_can_be_left_again() {
        for store in stores(Path::new("/x/ca.pem"), false) {
            assert!(!store.install.is_empty() && !store.uninstall.is_empty(), "{}", store.name);
            assert!(store.install.iter().flatten().any(|w| w.contains("ca.pem")), "{}", store.name);
        }
    }
}
