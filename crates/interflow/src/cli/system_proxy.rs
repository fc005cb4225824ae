//! `interflow system-proxy`: sets the system's proxy to Interflow, restores and shows it.

use std::net::SocketAddr;

use clap::Subcommand;
use interflow_host::data_dir::{DataDir, connect_address};
use interflow_host::system_proxy::{SystemProxyStatus, restore, set};
use serde_json::json;

use crate::Result;
use crate::cli::output::{FormatArgs, TextFormat, print_json};

#[derive(Debug, Subcommand)]
pub enum SystemProxyCommand {
    /// Set the running instance as the system's proxy until it stops or `off` is run.
    On {
        /// Proxy address [default: the running instance].
        #[arg(long, value_name = "ADDR")]
        proxy: Option<SocketAddr>,
    },
    /// Restore the previous settings.
    Off,
    /// Show the system's proxy settings and whether they point to Interflow.
    Status(FormatArgs<TextFormat>),
}

/// `interflow system-proxy`
pub fn run(command: &SystemProxyCommand, home: &DataDir) -> Result<()> {
    match command {
        SystemProxyCommand::On { proxy } => {
            let running = home.running_instance();
            let pid = if proxy.is_some() { 0 } else { running.as_ref().map_or(0, |i| i.pid) };
            let proxy = proxy.or_else(|| running?.proxy.first().copied());
            let none = "no instance with a proxy port is running: start one with `interflow run`, or give --proxy ADDR";
            let proxy = proxy.ok_or(none.to_owned())?;
            let names = set(home, proxy, pid)?;
            names.iter().for_each(|n| interflow_host::outln!("{n}"));
            interflow_host::outln!(
                "the system's proxy is {}; `interflow system-proxy off` restores the previous settings",
                connect_address(proxy)
            );
            Ok(())
        }
        SystemProxyCommand::Off => {
            match restore(home)? {
                None => interflow_host::outln!("Interflow has not changed the system's proxy"),
                Some(left) => {
                    left.iter().for_each(|l| interflow_host::outln!("{l}"));
                    interflow_host::outln!("the system's proxy settings were restored");
                }
            }
            Ok(())
        }
        SystemProxyCommand::Status(format) => status(home, format.is_json()),
    }
}

fn status(home: &DataDir, as_json: bool) -> Result<()> {
    let SystemProxyStatus { set_to, settings } = SystemProxyStatus::read(home)?;
    if as_json {
        let settings: Vec<_> = settings.iter().map(|(n, v)| json!({ "setting": n, "value": v })).collect();
        return print_json(&json!({
            "set_by_interflow": set_to.is_some(), "proxy": set_to.map(|proxy| proxy.to_string()), "settings": settings,
        }));
    }
    for (name, value) in &settings {
        interflow_host::outln!("{name}: {}", value.as_deref().unwrap_or("not set"));
    }
    match set_to {
        Some(proxy) => {
            interflow_host::outln!(
                "set to {proxy} by Interflow; `interflow system-proxy off` restores the previous settings"
            )
        }
        None if settings.is_empty() => interflow_host::outln!("no desktop's proxy settings were found here"),
        None => interflow_host::outln!("not set by Interflow"),
    }
    Ok(())
}
