//! `interflow demo`: an instance with sample traffic from a local origin, a fake LLM provider and agents. Nothing leaves
//! the machine, and all data is removed at the end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_demo::ROUND_PAUSE;
use interflow_demo::client::DemoEndpoints;
use interflow_demo::media_demo::MediaDemo;
use interflow_demo::origins::Origins;
use interflow_demo::round;
use interflow_files::create_private_dir;
use interflow_host::data_dir::DataDir;
#[cfg(feature = "media")]
use interflow_media::endpoint::LinkRequest;
use interflow_proxy::config::UpstreamProxyRule;
#[cfg(feature = "media")]
use serde_json::json;

use crate::Result;
use crate::cli::instance::listen_address::parse_listen_address;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::instance::config::{self, ConfigFile, InterflowConfig};
use crate::instance::log;
use crate::instance::reload::{ApplyFlagsFn, ConfigControl, ConfigReloader};
use crate::instance::run::{self, StartOptions};
use crate::instance::shutdown_signal::ShutdownSignal;
use crate::instance::watched_files::FileStamps;

/// The configuration file, so that settings can be changed. Not `interflow.toml`, which `interflow run` reads.
const CONFIG_FILE: &str = "demo.toml";
const CONFIG: &str = include_str!("../../data/demo.toml");

/// Sample rules.
const RULES: &str = include_str!("../../data/demo_rules.yaml");

#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Listen address of the proxy [default: 7070, or a free port].
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_proxy: Option<SocketAddr>,
    /// Listen address of the gateway [default: 7071, or a free port].
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_gateway: Option<SocketAddr>,
    /// Listen address of the admin API and web UI [default: 7072, or a free port].
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_admin: Option<SocketAddr>,
    /// Keep the data in this directory, as with --data-dir.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Do not open the web UI in the browser.
    #[arg(long)]
    pub no_open: bool,
    /// Exit after this number of rounds of traffic instead of running until Ctrl-C.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
}

/// Runs until a signal, with its own data directory.
pub fn run(args: &DemoArgs, data_dir: Option<&Path>) -> Result<()> {
    let demo_dir = match (&args.keep, data_dir) {
        (Some(folder), _) => DemoFolder::kept(folder)?,
        (None, Some(folder)) if is_in_use(folder) => {
            let folder = folder.display();
            return Err(format!(
                "{folder} has data of another instance, which the demo would change: give it an empty --data-dir"
            )
            .into());
        }
        (None, Some(folder)) => DemoFolder::kept(folder)?,
        (None, None) => DemoFolder::temporary()?,
    };
    let home = DataDir::find(Some(&demo_dir.folder))?;
    crate::name_data_dir(&home);
    let path = home.join(CONFIG_FILE);
    if !path.exists() {
        fs::write(&path, CONFIG).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let file = ConfigFile::find(Some(&path), None);
    let stamps = file.stamps();
    let config = config::load(Some(&path)).map_err(|e| e.to_string())?.config;
    let runtime = crate::runtime()?;
    log::start(&config.log)?;
    let done = runtime.block_on(run_demo(args, config, (file, stamps), &home));
    drop(demo_dir);
    done.map_err(|e| crate::cli::instance::status::name_other(e, &home))
}

async fn run_demo(
    args: &DemoArgs,
    mut config: InterflowConfig,
    (file, stamps): (ConfigFile, FileStamps),
    home: &DataDir,
) -> Result<()> {
    let origins = Arc::new(start_origins(home).await?);
    std::fs::write(home.join("rules.yaml"), RULES).map_err(|e| format!("the demo's rules: {e}"))?;
    let flags = environment(args, origins);
    flags(&mut config);
    let (control, requests) = ConfigControl::new(file, flags, Vec::new());
    let options = StartOptions { control: Some(control.clone()), ..StartOptions::default() };
    let running = run::start_with(&config, home, options).await?;
    let reloader = ConfigReloader::new(control, requests, &stamps, &config, running.reloaded_parts());
    tokio::spawn(reloader.run());
    let film = film(&running);
    let _announced = running.write_instance_file();
    let proxy =
        running.engine.proxy_addresses().first().copied().ok_or_else(|| "the proxy does not listen".to_owned())?;
    let admin = running.admin.as_ref().map(|(_, address)| *address);
    let banner = print_banner(proxy, admin, home.clone(), !args.no_open);
    let world = &DemoEndpoints::new(proxy, &home.ca()).map_err(|e| format!("the demo's authority: {e}"))?;
    let traffic = async move {
        let mut round = 0;
        while args.rounds.is_none_or(|n| round < n) {
            round::round(world, film.as_ref(), round).await;
            round += 1;
            if args.rounds.is_none_or(|n| round < n) {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
        }
    };
    if args.rounds.is_some() {
        drop(banner);
        // The admin port is not served that long.
        print_banner(proxy, None, home.clone(), false).await;
        traffic.await;
        return running.flush_and_stop().await;
    }
    tokio::spawn(banner);
    tokio::select! {
        () = traffic => {}
        () = round::reserve_stock(world) => {}
        _ = running.run_until_shutdown(ShutdownSignal::listen()) => {}
    }
    Ok(())
}

/// The origins that answer without a network, with their CA in the data directory.
pub async fn start_origins(home: &DataDir) -> Result<Origins> {
    Ok(Origins::start(&home.join("origins")).await.map_err(|e| format!("the local origins cannot start: {e}"))?)
}

/// Leads requests for the hosts of the origins to them; virtual keys stand for a key that they take.
pub fn lead_to_origins(origins: &Origins, config: &mut InterflowConfig) {
    let hosts = Origins::hosts();
    config.upstream.proxy.insert(0, UpstreamProxyRule { hosts, via: vec![origins.proxy_url()] });
    config.upstream.extra_ca.push(origins.ca().to_owned());
    for host in Origins::providers() {
        config.keys.provider.entry(host).or_insert_with(|| "demo-key".to_owned());
    }
}

/// What the origins and options determine, whatever the file says.
fn environment(args: &DemoArgs, origins: Arc<Origins>) -> ApplyFlagsFn {
    let proxy = args.listen_proxy.unwrap_or_else(|| free_port(7070));
    // With port 0 for the proxy another demo may be running, so use free ports for the rest, too.
    let any = args.listen_proxy.filter(|a| a.port() == 0);
    let gateway = args.listen_gateway.or(any).unwrap_or_else(|| free_port(7071));
    let admin = args.listen_admin.unwrap_or_else(|| free_port(7072));
    Arc::new(move |config| {
        config.proxy.listen = vec![proxy];
        config.gateway.listen = vec![gateway];
        config.admin.listen = Some(admin);
        lead_to_origins(&origins, config);
    })
}

/// A sealed link to the demo's video; `None` if no gateway listens.
#[cfg(feature = "media")]
fn film(running: &run::RunningInstance) -> Option<MediaDemo> {
    let gateway = *running.engine.gateway_addresses().first()?;
    let request = json!({"endpoint": "/proxy/stream", "destination_url": MediaDemo::video_url(), "sealed": true});
    let request: LinkRequest = serde_json::from_value(request).expect("it is a link request");
    let media = &running.components.media;
    MediaDemo::new(gateway, &media.link(&request, &media.base(gateway)).ok()?.url)
}

#[cfg(not(feature = "media"))]
const fn film(_: &run::RunningInstance) -> Option<MediaDemo> {
    None
}

/// On a terminal the browser is opened; where there is none, the link is printed. It comes from the admin port, which must be served meanwhile.
async fn print_banner(proxy: SocketAddr, admin: Option<SocketAddr>, home: DataDir, opens: bool) {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let link = if is_terminal && admin.is_some() { login_link(home.clone()).await } else { None };
    let bold = anstyle::Style::new().bold();
    interflow_host::outln!("{bold}Interflow demo{bold:#}: agents and a shop talk through a proxy on this machine.\n");
    if let Some(address) = admin {
        match link {
            Some(link) if opens && interflow_host::browser::open(&link) => {
                interflow_host::outln!("  look   http://{address}/, which opens in the browser");
            }
            Some(link) => interflow_host::outln!("  look   {link}"),
            None => interflow_host::outln!("  look   http://{address}/"),
        }
        interflow_host::outln!("  log in {} open", crate::command());
    }
    interflow_host::outln!("  proxy  http://{proxy}\n\nCtrl-C ends it.");
}

/// A link that logs one browser in, once and within a minute.
async fn login_link(home: DataDir) -> Option<String> {
    let link = tokio::task::spawn_blocking(move || {
        let api = InstanceApi::require(&home).ok()?;
        let link = api.call(&OperationId::CreateLoginLink.call()).ok()?;
        Some(format!("http://{}{}", api.address, link["path"].as_str()?))
    });
    link.await.ok().flatten()
}

/// The default port if it is free, else any.
fn free_port(port: u16) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match std::net::TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

/// The data directory; a temporary one is removed when dropped.
struct DemoFolder {
    folder: PathBuf,
    passing: bool,
}

/// Whether a data directory has files that the demo did not make.
fn is_in_use(folder: &Path) -> bool {
    let is_empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    !is_empty && !folder.join(CONFIG_FILE).exists()
}

impl DemoFolder {
    fn kept(folder: &Path) -> Result<Self> {
        create_private_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), passing: false })
    }

    fn temporary() -> Result<Self> {
        let name = format!("interflow-demo-{}-{}", std::process::id(), interflow_types::Timestamp::now().micros());
        let folder = std::env::temp_dir().join(name);
        create_private_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder, passing: true })
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if self.passing {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
