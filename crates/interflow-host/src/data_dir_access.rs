//! Who else can write to the data directory: its files start programs (`rules.yaml`, `interflow.toml`) and hold secrets, so
//! that a user who changes them acts as the user of the instance.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{getegid, geteuid};

const WRITABLE_BY_OTHERS: u32 = 0o002;
const READABLE_BY_OTHERS: u32 = 0o004;
const ENTERED_BY_OTHERS: u32 = 0o001;
const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;

/// Files whose text is a secret as it is. The CA's key is checked where it is read.
const SECRETS: [&str; 4] = ["admin.token", "cache.key", "media.key", "redact.key"];

/// What is wrong, and how bad.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AccessProblems {
    /// Others can act as the user of the instance.
    pub refusal: Option<String>,
    pub warnings: Vec<String>,
}

/// Looks at the directory and the files in it. In a container, whose users are those of one program and whose volumes have
/// the owners and modes that the runtime gives them, nothing is refused.
pub fn find(dir: &Path) -> AccessProblems {
    let Ok(meta) = fs::metadata(dir) else { return AccessProblems::default() };
    let mut problems = of_directory(dir, &meta, is_in_container());
    if problems.refusal.is_none() {
        problems.refusal = of_entries(dir, &meta);
    }
    if is_in_container() {
        problems.warnings.extend(problems.refusal.take());
    }
    problems
}

/// Whether a file of the directory can only be from the user of the instance, or from one who may do anything anyway.
pub fn is_from_owner(dir: &Path, file: &Path) -> bool {
    let (Ok(dir), Ok(file)) = (fs::metadata(dir), fs::symlink_metadata(file)) else { return true };
    dir.mode() & WRITABLE_BY_OTHERS == 0 || is_trusted(file.uid()) || file.uid() == dir.uid()
}

fn of_directory(dir: &Path, meta: &Metadata, in_container: bool) -> AccessProblems {
    let (shown, mode) = (dir.display(), meta.mode() & 0o7777);
    let mut problems = AccessProblems::default();
    if !is_trusted(meta.uid()) && !in_container {
        let (uid, own) = (meta.uid(), geteuid().as_raw());
        problems.refusal = Some(format!(
            "the data directory {shown} belongs to another user (uid {uid}), who can change the files by which programs are \
             started: run Interflow as that user, or run `chown -R {own} {shown}`"
        ));
    } else if mode & WRITABLE_BY_OTHERS != 0 {
        let text = format!("every user of this machine can write to the data directory {shown} (mode {mode:o})");
        if mode & STICKY != 0 || in_container {
            problems.warnings.push(format!("{text}: run `chmod 700 {shown}`"));
        } else {
            problems.refusal = Some(format!(
                "{text}, and so change the files by which programs are started, and the CA: run `chmod 700 {shown}`, and look at \
                 what is in it"
            ));
        }
    } else if mode & 0o020 != 0 && mode & SETGID == 0 && !in_container && !is_own_group(meta) {
        let group = meta.gid();
        problems.warnings.push(format!(
            "the members of group {group} can write to the data directory {shown} (mode {mode:o}): unless they may act as its \
             owner, run `chmod g-w {shown}`"
        ));
    }
    problems
}

/// The first file that others have written or can write, or a secret that they can read.
fn of_entries(dir: &Path, meta: &Metadata) -> Option<String> {
    let others_write = meta.mode() & WRITABLE_BY_OTHERS != 0;
    let others_enter = meta.mode() & ENTERED_BY_OTHERS != 0;
    if !others_enter {
        return None;
    }
    let mut entries: Vec<_> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.iter().find_map(|path| {
        let (meta, shown) = (fs::symlink_metadata(path).ok()?, path.display());
        let mode = meta.mode() & 0o777;
        if others_write && !is_from_owner(dir, path) {
            let uid = meta.uid();
            return Some(format!(
                "{shown} in the data directory was put there by another user (uid {uid}): look at it, remove it, and run `chmod \
                 700 {}`",
                dir.display()
            ));
        }
        if meta.is_file() && mode & WRITABLE_BY_OTHERS != 0 {
            return Some(format!("every user of this machine can change {shown} (mode {mode:o}): run `chmod go-w {shown}`"));
        }
        let is_secret = path.file_name().is_some_and(|name| SECRETS.iter().any(|secret| name == *secret));
        (is_secret && meta.is_file() && mode & READABLE_BY_OTHERS != 0).then(|| {
            format!(
                "every user of this machine can read the secret in {shown} (mode {mode:o}): run `chmod 600 {shown}`, or remove it \
                 so that a new one is made"
            )
        })
    })
}

/// The user of this process, root, and for root the user that became it by `sudo`.
fn is_trusted(uid: u32) -> bool {
    let own = geteuid().as_raw();
    let sudo = || std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    uid == own || uid == 0 || (own == 0 && sudo() == Some(uid))
}

/// Root's group, which OpenShift gives to the arbitrary users of its containers, or one that has this user alone.
fn is_own_group(meta: &Metadata) -> bool {
    meta.gid() == 0 || (meta.gid() == meta.uid() && meta.gid() == getegid().as_raw())
}

fn is_in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists())
        || ["KUBERNETES_SERVICE_HOST", "container"].iter().any(|name| std::env::var_os(name).is_some())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn check(dir: &Path) -> AccessProblems {
        let meta = fs::metadata(dir).unwrap();
        let mut problems = of_directory(dir, &meta, false);
        problems.refusal = problems.refusal.or_else(|| of_entries(dir, &meta));
        problems
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        fs::write(home.join("rules.yaml"), "").unwrap();
        for (mode, refused, warned) in [
            (0o700, false, false),
            (0o755, false, false),
            // Root's group and a group of one may write: an arbitrary user of OpenShift, and the umask 002.
            (0o770, false, false),
            (0o777, true, false),
            (0o1777, false, true),
        ] {
            chmod(home, mode);
            let found = check(home);
            assert_eq!((found.refusal.is_some(), !found.warnings.is_empty()), (refused, warned), "{mode:o}: {found:?}");
            let text = found.refusal.into_iter().chain(found.warnings).collect::<String>();
            assert!(text.is_empty() || text.contains(&format!("chmod 700 {}", home.display())), "{text}");
        }
        let meta = fs::metadata(home).unwrap();
        assert!(of_directory(home, &meta, true).refusal.is_none(), "volumes of containers may have any mode");
    }

    #[test]
    fn files_that_others_can_change_or_secrets_that_they_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        for (name, mode, enterable, says) in [
            ("rules.yaml", 0o644, 0o755, ""),
            ("rules.yaml", 0o666, 0o755, "chmod go-w"),
            ("rules.yaml", 0o666, 0o700, ""),
            ("admin.token", 0o640, 0o755, ""),
            ("admin.token", 0o644, 0o755, "chmod 600"),
            ("admin.token", 0o644, 0o700, ""),
        ] {
            let file = home.join(name);
            fs::write(&file, "").unwrap();
            chmod(&file, mode);
            chmod(home, enterable);
            let text = check(home).refusal.unwrap_or_default();
            assert!(text.contains(says) && text.is_empty() == says.is_empty(), "{name} {mode:o}: {text}");
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_file_that_another_user_put_into_a_shared_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules.yaml");
        fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(4711), None).is_err() {
            // Only root can give files away.
            return;
        }
        assert!(is_from_owner(dir.path(), &file), "no other user can write to the directory");
        chmod(dir.path(), 0o1777);
        assert!(!is_from_owner(dir.path(), &file));
        let text = check(dir.path()).refusal.unwrap();
        assert!(text.contains("uid 4711") && text.contains("rules.yaml"), "{text}");
        std::os::unix::fs::chown(dir.path(), Some(4712), None).unwrap();
        let text = check(dir.path()).refusal.unwrap();
        assert!(text.contains("uid 4712") && text.contains("chown -R"), "{text}");
    }
}
