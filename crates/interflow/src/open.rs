//! `interflow open`: the web UI of the running instance in the browser, logged in by a link that is good once.

use std::process::{Command, Stdio};

use clap::Args;
use serde_json::json;

use crate::CliError;
use crate::data_dir::DataDir;
use crate::flows::api::InstanceApi;

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Print the address and open nothing.
    #[arg(long)]
    pub print: bool,
}

/// Opens it; where there is no browser, prints the address.
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
        anstream::eprintln!("interflow: the web UI at http://{}/ opens in the browser", api.address());
        return Ok(());
    }
    anstream::println!("{url}");
    anstream::eprintln!("interflow: open this address in a browser within a minute; it logs in once");
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

/// What opens an address in the browser, the likeliest first.
fn browser_commands() -> &'static [(&'static str, &'static [&'static str])] {
    if cfg!(target_os = "macos") {
        return &[("open", &[])];
    }
    if cfg!(windows) {
        return &[("rundll32", &["url.dll,FileProtocolHandler"])];
    }
    let display = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|n| std::env::var_os(n).is_some());
    // Without a screen, xdg-open may start a browser for terminals.
    if display { &[("xdg-open", &[]), ("wslview", &[])] } else { &[] }
}
