//! The CA's files: `ca.pem`, which is public, and `ca.key`, which only its user may read.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use interflow_files::{FileAccess, create_private_dir, optional, owner_only, write_atomic};
use interflow_types::{Error, ErrorKind, ErrorSource};
use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::issue;
use crate::tls::pem;

const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";

pub(super) struct CaFiles {
    pub(super) pem: String,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: KeyPair,
}

fn config_error(message: String) -> Error {
    Error::new(ErrorKind::Internal, message).with_error_source(ErrorSource::Config)
}

fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    config_error(format!("{what} {}", path.display())).with_source(error)
}

/// Locks the folder until the returned file is dropped, so that concurrent first starts create one CA. Blocks while
/// another process holds the lock.
pub(super) fn lock(dir: &Path) -> Result<File, Error> {
    make_folder(dir)?;
    let path = dir.join(".lock");
    let file = owner_only(OpenOptions::new().create(true).truncate(false).write(true))
        .open(&path)
        .map_err(|e| io_error("the CA's folder cannot be written:", dir, e))?;
    // Released by the operating system when the file is closed, also after a crash.
    file.lock().map_err(|e| io_error("the CA's folder cannot be locked:", dir, e))?;
    Ok(file)
}

/// Creates a folder that only its user may enter, unless it exists.
pub(super) fn make_folder(dir: &Path) -> Result<(), Error> {
    create_private_dir(dir).map_err(|e| io_error("the CA's folder cannot be made:", dir, e))
}

/// Reads both files; `None` if neither exists.
pub(super) fn read(dir: &Path) -> Result<Option<CaFiles>, Error> {
    let (pem_path, key_path) = (dir.join(CERTIFICATE_FILE), dir.join(KEY_FILE));
    let pem = optional(std::fs::read_to_string(&pem_path))
        .map_err(|e| io_error("the CA's certificate cannot be read:", &pem_path, e))?;
    let key = optional(File::open(&key_path)).map_err(|e| io_error("the CA's key cannot be read:", &key_path, e))?;
    let (pem, key) = match (pem, key) {
        (None, None) => return Ok(None),
        (Some(pem), Some(key)) => (pem, key),
        // Not replaced silently: a new CA would have to be installed in every trust store again.
        (Some(_), None) => return Err(incomplete_pair_error(&key_path, &pem_path)),
        (None, Some(_)) => return Err(incomplete_pair_error(&pem_path, &key_path)),
    };
    // Checked on the opened file rather than the path, so that the file cannot be replaced in between.
    refuse_open_key(&key, &key_path)?;
    let key = io::read_to_string(key).map_err(|e| io_error("the CA's key cannot be read:", &key_path, e))?;
    let at = |path: &Path| path.display().to_string();
    parse(pem, &key, &at(&pem_path), &at(&key_path)).map(Some)
}

/// Reads both texts in PEM; `pem_place` and `key_place` say in errors where they are from.
pub(super) fn parse(pem: String, key: &str, pem_place: &str, key_place: &str) -> Result<CaFiles, Error> {
    let key = KeyPair::from_pem(key).map_err(|e| {
        let how = "it must be an unencrypted key in PEM (PKCS#8, or what `openssl pkey` writes)";
        config_error(format!("the CA's key {key_place} cannot be used: {e}; {how}"))
    })?;
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| config_error(format!("the CA's certificate {pem_place} is not PEM: {e}")))?;
    Ok(CaFiles { pem, chain, key })
}

fn incomplete_pair_error(missing: &Path, there: &Path) -> Error {
    config_error(format!(
        "{} is missing although {} is there: put it back, or make a new CA with `interflow ca rotate`",
        missing.display(),
        there.display()
    ))
}

/// Refuses a key that other users can read: whoever has it can impersonate any site to clients that trust the CA.
#[cfg(unix)]
fn refuse_open_key(key: &File, path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = key.metadata().map_err(|e| io_error("the CA's key cannot be read:", path, e))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(config_error(format!(
        "others may read the CA's key {path} (mode {:03o}), so it is not used: run `chmod 600 {path}`, and if somebody \
         may have read it already, `interflow ca rotate`",
        mode & 0o777
    )))
}

#[cfg(not(unix))]
fn refuse_open_key(_: &File, _: &Path) -> Result<(), Error> {
    Ok(())
}

/// Whether the folder has exactly these texts, and others cannot read the key.
pub(super) fn is_same(dir: &Path, pem: &str, key: &str) -> bool {
    let has = |name: &str, text: &str| std::fs::read(dir.join(name)).is_ok_and(|t| t == text.as_bytes());
    has(CERTIFICATE_FILE, pem) && has(KEY_FILE, key) && read(dir).is_ok()
}

/// Creates a new CA.
pub(super) fn create(dir: &Path) -> Result<CaFiles, Error> {
    let key = KeyPair::generate()
        .map_err(|e| config_error("a key for the CA could not be made".to_owned()).with_source(e))?;
    let cert = issue::root(&key, &machine_name())
        .map_err(|e| config_error("the CA's certificate could not be made".to_owned()).with_source(e))?;
    let pem = pem("CERTIFICATE", cert.der());
    write(dir, &pem, &key.serialize_pem())?;
    Ok(CaFiles { pem, chain: vec![cert.der().clone()], key })
}

/// Writes both files, only for their user. The key comes first: a certificate without its key would be useless.
pub(super) fn write(dir: &Path, pem: &str, key: &str) -> Result<(), Error> {
    for (name, text) in [(KEY_FILE, key), (CERTIFICATE_FILE, pem)] {
        let path = dir.join(name);
        write_atomic(&path, text.as_bytes(), FileAccess::Private)
            .map_err(|e| io_error("the CA's files cannot be written:", &path, e))?;
    }
    Ok(())
}

/// Renames the certificate after its fingerprint and removes the key, whatever state they are in.
pub(super) fn archive(dir: &Path) -> Result<(), Error> {
    let path = dir.join(CERTIFICATE_FILE);
    if let Ok(pem) = std::fs::read(&path) {
        // By fingerprint, so that repeated rotations do not overwrite each other.
        let name = match CertificateDer::from_pem_slice(&pem) {
            Ok(der) => format!("ca-{}.pem", &issue::sha256_hex(&der)[..16]),
            Err(_) => "ca-unreadable.pem".to_owned(),
        };
        std::fs::rename(&path, dir.join(name)).map_err(|e| io_error("the old CA cannot be set aside:", &path, e))?;
    }
    let key = dir.join(KEY_FILE);
    match std::fs::remove_file(&key) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("the old CA's key cannot be removed:", &key, e)),
        _ => Ok(()),
    }
}

/// The machine's name, as far as it can be found without calling the C library.
pub fn machine_name() -> String {
    let from_file = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let from_env = || ["COMPUTERNAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok());
    // Last, because it starts a process.
    let from_command = || {
        let out = std::process::Command::new("hostname").output().ok()?;
        String::from_utf8(out.stdout).ok()
    };
    [&from_file as &dyn Fn() -> Option<String>, &from_env, &from_command]
        .iter()
        .find_map(|source| source().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()))
        .unwrap_or_else(|| "this machine".to_owned())
}
