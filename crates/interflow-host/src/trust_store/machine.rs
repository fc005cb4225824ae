//! Detects the trust stores of this machine.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha1::{Digest as _, Sha1};

use crate::data_dir::DataDir;

/// CA directories of Linux distributions: name, path, file name, and the command that updates the store. Without
/// `--fresh`, Debian keeps dangling links and does not replace them.
pub(super) const ANCHORS: [(&str, &str, &str, &[&str]); 2] = [
    ("Debian, Ubuntu", "/usr/local/share/ca-certificates", "interflow.crt", &["update-ca-certificates", "--fresh"]),
    ("Fedora, RHEL", "/etc/pki/ca-trust/source/anchors", "interflow.pem", &["update-ca-trust", "extract"]),
];

/// Operating system families with different trust stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OsFamily {
    Linux,
    MacOs,
    Windows,
}

#[derive(Clone, Debug)]
pub(super) struct JavaKeytool {
    /// Canonical path.
    pub(super) path: PathBuf,
    /// Whether the user may write Java's shared trust store.
    pub(super) writable: bool,
}

#[derive(Clone, Debug)]
pub(super) struct TrustEnvironment {
    pub(super) system: OsFamily,
    pub(super) root: bool,
    pub(super) ca: PathBuf,
    /// SHA-1 fingerprints (upper-case hex) of the current CA and of those before `ca rotate`.
    pub(super) fingerprints: Vec<String>,
    /// Existing directories of the system's CAs.
    pub(super) anchors: Vec<PathBuf>,
    /// NSS databases of Firefox and Chrome, if `certutil` is installed.
    pub(super) nss: Vec<PathBuf>,
    pub(super) keytool: Option<JavaKeytool>,
}

impl TrustEnvironment {
    pub(super) fn detect(home: &DataDir) -> Self {
        let system = match () {
            () if cfg!(target_os = "macos") => OsFamily::MacOs,
            () if cfg!(windows) => OsFamily::Windows,
            () => OsFamily::Linux,
        };
        let dirs = ANCHORS.iter().map(|(_, dir, ..)| PathBuf::from(dir));
        Self {
            system,
            root: is_root(),
            ca: home.ca().join("ca.pem"),
            fingerprints: fingerprints(&home.ca()),
            anchors: dirs.filter(|dir| dir.is_dir()).collect(),
            nss: nss(),
            keytool: keytool(),
        }
    }
}

fn is_root() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    false
}

/// SHA-1 fingerprints of the current certificate, then of earlier ones: stores are searched by them.
fn fingerprints(ca: &Path) -> Vec<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(ca).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.retain(|f| {
        let name = f.file_name().unwrap_or_default().to_string_lossy();
        name == "ca.pem" || (name.starts_with("ca-") && name.ends_with(".pem"))
    });
    files.sort_by_key(|f| (!f.ends_with("ca.pem"), f.clone()));
    let certificates = files.iter().filter_map(|f| CertificateDer::from_pem_file(f).ok());
    certificates.map(|der| Sha1::digest(&der).iter().map(|b| format!("{b:02X}")).collect()).collect()
}

fn nss() -> Vec<PathBuf> {
    // Windows has an unrelated program of this name.
    if cfg!(windows) || find("certutil").is_none() {
        return Vec::new();
    }
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let mut dirs = vec![home.join(".pki/nssdb"), home.join("snap/chromium/current/.pki/nssdb")];
    for profiles in
        [".mozilla/firefox", "snap/firefox/common/.mozilla/firefox", "Library/Application Support/Firefox/Profiles"]
    {
        let entries = fs::read_dir(home.join(profiles)).into_iter().flatten().flatten();
        dirs.extend(entries.map(|e| e.path()));
    }
    // A directory without a database is not a profile.
    dirs.retain(|f| f.join("cert9.db").exists());
    dirs
}

fn keytool() -> Option<JavaKeytool> {
    let path = fs::canonicalize(find("keytool")?).ok()?;
    let java = path.parent()?.parent()?;
    let stores = ["lib/security/cacerts", "jre/lib/security/cacerts"].map(|store| java.join(store));
    let writable = stores.iter().any(|store| OpenOptions::new().append(true).open(store).is_ok());
    Some(JavaKeytool { path, writable })
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).map(|dir| dir.join(&program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use interflow_net::ca::{CaOptions, CertificateAuthority};

    use super::*;

    #[test]
    fn archived_ca_certificates_are_identified_by_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        CertificateAuthority::open_or_create(dir.path()).unwrap();
        let first = fingerprints(dir.path());
        CertificateAuthority::rotate(dir.path(), &CaOptions::default()).unwrap();
        let both = fingerprints(dir.path());
        assert_eq!((first.len(), both.len()), (1, 2));
        assert!(both[1] == first[0] && both[0] != first[0] && both[0].len() == 40, "{both:?}");
    }
}
