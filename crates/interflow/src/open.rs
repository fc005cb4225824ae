//! `interflow open`: opens the web UI of the running instance in the browser, with a one-time login link.

use std::process::{Command, Stdio};

use clap::Args;
use serde_json::json;

use crate::CliError;
use crate::data_dir::DataDir;
use crate::flows::api::InstanceApi;

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Print the URL instead of opening a browser.
    #[arg(long)]
    pub print: bool,
}

/// Opens the browser, or prints the URL if there is none.
pub fn run(args: &OpenArgs, home: &DataDir) -> Result<(), CliError> {
    let Some(api) = InstanceApi::for_instance(home)? else {
        return Err(CliError::Failed(format!(
            "no instance with an admin port is running from {}: start one with `interflow run`",
            home.path().display()
        )));
    };
    let link = api.post("/login-links", &json!({}))?;
    let path = link["path"].as_str().unwrap_or("/login");
    let url = format!("http://{}{path}", api.address());
    if !args.print && open_browser(&url) {
        anstream::eprintln!("interflow: opening the web UI at http://{}/ in the browser", api.address());
        return Ok(());
    }
    anstream::println!("{url}");
    anstream::eprintln!("interflow: open this URL in a browser within a minute; it works once");
    Ok(())
}

/// Whether a browser was started.
fn open_browser(url: &str) -> bool {
    browser_commands().iter().any(|(program, words)| {
        let child = Command::new(program)
            .args(*words)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
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
