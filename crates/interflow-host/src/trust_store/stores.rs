//! Commands that install and remove the CA for each kind of trust store.

use std::fmt;
use std::path::{Path, PathBuf};

use super::machine::{ANCHORS, JavaKeytool, OsFamily, TrustEnvironment};

/// A trust store. Installing and removing are idempotent.
pub(super) struct TrustStore {
    pub(super) name: &'static str,
    pub(super) install: Vec<StoreCommand>,
    pub(super) uninstall: Vec<StoreCommand>,
}

type CommandWords = Vec<String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreCommand {
    Run(CommandWords),
    /// Repeats the second command while the first succeeds.
    WhileThere {
        there: CommandWords,
        remove: CommandWords,
    },
}

impl fmt::Display for StoreCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(command) => format_command(command, f),
            Self::WhileThere { remove, .. } => {
                format_command(remove, f)?;
                f.write_str("   (repeat while present)")
            }
        }
    }
}

fn format_command(command: &CommandWords, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, word) in command.iter().enumerate() {
        let gap = if i > 0 { " " } else { "" };
        let plain = |c: char| c.is_alphanumeric() || "/.,:_=-+\\".contains(c);
        if word.chars().all(plain) { write!(f, "{gap}{word}")? } else { write!(f, "{gap}'{word}'")? }
    }
    Ok(())
}

const LABEL: &str = "Interflow";
/// Alias for Java, which is case-insensitive.
const ALIAS: &str = "interflow";
/// Alias that Debian uses when it copies system certificates to Java; it never removes them.
const HOST_ANCHOR_FILE: &str = "debian:interflow.pem";
const KEYCHAIN: &str = "/Library/Keychains/System.keychain";

pub(super) fn stores(machine: &TrustEnvironment) -> Vec<TrustStore> {
    let mut stores = match machine.system {
        OsFamily::Linux => linux(machine),
        OsFamily::MacOs => vec![macos(machine)],
        OsFamily::Windows => vec![windows(machine)],
    };
    stores.extend(machine.nss.iter().map(|database| nss(database, &machine.ca)));
    // After the system's store, because Debian updates Java's from it.
    stores.extend(machine.keytool.as_ref().map(|keytool| java(keytool, machine)));
    stores
}

fn words(words: &[&str]) -> CommandWords {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// Commands on system files run as root, through `sudo` if necessary.
fn as_root(machine: &TrustEnvironment, command: &[&str]) -> CommandWords {
    if machine.root { words(command) } else { [words(&["sudo"]), words(command)].concat() }
}

fn linux(machine: &TrustEnvironment) -> Vec<TrustStore> {
    let there = ANCHORS.iter().filter(|(_, dir, ..)| machine.anchors.contains(&PathBuf::from(dir)));
    there
        .map(|(name, dir, file, update)| {
            let path = format!("{dir}/{file}");
            let ca = machine.ca.display().to_string();
            // The data directory is private; the copy must be world-readable.
            let put = as_root(machine, &["install", "-m", "644", &ca, &path]);
            let update = StoreCommand::Run(as_root(machine, update));
            TrustStore {
                name,
                install: vec![StoreCommand::Run(put), update.clone()],
                uninstall: vec![StoreCommand::Run(as_root(machine, &["rm", "-f", &path])), update],
            }
        })
        .collect()
}

fn macos(machine: &TrustEnvironment) -> TrustStore {
    let remove = machine.fingerprints.iter().map(|sha1| {
        let there = format!("security find-certificate -a -Z {KEYCHAIN} | grep -q {sha1}");
        StoreCommand::WhileThere {
            there: words(&["sh", "-c", &there]),
            // `-t` also removes the trust settings.
            remove: as_root(machine, &["security", "delete-certificate", "-Z", sha1, "-t", KEYCHAIN]),
        }
    });
    let uninstall: Vec<StoreCommand> = remove.collect();
    let ca = machine.ca.display().to_string();
    let add = StoreCommand::Run(as_root(
        machine,
        &["security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", KEYCHAIN, &ca],
    ));
    // Earlier certificates are removed first, so that exactly one remains.
    TrustStore { name: "macOS keychain", install: [uninstall.clone(), vec![add]].concat(), uninstall }
}

fn windows(machine: &TrustEnvironment) -> TrustStore {
    let remove = machine.fingerprints.iter().map(|sha1| StoreCommand::WhileThere {
        there: words(&["certutil", "-user", "-verifystore", "Root", sha1]),
        remove: words(&["certutil", "-user", "-delstore", "Root", sha1]),
    });
    let uninstall: Vec<StoreCommand> = remove.collect();
    let add = StoreCommand::Run(words(&["certutil", "-user", "-addstore", "Root", &machine.ca.display().to_string()]));
    TrustStore { name: "Windows, this user", install: [uninstall.clone(), vec![add]].concat(), uninstall }
}

fn nss(database: &Path, ca: &Path) -> TrustStore {
    let database = format!("sql:{}", database.display());
    let remove = StoreCommand::WhileThere {
        there: words(&["certutil", "-d", &database, "-L", "-n", LABEL]),
        remove: words(&["certutil", "-d", &database, "-D", "-n", LABEL]),
    };
    let ca = ca.display().to_string();
    // `C` trusts it as a CA for TLS servers; the two other fields are for e-mail and code.
    let add = StoreCommand::Run(words(&["certutil", "-d", &database, "-A", "-t", "C,,", "-n", LABEL, "-i", &ca]));
    TrustStore { name: "NSS (Firefox, Chrome)", install: vec![remove.clone(), add], uninstall: vec![remove] }
}

fn java(keytool: &JavaKeytool, machine: &TrustEnvironment) -> TrustStore {
    let program = keytool.path.display().to_string();
    let command = |action: &[&str], alias: &str| {
        let entry = ["-cacerts", "-storepass", "changeit", "-alias", alias];
        let all = [&[program.as_str()], action, &entry].concat();
        if keytool.writable || machine.system == OsFamily::Windows { words(&all) } else { as_root(machine, &all) }
    };
    let remove = |alias: &str| StoreCommand::WhileThere {
        // Reading the store needs no write permission.
        there: words(&[&program, "-list", "-cacerts", "-storepass", "changeit", "-alias", alias]),
        remove: command(&["-delete"], alias),
    };
    let uninstall = vec![remove(HOST_ANCHOR_FILE), remove(ALIAS)];
    let ca = machine.ca.display().to_string();
    let add = StoreCommand::Run(command(&["-importcert", "-noprompt", "-file", &ca], ALIAS));
    TrustStore { name: "Java", install: [uninstall.clone(), vec![add]].concat(), uninstall }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(system: OsFamily) -> TrustEnvironment {
        TrustEnvironment {
            system,
            root: false,
            ca: "/h/ca/ca.pem".into(),
            fingerprints: vec!["AA11".into(), "BB22".into()],
            anchors: Vec::new(),
            nss: Vec::new(),
            keytool: None,
        }
    }

    fn lines(steps: &[StoreCommand]) -> Vec<String> {
        steps.iter().map(ToString::to_string).collect()
    }

    /// Install and remove commands of the machine's only store.
    fn only(machine: &TrustEnvironment) -> (Vec<String>, Vec<String>) {
        let stores = stores(machine);
        assert_eq!(stores.len(), 1);
        (lines(&stores[0].install), lines(&stores[0].uninstall))
    }

    #[test]
    fn debian_installs_a_world_readable_file_and_refreshes_the_bundle() {
        let machine =
            TrustEnvironment { anchors: vec!["/usr/local/share/ca-certificates".into()], ..machine(OsFamily::Linux) };
        let (install, uninstall) = only(&machine);
        let file = "/usr/local/share/ca-certificates/interflow.crt";
        assert_eq!(
            install,
            [format!("sudo install -m 644 /h/ca/ca.pem {file}"), "sudo update-ca-certificates --fresh".to_owned()]
        );
        assert_eq!(uninstall, [format!("sudo rm -f {file}"), "sudo update-ca-certificates --fresh".to_owned()]);
        let (install, _) = only(&TrustEnvironment { root: true, ..machine });
        assert_eq!(install[1], "update-ca-certificates --fresh");
    }

    #[test]
    fn fedora_installs_a_trust_anchor() {
        let machine = TrustEnvironment {
            anchors: vec!["/etc/pki/ca-trust/source/anchors".into()],
            root: true,
            ..machine(OsFamily::Linux)
        };
        let (install, uninstall) = only(&machine);
        let file = "/etc/pki/ca-trust/source/anchors/interflow.pem";
        assert_eq!(install, [format!("install -m 644 /h/ca/ca.pem {file}"), "update-ca-trust extract".to_owned()]);
        assert_eq!(uninstall, [format!("rm -f {file}"), "update-ca-trust extract".to_owned()]);
    }

    #[test]
    fn macos_uses_the_system_keychain_and_removes_by_fingerprint() {
        let machine = TrustEnvironment { ca: "/U/a b/ca.pem".into(), ..machine(OsFamily::MacOs) };
        let (install, uninstall) = only(&machine);
        let gone = ["AA11", "BB22"].map(|sha1| {
            format!(
                "sudo security delete-certificate -Z {sha1} -t /Library/Keychains/System.keychain   (repeat while present)"
            )
        });
        assert_eq!(uninstall, gone);
        assert_eq!(install[..2], gone);
        assert_eq!(
            install[2],
            "sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain '/U/a b/ca.pem'"
        );
        let StoreCommand::WhileThere { there, .. } = &stores(&machine)[0].uninstall[0] else { panic!() };
        assert_eq!(there[2], "security find-certificate -a -Z /Library/Keychains/System.keychain | grep -q AA11");
    }

    #[test]
    fn windows_uses_the_user_store_and_removes_by_fingerprint() {
        let machine = TrustEnvironment { ca: r"C:\h\ca.pem".into(), ..machine(OsFamily::Windows) };
        let (install, uninstall) = only(&machine);
        assert_eq!(install[2], r"certutil -user -addstore Root C:\h\ca.pem");
        let gone =
            ["AA11", "BB22"].map(|sha1| format!("certutil -user -delstore Root {sha1}   (repeat while present)"));
        assert_eq!(uninstall, gone);
        let StoreCommand::WhileThere { there, .. } = &stores(&machine)[0].uninstall[1] else { panic!() };
        assert_eq!(there.join(" "), "certutil -user -verifystore Root BB22");
    }

    #[test]
    fn each_nss_database_contains_the_ca_once() {
        let machine = TrustEnvironment { nss: vec!["/u/.pki/nssdb".into()], ..machine(OsFamily::Linux) };
        let (install, uninstall) = only(&machine);
        let gone = "certutil -d sql:/u/.pki/nssdb -D -n Interflow   (repeat while present)";
        assert_eq!(install, [gone, "certutil -d sql:/u/.pki/nssdb -A -t C,, -n Interflow -i /h/ca/ca.pem"]);
        assert_eq!(uninstall, [gone]);
    }

    #[test]
    fn java_keystore_has_one_alias_and_removes_the_debian_one() {
        let keytool = JavaKeytool { path: "/j/bin/keytool".into(), writable: true };
        let mut machine = TrustEnvironment { keytool: Some(keytool), ..machine(OsFamily::Linux) };
        let (install, uninstall) = only(&machine);
        let entry = "-cacerts -storepass changeit -alias";
        let gone = ["debian:interflow.pem", "interflow"]
            .map(|alias| format!("/j/bin/keytool -delete {entry} {alias}   (repeat while present)"));
        assert_eq!(uninstall, gone);
        assert_eq!(install[..2], gone);
        assert_eq!(install[2], format!("/j/bin/keytool -importcert -noprompt -file /h/ca/ca.pem {entry} interflow"));
        machine.keytool.as_mut().unwrap().writable = false;
        let (install, _) = only(&machine);
        assert!(install.iter().all(|line| line.starts_with("sudo /j/bin/keytool ")), "{install:?}");
        let StoreCommand::WhileThere { there, .. } = &stores(&machine)[0].install[0] else { panic!() };
        assert_eq!(there.join(" "), format!("/j/bin/keytool -list {entry} debian:interflow.pem"));
    }
}
