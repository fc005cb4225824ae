//! Finds installed browsers.

use std::env;
use std::path::{Path, PathBuf};

use crate::CliError;

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
    programs: &'static [&'static str],
    /// Below `/Applications` on macOS.
    mac: &'static str,
    /// Below the folders for programs on Windows.
    windows: &'static str,
}

/// In order of preference.
const KNOWN_BROWSERS: [KnownBrowser; 5] = [
    KnownBrowser {
        name: "chrome",
        family: BrowserFamily::Chromium,
        programs: &["google-chrome", "google-chrome-stable", "google-chrome-beta"],
        mac: "Google Chrome.app/Contents/MacOS/Google Chrome",
        windows: r"Google\Chrome\Application\chrome.exe",
    },
    KnownBrowser {
        name: "chromium",
        family: BrowserFamily::Chromium,
        programs: &["chromium", "chromium-browser"],
        mac: "Chromium.app/Contents/MacOS/Chromium",
        windows: r"Chromium\Application\chrome.exe",
    },
    KnownBrowser {
        name: "edge",
        family: BrowserFamily::Chromium,
        programs: &["microsoft-edge", "microsoft-edge-stable"],
        mac: "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
        windows: r"Microsoft\Edge\Application\msedge.exe",
    },
    KnownBrowser {
        name: "brave",
        family: BrowserFamily::Chromium,
        programs: &["brave-browser", "brave"],
        mac: "Brave Browser.app/Contents/MacOS/Brave Browser",
        windows: r"BraveSoftware\Brave-Browser\Application\brave.exe",
    },
    KnownBrowser {
        name: "firefox",
        family: BrowserFamily::Firefox,
        programs: &["firefox", "firefox-esr"],
        mac: "Firefox.app/Contents/MacOS/firefox",
        windows: r"Mozilla Firefox\firefox.exe",
    },
];

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

    /// Whether it is confined by Snap, which hides other folders from it.
    pub(super) fn is_snap(&self) -> bool {
        self.path.starts_with("/snap")
    }
}

/// The browsers of this machine, the preferred one first.
pub fn installed() -> Vec<FoundBrowser> {
    let folders = program_folders();
    let found = KNOWN_BROWSERS.iter().filter_map(|known| {
        let path = candidates(known, &folders).into_iter().find(|path| is_program(path))?;
        Some(FoundBrowser { name: known.name.into(), path, family: known.family })
    });
    found.collect()
}

/// The browser of this name or path; the preferred one if none is given.
///
/// # Errors
/// It is not installed; the error names what is.
pub fn find(wanted: Option<&str>) -> Result<FoundBrowser, CliError> {
    let names = || KNOWN_BROWSERS.map(|known| known.name).join(", ");
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
    [snap].into_iter().chain(env::split_paths(&path)).chain(rest).collect()
}

fn candidates(known: &KnownBrowser, folders: &[PathBuf]) -> Vec<PathBuf> {
    let names = if cfg!(windows) {
        &[known.windows]
    } else if cfg!(target_os = "macos") {
        &[known.mac]
    } else {
        known.programs
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
}
