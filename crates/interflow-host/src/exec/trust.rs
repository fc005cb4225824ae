//! Files for the command's runtimes: a CA bundle, a Java truststore, scripts for Node and Bun, and a Wget start-up file.

use std::fs;
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, write_atomic};
use interflow_net::ca::CertificateAuthority;
use interflow_net::tls::pem;
use interflow_types::data_file::has_word;
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry};

use crate::data_dir::{DataDir, write_private};

/// Java's default truststore password. The store contains only public certificates.
pub const PASSWORD: &str = "changeit";

#[derive(Debug, Clone)]
pub struct TrustFiles {
    pub ca: PathBuf,
    /// The platform's CAs and Interflow's.
    pub bundle: PathBuf,
    pub node_shim: PathBuf,
    pub bun_shim: PathBuf,
    pub java_store: PathBuf,
    /// Start-up file for Wget, which has no variable for CAs.
    pub wgetrc: PathBuf,
}

const NODE_SHIM: &str = concat!(include_str!("proxy-variables.cjs"), include_str!("node-proxy.cjs"));
const BUN_SHIM: &str = concat!(include_str!("proxy-variables.cjs"), include_str!("bun-proxy.cjs"));

/// Where containers see their trust files.
pub(super) const CONTAINER_FOLDER: &str = "/etc/interflow-trust";

impl TrustFiles {
    /// The files of the CA at this path, the others by their names.
    fn placed(ca: PathBuf, place: impl Fn(&str) -> PathBuf) -> Self {
        Self {
            ca,
            bundle: place("bundle.pem"),
            node_shim: place("node-proxy.cjs"),
            bun_shim: place("bun-proxy.cjs"),
            java_store: place("java.p12"),
            wgetrc: place("wgetrc"),
        }
    }

    /// Writes the files into the data directory unless they already exist for this CA and these platform roots.
    pub fn write(home: &DataDir) -> Result<Self, String> {
        let ca = CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string())?;
        let dir = home.join("trust");
        fs::create_dir_all(&dir).map_err(|e| format!("{} cannot be created: {e}", dir.display()))?;
        let trust = Self::placed(home.ca().join("ca.pem"), |name| dir.join(name));
        // The Java store is only built when the bundle has changed.
        let bundle = bundle(&ca);
        let fresh = fs::read_to_string(&trust.bundle).is_ok_and(|old| old == bundle) && trust.java_store.exists();
        if !fresh {
            // The store first: the bundle marks both as current.
            write_file(&trust.java_store, &pkcs12(&ca)?)?;
            write_file(&trust.bundle, bundle.as_bytes())?;
        }
        write_file(&trust.node_shim, NODE_SHIM.as_bytes())?;
        write_file(&trust.bun_shim, BUN_SHIM.as_bytes())?;
        // Written each time, because the user's own file may have changed.
        write_file(&trust.wgetrc, wgetrc(&own_wgetrc(&trust.wgetrc), &trust.bundle).as_bytes())?;
        Ok(trust)
    }

    /// Copies them to a folder to mount in containers, without the user's own settings. Returns the folder, and the files
    /// as a container sees them.
    pub(super) fn write_for_containers(&self, home: &DataDir) -> Result<(PathBuf, Self), String> {
        let dir = home.join("trust").join("container");
        fs::create_dir_all(&dir).map_err(|e| format!("{} cannot be created: {e}", dir.display()))?;
        let inside = |name: &str| PathBuf::from(format!("{CONTAINER_FOLDER}/{name}"));
        // The bundle has the CA, too; its own folder has the key and is not mounted.
        let in_container = Self::placed(inside("bundle.pem"), inside);
        for from in [&self.bundle, &self.node_shim, &self.bun_shim, &self.java_store] {
            let bytes = fs::read(from).map_err(|e| format!("{} cannot be read: {e}", from.display()))?;
            write_public(&dir.join(from.file_name().unwrap_or_default()), &bytes)?;
        }
        write_public(&dir.join("wgetrc"), wgetrc("", &in_container.bundle).as_bytes())?;
        Ok((dir, in_container))
    }
}

/// The user's Wget start-up file, which Interflow's replaces.
fn own_wgetrc(interflow_wgetrc: &Path) -> String {
    let named = std::env::var_os("WGETRC").map(PathBuf::from);
    let usual = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".wgetrc"));
    // Under a nested `exec` the variable names our own file.
    let file = named.or(usual).filter(|path| path != interflow_wgetrc);
    file.and_then(|path| fs::read(path).ok()).map(|t| String::from_utf8_lossy(&t).into_owned()).unwrap_or_default()
}

/// The user's settings, except for proxies and CAs, plus these.
fn wgetrc(own: &str, bundle: &Path) -> String {
    const REPLACED: &str =
        "cacertificate cadirectory checkcertificate useproxy proxy httpproxy httpsproxy ftpproxy noproxy";
    // Wget ignores case, dashes and underscores in names.
    let name = |line: &str| {
        let name = line.split('=').next().unwrap_or_default();
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>()
    };
    let own_lines = own.lines().filter(|line| line.trim_start().starts_with('#') || !has_word(REPLACED, &name(line)));
    let mut text: String = own_lines.map(|line| format!("{line}\n")).collect();
    text.push_str(&format!("use_proxy = on\nca_certificate = {}\n", bundle.display()));
    text
}

/// Writes a file atomically: a running command may be reading it.
fn write_file(path: &PathBuf, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == bytes) { Ok(()) } else { write_private(path, bytes) }
}

/// Writes a file that every user of a container can read. On this machine, the data directory keeps others out.
fn write_public(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |e| format!("{} cannot be written: {e}", path.display());
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    write_atomic(path, bytes, FileAccess::Keep).map_err(failed)?;
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(failed)?;
    Ok(())
}

fn platform() -> Vec<Vec<u8>> {
    rustls_native_certs::load_native_certs().certs.into_iter().map(|c| c.to_vec()).collect()
}

fn bundle(ca: &CertificateAuthority) -> String {
    let platform = platform().into_iter().map(|der| pem("CERTIFICATE", &der));
    std::iter::once(ca.certificate_pem().to_owned()).chain(platform).collect()
}

/// Builds a PKCS#12 truststore of the platform's CAs and Interflow's.
pub fn pkcs12(ca: &CertificateAuthority) -> Result<Vec<u8>, String> {
    let mut store = KeyStore::new();
    let interflow = std::iter::once(("interflow".to_owned(), ca.certificate_der().to_vec()));
    let platform = platform().into_iter().enumerate().map(|(i, der)| (format!("platform-{i}"), der));
    for (name, der) in interflow.chain(platform) {
        // Skip platform roots that cannot be parsed; Java would not use them either.
        if let Ok(certificate) = Certificate::from_der(&der) {
            store.add_entry(&name, KeyStoreEntry::Certificate(certificate));
        }
    }
    store.writer(PASSWORD).write().map_err(|e| format!("the Java truststore cannot be created: {e}"))
}

#[cfg(test)]
mod tests {
    use p12_keystore::Pkcs12ImportPolicy;

    use super::*;

    #[test]
    fn trust_files_contain_the_ca_and_are_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        home.create().unwrap();
        let trust = TrustFiles::write(&home).unwrap();
        let ca = fs::read_to_string(&trust.ca).unwrap();
        assert!(fs::read_to_string(&trust.bundle).unwrap().starts_with(&ca));
        let written = fs::metadata(&trust.java_store).unwrap().modified().unwrap();
        TrustFiles::write(&home).unwrap();
        assert_eq!(fs::metadata(&trust.java_store).unwrap().modified().unwrap(), written);
        let store =
            KeyStore::from_pkcs12(&fs::read(&trust.java_store).unwrap(), PASSWORD, Pkcs12ImportPolicy::Strict).unwrap();
        assert!(store.entries().any(|(name, _)| name == "interflow"));
    }

    #[test]
    fn wgetrc_keeps_user_settings_except_proxy_and_ca() {
        let own = "# mine: proxy\ntries = 2\nHttps_Proxy = http://old:1\nca-certificate=/old\nuse_proxy = off\nuser_agent = x=y";
        let text = wgetrc(own, Path::new("/h/b.pem"));
        assert_eq!(text, "# mine: proxy\ntries = 2\nuser_agent = x=y\nuse_proxy = on\nca_certificate = /h/b.pem\n");
    }
}
