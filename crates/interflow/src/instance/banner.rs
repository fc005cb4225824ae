//! The banner: what a started instance prints, its addresses and what it does.

use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;

use interflow_host::data_dir;
use interflow_types::units::pluralize;

use crate::fleet;
use crate::instance::config::InterflowConfig;
use crate::instance::exposure;
use crate::instance::run::RunningInstance;

/// Prints it. It is lost if nothing reads stdout, which must not end the instance.
pub fn print(running: &RunningInstance, config: &InterflowConfig, has_origins: bool) {
    let _ = write(&mut interflow_host::terminal::stdout(), running, config, has_origins);
}

fn write(
    out: &mut impl Write,
    running: &RunningInstance,
    config: &InterflowConfig,
    has_origins: bool,
) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    let list = |addrs: Vec<SocketAddr>| {
        let all = addrs.into_iter().flat_map(exposure::usable).map(|a| format!("http://{a}"));
        all.collect::<Vec<_>>().join("  ")
    };
    writeln!(out, "{bold}Interflow {}{bold:#}", env!("CARGO_PKG_VERSION"))?;
    let plain = |addrs: Vec<SocketAddr>| addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join("  ");
    let gateway = list(running.engine.gateway_addresses());
    let routes = match config.gateway.route.len() as u64 {
        0 => String::new(),
        n => format!("   {}", pluralize(n, "route")),
    };
    for (name, addrs, more) in [
        ("proxy", list(running.engine.proxy_addresses()), "   HTTP, CONNECT and SOCKS5"),
        ("redirect", plain(running.engine.transparent_addresses()), ""),
        ("reverse", plain(running.engine.reverse_addresses()), ""),
        ("gateway", gateway.clone(), &routes),
    ] {
        if !addrs.is_empty() {
            writeln!(out, "  {name:8} {addrs}{more}")?;
        }
    }
    if config.gateway.tls_self_signed && config.gateway.tls.is_none() {
        let print = running.engine.ca().fingerprint_sha256();
        writeln!(out, "           https too, by Interflow's own CA (SHA-256 {print})")?;
    }
    if config.llm.gateway && !gateway.is_empty() {
        writeln!(out, "  LLM      {}   /openai/v1, /anthropic, /gemini …", gateway)?;
    }
    if let Some((_, addr)) = &running.admin {
        let terminal = std::io::stdout().is_terminal();
        for addr in exposure::usable(*addr) {
            // The token is not printed to logs, which more people can read than a terminal.
            if terminal {
                writeln!(out, "  admin    http://{addr}/?token={}", running.token)?;
            } else {
                let file = running.home.admin_token_file();
                let source = file.map_or("INTERFLOW_TOKEN".into(), |f| f.display().to_string());
                let open = format!("{} open", crate::command());
                writeln!(out, "  admin    http://{addr}/   token in {source}; `{open}` logs in")?;
            }
        }
    }
    if let Some(addr) = &running.dns {
        writeln!(out, "  DNS      {addr}")?;
    }
    writeln!(out, "  CA       {}", running.ca_file().display())?;
    match running.store.as_ref().filter(|_| config.record.enabled) {
        Some(_) => {
            writeln!(out, "  record   {}", running.home.join(&config.record.dir).display())?;
            if let Ok(Some(url)) = fleet::shared_address(config) {
                writeln!(out, "           moved to {url}")?;
                if let Some(objects) = &config.record.objects {
                    let url = objects.split('?').next().unwrap_or_default();
                    writeln!(out, "           bodies to {url}")?;
                }
            }
        }
        None => writeln!(out, "  record   off")?,
    }
    if has_origins {
        writeln!(out, "  origins  example.com, shop.example, api.openai.com and others are served by this process")?;
    }
    if let Some(proxy) = running.engine.proxy_addresses().first().copied().map(data_dir::connect_address) {
        writeln!(out, "\nSend a request through it:\n")?;
        let ca = data_dir::shell_argument(&running.ca_file());
        writeln!(out, "  curl -x http://{proxy} --cacert {ca} https://example.com/\n")?;
    }
    Ok(())
}
