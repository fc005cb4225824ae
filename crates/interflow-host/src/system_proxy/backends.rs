//! The system proxy settings of GNOME, KDE, macOS and Windows, read and written with these systems' own commands.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Registry key of the proxy settings of Windows clients and browsers.
const KEY: &str = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Internet Settings";

#[derive(Clone, Debug, Default)]
pub struct SystemCommands {
    /// Directories to search instead of `PATH`.
    pub path: Option<OsString>,
}

impl SystemCommands {
    pub(crate) fn has(&self, program: &str) -> bool {
        let Some(path) = self.path.clone().or_else(|| std::env::var_os("PATH")) else { return false };
        let name = if cfg!(windows) { format!("{program}.exe") } else { program.to_owned() };
        std::env::split_paths(&path).any(|dir| dir.join(&name).is_file())
    }

    fn output(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        let out = command.output().map_err(|e| format!("`{}` cannot be started: {e}", words[0]))?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned());
        }
        let stderr = String::from_utf8_lossy(&out.stderr);
        Err(format!("`{}` ended with {}: {}", words.join(" "), out.status, stderr.trim()))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Result<(), String> {
        self.output(words).map(drop)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxySetting {
    /// GNOME: a key of a schema, its value as GVariant text.
    Gnome { schema: String, key: String },
    /// KDE: a key of `kioslaverc`, by the tools of this major version.
    Kde { version: u8, key: String },
    /// macOS: the proxy of a network service, for `http` or for `https`: `on HOST PORT` or `off HOST PORT`.
    Mac { service: String, secure: bool },
    /// Windows: a value of the registry of this type.
    Windows { value: String, kind: String },
}

/// A setting and its target value; `None` removes it.
pub type SettingChange = (ProxySetting, Option<String>);

impl ProxySetting {
    /// The settings of this machine, with their target values for a proxy at this address.
    pub fn changes_for(commands: &SystemCommands, proxy: SocketAddr) -> Result<Vec<SettingChange>, String> {
        let mut all = Vec::new();
        if cfg!(windows) {
            return Ok(windows(proxy));
        }
        if cfg!(target_os = "macos") {
            return mac(commands, proxy);
        }
        if commands.has("gsettings") {
            all.extend(gnome(proxy));
        }
        // The newer version first: both may be installed.
        if let Some(version) = [6, 5].into_iter().find(|v| commands.has(&format!("kwriteconfig{v}"))) {
            all.extend(kde(version, proxy));
        }
        // The tool may be installed without its desktop; then there are no settings.
        all.retain(|(place, _)| place.read(commands).is_ok());
        Ok(all)
    }

    /// Reads the current value; `None` if it is not set.
    ///
    /// # Errors
    /// The command failed.
    pub fn read(&self, commands: &SystemCommands) -> Result<Option<String>, String> {
        match self {
            Self::Gnome { schema, key } => commands.output(&["gsettings", "get", schema, key]).map(Some),
            Self::Kde { version, key } => {
                let tool = format!("kreadconfig{version}");
                let read =
                    commands.output(&[&tool, "--file", "kioslaverc", "--group", "Proxy Settings", "--key", key])?;
                Ok((!read.is_empty()).then_some(read))
            }
            Self::Mac { service, secure } => {
                let which = if *secure { "-getsecurewebproxy" } else { "-getwebproxy" };
                mac_value(&commands.output(&["networksetup", which, service])?).map(Some)
            }
            // The command fails if the value does not exist.
            Self::Windows { value, kind } => {
                Ok(commands.output(&["reg", "query", KEY, "/v", value]).ok().and_then(|text| {
                    let line = text.lines().find(|l| l.trim_start().starts_with(value.as_str()))?;
                    let (_, data) = line.split_once(kind.as_str())?;
                    Some(plain_number(data.trim()))
                }))
            }
        }
    }

    /// Sets or removes the value.
    ///
    /// # Errors
    /// The command failed.
    pub fn write(&self, commands: &SystemCommands, to: Option<&str>) -> Result<(), String> {
        match (self, to) {
            (Self::Gnome { schema, key }, Some(to)) => commands.run(&["gsettings", "set", schema, key, to]),
            (Self::Gnome { schema, key }, None) => commands.run(&["gsettings", "reset", schema, key]),
            (Self::Kde { version, key }, to) => {
                let tool = format!("kwriteconfig{version}");
                let mut words = vec![&*tool, "--file", "kioslaverc", "--group", "Proxy Settings", "--key", key];
                words.extend(to.map_or(["--delete", ""].as_slice(), |_| [].as_slice()));
                words.extend(to);
                commands.run(&words)
            }
            (Self::Mac { service, secure }, to) => {
                let what = if *secure { "securewebproxy" } else { "webproxy" };
                let value = to.unwrap_or("off  0");
                let mut parts = value.split(' ');
                let mut next = || parts.next().unwrap_or_default();
                let (state, host, port) = (next(), next(), next());
                if !host.is_empty() {
                    commands.run(&["networksetup", &format!("-set{what}"), service, host, port])?;
                    // The address first: the switch must not turn on an old one.
                }
                commands.run(&["networksetup", &format!("-set{what}state"), service, state])
            }
            (Self::Windows { value, kind }, Some(to)) => {
                commands.run(&["reg", "add", KEY, "/v", value, "/t", kind, "/d", to, "/f"])
            }
            (Self::Windows { value, .. }, None) => match self.read(commands)? {
                Some(_) => commands.run(&["reg", "delete", KEY, "/v", value, "/f"]),
                None => Ok(()),
            },
        }
    }

    /// Notifies running programs where the system supports it. Failures are ignored.
    pub fn notify_changed(&self, commands: &SystemCommands) {
        if matches!(self, Self::Kde { .. }) {
            let signal = "org.kde.KIO.Scheduler.reparseSlaveConfiguration";
            let _ = commands.run(&["dbus-send", "--type=signal", "/KIO/Scheduler", signal, "string:"]);
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Gnome { schema, key } => format!("GNOME {schema} {key}"),
            Self::Kde { key, .. } => format!("KDE {key}"),
            Self::Mac { service, secure } => format!("macOS {service} {}", if *secure { "https" } else { "http" }),
            Self::Windows { value, .. } => format!("Windows {value}"),
        }
    }
}

fn gnome(proxy: SocketAddr) -> Vec<SettingChange> {
    let setting = |schema: &str, key: &str| ProxySetting::Gnome { schema: schema.to_owned(), key: key.to_owned() };
    let mut all = Vec::new();
    for schema in ["org.gnome.system.proxy.http", "org.gnome.system.proxy.https"] {
        all.push((setting(schema, "host"), Some(format!("'{}'", proxy.ip()))));
        all.push((setting(schema, "port"), Some(proxy.port().to_string())));
    }
    // The switch comes last, so that programs never see an incomplete configuration.
    all.push((setting("org.gnome.system.proxy", "mode"), Some("'manual'".to_owned())));
    all
}

fn kde(version: u8, proxy: SocketAddr) -> Vec<SettingChange> {
    let setting = |key: &str| ProxySetting::Kde { version, key: key.to_owned() };
    let host = if proxy.is_ipv6() { format!("[{}]", proxy.ip()) } else { proxy.ip().to_string() };
    let url = format!("http://{host} {}", proxy.port());
    vec![
        (setting("httpProxy"), Some(url.clone())),
        (setting("httpsProxy"), Some(url)),
        (setting("ProxyType"), Some("1".to_owned())),
    ]
}

fn windows(proxy: SocketAddr) -> Vec<SettingChange> {
    let setting = |value: &str, kind: &str| ProxySetting::Windows { value: value.to_owned(), kind: kind.to_owned() };
    vec![
        // A PAC script would override the server setting.
        (setting("AutoConfigURL", "REG_SZ"), None),
        (setting("ProxyServer", "REG_SZ"), Some(proxy.to_string())),
        (setting("ProxyEnable", "REG_DWORD"), Some("1".to_owned())),
    ]
}

fn mac(commands: &SystemCommands, proxy: SocketAddr) -> Result<Vec<SettingChange>, String> {
    let services = commands.output(&["networksetup", "-listallnetworkservices"])?;
    let mut all = Vec::new();
    // The first line explains the asterisk of services that are off.
    for service in services.lines().skip(1).filter(|s| !s.starts_with('*') && !s.is_empty()) {
        for secure in [false, true] {
            let value = format!("on {} {}", proxy.ip(), proxy.port());
            all.push((ProxySetting::Mac { service: service.to_owned(), secure }, Some(value)));
        }
    }
    Ok(all)
}

/// `Enabled: Yes`, `Server: …`, `Port: …` in one line.
fn mac_value(text: &str) -> Result<String, String> {
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let enabled = field("Enabled").ok_or_else(|| format!("unexpected output of networksetup: {text}"))?;
    let state = if enabled.eq_ignore_ascii_case("yes") { "on" } else { "off" };
    Ok(format!("{state} {} {}", field("Server").unwrap_or_default(), field("Port").unwrap_or("0")))
}

/// `reg query` prints numbers in hexadecimal.
fn plain_number(data: &str) -> String {
    let number = data.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    number.map_or_else(|| data.to_owned(), |n| n.to_string())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// A directory with a fake tool that stores values in files and logs its calls.
    fn machine(program: &str, script: &str) -> (tempfile::TempDir, SystemCommands) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(program);
        let text = format!("#!/bin/sh\ncd {}\necho \"$@\" >> calls\n{script}\n", dir.path().display());
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([dir.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
        (dir, SystemCommands { path: Some(path) })
    }

    fn calls(dir: &tempfile::TempDir) -> Vec<String> {
        let text = std::fs::read_to_string(dir.path().join("calls")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn macos_proxy_is_set_for_enabled_services_and_restored() {
        let (dir, commands) = machine(
            "networksetup",
            "case $1 in
               -listallnetworkservices) echo 'An asterisk (*) denotes off.'; echo Wi-Fi; echo '*Old'; echo 'USB LAN';;
               -getwebproxy) printf 'Enabled: No\\nServer: proxy.corp\\nPort: 3128\\nAuthenticated Proxy Enabled: 0\\n';;
               -getsecurewebproxy) printf 'Enabled: No\\nServer: \\nPort: 0\\n';;
             esac",
        );
        let changes = mac(&commands, "127.0.0.1:7070".parse().unwrap()).unwrap();
        assert_eq!(changes.len(), 4);
        let [first, second, ..] = &changes[..] else { panic!() };
        assert_eq!(first.0.read(&commands).unwrap().as_deref(), Some("off proxy.corp 3128"));
        first.0.write(&commands, first.1.as_deref()).unwrap();
        first.0.write(&commands, Some("off proxy.corp 3128")).unwrap();
        let before = second.0.read(&commands).unwrap();
        second.0.write(&commands, before.as_deref()).unwrap();
        let called = calls(&dir);
        for line in [
            "-setwebproxy Wi-Fi 127.0.0.1 7070",
            "-setwebproxystate Wi-Fi on",
            "-setwebproxy Wi-Fi proxy.corp 3128",
            "-setwebproxystate Wi-Fi off",
            "-setsecurewebproxystate Wi-Fi off",
        ] {
            assert!(called.iter().any(|c| c == line), "{line}: {called:?}");
        }
        assert!(
            !called.iter().any(|c| c.starts_with("-setsecurewebproxy Wi-Fi")),
            "nothing is put back where nothing was"
        );
    }

    #[test]
    fn windows_proxy_values_are_read_set_and_removed() {
        let (dir, commands) = machine(
            "reg",
            "case \"$1 $4\" in
               'query ProxyEnable') printf '\\nHKEY_CURRENT_USER\\\\x\\n    ProxyEnable    REG_DWORD    0x0\\n';;
               'query ProxyServer') printf '    ProxyServer    REG_SZ    corp:8080\\n';;
               query*) echo 'ERROR: unable to find' >&2; exit 1;;
             esac",
        );
        let changes = windows("127.0.0.1:7070".parse().unwrap());
        let before: Vec<_> = changes.iter().map(|(p, _)| p.read(&commands).unwrap()).collect();
        assert_eq!(before, [None, Some("corp:8080".to_owned()), Some("0".to_owned())]);
        for (place, to) in &changes {
            place.write(&commands, to.as_deref()).unwrap();
        }
        changes[1].0.write(&commands, None).unwrap();
        let called = calls(&dir);
        for end in [
            "/v ProxyServer /t REG_SZ /d 127.0.0.1:7070 /f",
            "/v ProxyEnable /t REG_DWORD /d 1 /f",
            "/v ProxyServer /f",
        ] {
            assert!(called.iter().any(|c| c.ends_with(end)), "{end}: {called:?}");
        }
        assert!(
            !called.iter().any(|c| c.contains("delete") && c.contains("AutoConfigURL")),
            "what is not there stays so"
        );
    }
}
