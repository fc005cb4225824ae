//! The data folder: where it is, the admin token, and which instance runs from it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The data folder.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

/// What a running instance tells other commands about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Instance {
    /// Its process.
    pub pid: u32,
    /// The proxy's addresses.
    pub proxy: Vec<SocketAddr>,
    /// The gateway's address.
    pub gateway: Option<SocketAddr>,
    /// The admin's address.
    pub admin: Option<SocketAddr>,
    /// Where Greyproxy's API is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub greyproxy: Option<SocketAddr>,
    /// The DNS port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<SocketAddr>,
}

impl Home {
    /// The folder given, or `$XDG_DATA_HOME/interflow`, or the platform's usual place below the home folder.
    pub fn find(given: Option<&Path>) -> Result<Self, String> {
        if let Some(path) = given {
            return Ok(Self(path.to_owned()));
        }
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(data) = var("XDG_DATA_HOME") {
            return Ok(Self(data.join("interflow")));
        }
        if let Some(local) = var("LOCALAPPDATA") {
            return Ok(Self(local.join("interflow")));
        }
        match var("HOME") {
            Some(home) if cfg!(target_os = "macos") => Ok(Self(home.join("Library/Application Support/interflow"))),
            Some(home) => Ok(Self(home.join(".local/share/interflow"))),
            None => Err("there is no home folder: set INTERFLOW_HOME to a folder for the CA and the recordings".into()),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder, for its owner alone.
    pub fn create(&self) -> Result<(), String> {
        fs::create_dir_all(&self.0).and_then(|()| only_owner(&self.0, 0o700)).map_err(|e| {
            format!("the data folder {} cannot be made: {e}; set INTERFLOW_HOME to another one", self.0.display())
        })
    }

    /// The folder of the CA.
    pub fn ca(&self) -> PathBuf {
        self.0.join("ca")
    }

    /// A file or folder in it, when `path` is relative.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The admin token, made at the first start.
    pub fn admin_token(&self) -> Result<String, String> {
        if let Ok(token) = std::env::var("INTERFLOW_TOKEN")
            && !token.is_empty()
        {
            return Ok(token);
        }
        let path = self.0.join("admin.token");
        match fs::read_to_string(&path) {
            Ok(token) if token.trim().len() >= 16 => return Ok(token.trim().to_owned()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{} cannot be read: {e}", path.display())),
        }
        let token = interflow_admin::new_token();
        write_private(&path, token.as_bytes()).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(token)
    }

    /// A secret of this data folder, by the name of its file: made once, for the owner's eyes only.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn secret(&self, file: &str) -> Result<Vec<u8>, String> {
        let path = self.0.join(file);
        match fs::read(&path) {
            Ok(secret) if secret.len() >= 16 => return Ok(secret),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{} cannot be read: {e}", path.display())),
        }
        self.create()?;
        let secret = interflow_admin::new_token().into_bytes();
        write_private(&path, &secret).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(secret)
    }

    fn instance_file(&self) -> PathBuf {
        self.0.join("instance.json")
    }

    /// Tells other commands that this process runs.
    pub fn announce(&self, instance: &Instance) -> Result<Announced, String> {
        let path = self.instance_file();
        let text = serde_json::to_vec(instance).expect("an instance is plain data");
        write_private(&path, &text).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(Announced { path, pid: instance.pid })
    }

    /// The instance that runs from this folder now.
    pub fn running(&self) -> Option<Instance> {
        let text = fs::read(self.instance_file()).ok()?;
        let instance: Instance = serde_json::from_slice(&text).ok()?;
        let addr = instance.proxy.first()?;
        let alive = std::net::TcpStream::connect_timeout(addr, std::time::Duration::from_millis(300)).is_ok();
        alive.then_some(instance)
    }
}

/// Takes the announcement back when dropped, unless another instance has announced itself since.
#[derive(Debug)]
pub struct Announced {
    path: PathBuf,
    pid: u32,
}

impl Drop for Announced {
    fn drop(&mut self) {
        let ours = fs::read(&self.path).ok().and_then(|t| serde_json::from_slice::<Instance>(&t).ok());
        if ours.is_some_and(|i| i.pid == self.pid) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("new.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&fresh)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(unix)]
fn only_owner(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn only_owner(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_and_for_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        home.create().unwrap();
        let token = home.admin_token().unwrap();
        assert!(token.len() >= 32);
        assert_eq!(home.admin_token().unwrap(), token);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(dir.path().join("admin.token")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn an_instance_is_found_while_it_listens() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let instance = Instance {
            pid: 7,
            proxy: vec![listener.local_addr().unwrap()],
            gateway: None,
            admin: None,
            greyproxy: None,
            dns: None,
        };
        let announced = home.announce(&instance).unwrap();
        assert_eq!(home.running().map(|i| i.pid), Some(7));
        drop(listener);
        assert!(home.running().is_none());
        drop(announced);
        assert!(!home.instance_file().exists());
    }
}
