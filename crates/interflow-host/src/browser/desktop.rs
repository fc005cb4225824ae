//! Opens a URL in the browser of the desktop.

use std::process::{Command, Stdio};

/// Opens the URL; returns whether a browser was started.
pub fn open(url: &str) -> bool {
    browser_commands().iter().any(|(program, words)| {
        let child = Command::new(program)
            .args(*words)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Waits for the command, which returns once the browser runs.
            .status();
        child.is_ok_and(|status| status.success())
    })
}

/// Commands that open a URL, in order of preference.
fn browser_commands() -> &'static [(&'static str, &'static [&'static str])] {
    if cfg!(target_os = "macos") {
        return &[("open", &[])];
    }
    if cfg!(windows) {
        return &[("rundll32", &["url.dll,FileProtocolHandler"])];
    }
    let display = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|n| std::env::var_os(n).is_some());
    // Without a display, xdg-open may start a text-mode browser.
    if display { &[("xdg-open", &[]), ("wslview", &[])] } else { &[] }
}
