//! The instances that run with other data directories than the default one: each leaves a file in the user's runtime
//! directory, so that commands find it without an option.

use std::fs;
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, create_private_dir, write_atomic};

use crate::data_dir::{DataDir, InstanceInfo, is_process_alive};

/// Where they are registered: `$XDG_RUNTIME_DIR/interflow`, or beside the default data directory.
fn registry() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // `sudo` may keep the variable of another user.
    if let Some(runtime) = runtime.filter(|dir| is_private(dir)) {
        return Some(runtime.join("interflow"));
    }
    Some(DataDir::find(None).ok()?.path().with_file_name("interflow-instances"))
}

/// Whether the directory belongs to this user, and no other user can read or change it.
fn is_private(dir: &Path) -> bool {
    #[cfg(unix)]
    return fs::metadata(dir).is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt as _;
        meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0
    });
    #[cfg(not(unix))]
    dir.is_dir()
}

/// The file of this process in the registry, removed when dropped.
#[derive(Debug)]
pub struct InstanceRegistration(PathBuf);

impl Drop for InstanceRegistration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Registers the instance of this process, unless commands find it by the default data directory. What fails is only
/// logged: the instance serves without it.
pub fn register(home: &DataDir) -> Option<InstanceRegistration> {
    if home.is_default() {
        return None;
    }
    let registry = registry()?;
    files(&registry).for_each(drop);
    let file = registry.join(std::process::id().to_string());
    let registered = create_private_dir(&registry).and_then(|()| {
        let path = std::path::absolute(home.path())?;
        write_atomic(&file, path.to_string_lossy().as_bytes(), FileAccess::Private)
    });
    if let Err(e) = &registered {
        tracing::debug!("{} cannot be written: {e}; commands need --data-dir to find this instance", file.display());
    }
    registered.is_ok().then_some(InstanceRegistration(file))
}

/// The registered instances that run, with their data directories.
pub fn running() -> Vec<(DataDir, InstanceInfo)> {
    let Some(registry) = registry().filter(|dir| is_private(dir)) else { return Vec::new() };
    let mut instances: Vec<_> = files(&registry).filter_map(|(file, pid)| running_instance(&file, pid)).collect();
    instances.sort_by_key(|(_, instance)| instance.pid);
    instances
}

/// The files of processes that exist; those of others are removed.
fn files(registry: &Path) -> impl Iterator<Item = (PathBuf, u32)> {
    let paths = fs::read_dir(registry).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = paths.filter_map(|path| Some((path.clone(), path.file_name()?.to_str()?.parse().ok()?)));
    files.filter(|(path, pid)| is_process_alive(*pid) || fs::remove_file(path).is_err())
}

/// A line for each instance: how commands for it begin, its process and its address.
pub fn list(instances: &[(DataDir, InstanceInfo)]) -> String {
    let line = |(home, instance): &(DataDir, InstanceInfo)| {
        let address = instance.address().map(|address| format!(", http://{address}/")).unwrap_or_default();
        format!("  {} …  (process {}{address})", home.command(), instance.pid)
    };
    instances.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn running_instance(file: &Path, pid: u32) -> Option<(DataDir, InstanceInfo)> {
    let home = DataDir::find(Some(Path::new(&fs::read_to_string(file).ok()?))).ok()?;
    let instance = home.running_instance().filter(|instance| instance.pid == pid)?;
    Some((home, instance))
}
