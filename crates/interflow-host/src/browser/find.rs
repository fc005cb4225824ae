//! Finds installed browsers.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use interflow_types::data_file;

use crate::{CliError, Result};

/// Browsers of a family are configured in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserFamily {
    Chromium,
    Firefox,
}

/// Where a browser is installed.
struct KnownBrowser {
    name: &'static str,
    family: BrowserFamily,
    /// Names of the program on Linux and other Unix systems.
    programs: Vec<&'static str>,
    /// Its id as a Flatpak, which is the name of the program in [`FLATPAK_FOLDERS`].
    flatpak: &'static str,
    /// Below `/Applications` on macOS.
    mac: &'static str,
    /// Below the folders for programs on Windows.
    windows: &'static str,
}

/// Where the programs of Flatpaks are: of all users, and below the data folder of one user.
const FLATPAK_FOLDERS: [&str; 2] = ["/var/lib/flatpak/exports/bin", "flatpak/exports/bin"];

/// In order of preference.
static KNOWN_BROWSERS: LazyLock<Vec<KnownBrowser>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/browsers.txt"));
    let browser = |[name, family, programs, flatpak, mac, windows]: [&'static str; 6]| KnownBrowser {
        name,
        family: if family == "firefox" { BrowserFamily::Firefox } else { BrowserFamily::Chromium },
        programs: programs.split(' ').collect(),
        flatpak,
        mac,
        windows,
    };
    records.map(browser).collect()
});

/// A browser on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBrowser {
    /// By which the command line names it, and the user name of its flows.
    pub name: String,
    pub path: PathBuf,
    pub family: BrowserFamily,
}

impl FoundBrowser {
    /// A program that is not among the known ones: whether it is a Firefox is told by its name.
    fn from_path(path: &Path) -> Self {
        let name = path.file_stem().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let mozilla = ["firefox", "librewolf", "waterfox", "floorp", "zen"].iter().any(|m| name.contains(m));
        let family = if mozilla { BrowserFamily::Firefox } else { BrowserFamily::Chromium };
        // It becomes a user name, which has no colon.
        let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Self { name, path: path.to_owned(), family }
    }

    /// The folder for profiles that a browser confined by Snap or Flatpak can write, in this home folder. All others are
    /// hidden from it.
    pub(super) fn sandbox_profiles(&self, home: &Path) -> Option<PathBuf> {
        let program = self.path.file_name()?;
        let folder = if self.path.starts_with("/snap") {
            home.join("snap").join(program).join("common")
        } else if self.path.parent()?.ends_with(FLATPAK_FOLDERS[1]) {
            home.join(".var").join("app").join(program)
        } else {
            return None;
        };
        Some(folder.join("interflow-profiles"))
    }
}

/// The browsers of this machine, the preferred one first.
pub fn installed() -> Vec<FoundBrowser> {
    installed_in(&program_folders())
}

fn installed_in(folders: &[PathBuf]) -> Vec<FoundBrowser> {
    let browsers = KNOWN_BROWSERS.iter().filter_map(|known| {
        let path = candidates(known, folders).into_iter().find(|path| is_program(path))?;
        Some(FoundBrowser { name: known.name.into(), path, family: known.family })
    });
    browsers.collect()
}

/// The browser of this name or path; the preferred one if none is given.
///
/// # Errors
/// It is not installed; the error names what is.
pub fn find(wanted: Option<&str>) -> Result<FoundBrowser> {
    let names = || KNOWN_BROWSERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let all = installed();
    let Some(wanted) = wanted else {
        return all.into_iter().next().ok_or_else(|| {
            CliError::Failed(format!(
                "no browser was found (looked for {}): install one, or name it with --browser PATH",
                names()
            ))
        });
    };
    if let Some(found) = all.iter().find(|b| b.name.eq_ignore_ascii_case(wanted)) {
        return Ok(found.clone());
    }
    let path = Path::new(wanted);
    if path.components().count() > 1 {
        return if is_program(path) {
            Ok(FoundBrowser::from_path(path))
        } else {
            Err(CliError::Usage(format!("--browser: {wanted} is not a program")))
        };
    }
    // A program in the PATH that is not among the known ones.
    if let Some(path) = program_folders().iter().map(|f| f.join(wanted)).find(|p| is_program(p)) {
        return Ok(FoundBrowser::from_path(&path));
    }
    let installed = match &all[..] {
        [] => "none of those known is installed".to_owned(),
        all => format!("installed: {}", all.iter().map(|b| b.name.as_str()).collect::<Vec<_>>().join(", ")),
    };
    Err(CliError::Usage(format!(
        "--browser: `{wanted}` is neither a path nor an installed browser ({}); {installed}",
        names()
    )))
}

/// Folders with programs: those of the PATH on Unix, and the usual ones.
fn program_folders() -> Vec<PathBuf> {
    let var = |name: &str| env::var_os(name).map(PathBuf::from);
    if cfg!(windows) {
        return ["ProgramFiles", "ProgramFiles(x86)", "LOCALAPPDATA"].iter().filter_map(|name| var(name)).collect();
    }
    if cfg!(target_os = "macos") {
        let home = var("HOME").map(|home| home.join("Applications"));
        return [PathBuf::from("/Applications")].into_iter().chain(home).collect();
    }
    // Snap first: Ubuntu's programs of the same names elsewhere are scripts that start it.
    let usual = ["/snap/bin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let [snap, rest @ ..] = usual;
    let [flatpak, user_flatpak] = FLATPAK_FOLDERS.map(Path::new);
    let data = var("XDG_DATA_HOME").or_else(|| var("HOME").map(|home| home.join(".local/share")));
    let user_flatpak = data.map(|data| data.join(user_flatpak));
    let flatpaks = [flatpak.to_owned()].into_iter().chain(user_flatpak);
    [snap].into_iter().chain(env::split_paths(&path)).chain(rest).chain(flatpaks).collect()
}

/// A Flatpak comes last: it starts slower than another build of the same browser.
fn candidates(known: &KnownBrowser, folders: &[PathBuf]) -> Vec<PathBuf> {
    let names: Vec<&str> = if cfg!(windows) {
        vec![known.windows]
    } else if cfg!(target_os = "macos") {
        vec![known.mac]
    } else {
        known.programs.iter().copied().chain([known.flatpak]).collect()
    };
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).collect()
}

fn is_program(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_firefox_by_its_name_only() {
        for (path, name, family) in [
            ("/opt/librewolf/librewolf", "librewolf", BrowserFamily::Firefox),
            ("/opt/ff/Firefox:Nightly", "firefox-nightly", BrowserFamily::Firefox),
            ("/opt/vivaldi/vivaldi", "vivaldi", BrowserFamily::Chromium),
        ] {
            let found = FoundBrowser::from_path(Path::new(path));
            assert_eq!((found.name.as_str(), found.family), (name, family), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_must_be_a_program_and_an_unknown_name_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mybrowser");
        let text = path.display().to_string();
        assert!(find(Some(&text)).unwrap_err().to_string().contains("is not a program"));
        std::fs::write(&path, "").unwrap();
        assert!(find(Some(&text)).is_err(), "it is not executable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(Some(&text)).unwrap().path, path);
        let error = find(Some("netscape-4")).unwrap_err().to_string();
        assert!(error.contains("chrome, chromium, edge, brave, firefox"), "{error}");
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn browsers_are_found_by_each_of_their_names_and_a_flatpak_last() {
        use std::os::unix::fs::PermissionsExt as _;
        let program = |path: &Path| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        for (name, program_name, family) in [
            ("chrome", "google-chrome", BrowserFamily::Chromium),
            ("chrome", "google-chrome-stable", BrowserFamily::Chromium),
            ("chrome", "com.google.Chrome", BrowserFamily::Chromium),
            ("chromium", "chromium", BrowserFamily::Chromium),
            ("chromium", "chromium-browser", BrowserFamily::Chromium),
            ("chromium", "org.chromium.Chromium", BrowserFamily::Chromium),
            ("edge", "microsoft-edge", BrowserFamily::Chromium),
            ("edge", "com.microsoft.Edge", BrowserFamily::Chromium),
            ("brave", "brave-browser", BrowserFamily::Chromium),
            ("brave", "brave", BrowserFamily::Chromium),
            ("brave", "com.brave.Browser", BrowserFamily::Chromium),
            ("firefox", "firefox", BrowserFamily::Firefox),
            ("firefox", "firefox-esr", BrowserFamily::Firefox),
            ("firefox", "org.mozilla.firefox", BrowserFamily::Firefox),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("bin");
            assert_eq!(installed_in(std::slice::from_ref(&folder)), []);
            let path = folder.join(program_name);
            program(&path);
            let found = FoundBrowser { name: name.to_owned(), path, family };
            assert_eq!(installed_in(&[dir.path().join("none"), folder]), [found]);
        }
        let dir = tempfile::tempdir().unwrap();
        let [bin, flatpak] = ["bin", "flatpak/exports/bin"].map(|f| dir.path().join(f));
        let chromium = [flatpak.join("org.chromium.Chromium"), bin.join("chromium")];
        chromium.iter().for_each(|path| program(path));
        program(&flatpak.join("com.microsoft.Edge"));
        program(&flatpak.join("org.gnome.Epiphany"));
        let found = installed_in(&[flatpak, bin]);
        let found: Vec<_> = found.iter().map(|b| (b.name.as_str(), b.path.as_path())).collect();
        let edge = dir.path().join("flatpak/exports/bin/com.microsoft.Edge");
        assert_eq!(found, [("chromium", &*chromium[1]), ("edge", &*edge)]);
    }

    #[cfg(unix)]
    #[test]
    fn a_confined_browser_has_its_profile_where_it_may_write() {
        for (path, folder) in [
            ("/usr/bin/chromium", None),
            ("/snap/bin/firefox", Some("/home/u/snap/firefox/common/interflow-profiles")),
            (
                "/var/lib/flatpak/exports/bin/com.google.Chrome",
                Some("/home/u/.var/app/com.google.Chrome/interflow-profiles"),
            ),
            (
                "/home/u/.local/share/flatpak/exports/bin/org.mozilla.firefox",
                Some("/home/u/.var/app/org.mozilla.firefox/interflow-profiles"),
            ),
        ] {
            let found = FoundBrowser::from_path(Path::new(path)).sandbox_profiles(Path::new("/home/u"));
            assert_eq!(found.as_deref(), folder.map(Path::new), "{path}");
        }
    }
}
