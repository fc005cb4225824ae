//! `interflow demo`: an instance with sample traffic from a local origin, a fake LLM provider and agents. Nothing leaves
//! the machine, and all data is removed at the end.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use interflow_approvals::approvals::config::{ApprovalMode, RuleSpec};
use interflow_demo::client::{self, DemoEndpoints};
use interflow_demo::media_demo::MediaDemo;
use interflow_demo::{NAMES, ROUND_PAUSE};
use interflow_host::data_dir::DataDir;
#[cfg(feature = "media")]
use interflow_media::endpoint::LinkRequest;
use interflow_redact::RedactMode;
use interflow_types::units::HumanDuration;
#[cfg(feature = "media")]
use ipnet::IpNet;
#[cfg(feature = "media")]
use serde_json::json;

use crate::CliError;
use crate::cli::listen_address::parse_listen_address;
use crate::instance::config::InterflowConfig;
use crate::instance::{log, run};

/// Patterns that allow every other host: names with a dot, and addresses.
const KNOWN_HOSTS: [&str; 2] = ["*.*", "::/0"];
/// How long a request to the warehouse waits for approval.
const APPROVAL_TIMEOUT: HumanDuration = HumanDuration::from_secs(900);

/// Sample rules.
const RULES: &str = r#"# The demo's rules: change them, save, and look at what comes next.
rules:
  - name: mark what failed
    when: status:>=500
    then:
      - tag: broken
  - name: shop without caches
    when: host:shop.example path:/products
    then:
      - set_response_header: { Cache-Control: no-store }
"#;

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
    /// Keep the data in this directory.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Exit after this number of rounds of traffic instead of running until Ctrl-C.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
}

/// Runs until a signal, with its own data directory.
pub fn run(args: &DemoArgs) -> Result<(), CliError> {
    let place = match &args.keep {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            DemoFolder { folder: folder.clone(), passing: false }
        }
        None => DemoFolder::temporary()?,
    };
    let home = DataDir::find(Some(&place.folder))?;
    let mut config = InterflowConfig::default();
    config.log.level = "warn".into();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the runtime could not be started: {e}"))?;
    log::start(&config.log)?;
    let done = runtime.block_on(run_demo(args, config, &home));
    drop(place);
    done
}

async fn run_demo(args: &DemoArgs, mut config: InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let origin =
        interflow_demo::origin::start().await.map_err(|e| format!("the demo's origin could not listen: {e}"))?;
    config.proxy.listen = vec![args.listen_proxy.unwrap_or_else(|| free_port(7070))];
    // With port 0 for the proxy another demo may be running, so use free ports for the rest, too.
    let any = args.listen_proxy.filter(|a| a.port() == 0);
    config.gateway.listen = vec![args.listen_gateway.or(any).unwrap_or_else(|| free_port(7071))];
    config.admin.listen = Some(args.listen_admin.unwrap_or_else(|| free_port(7072)));
    config.redact.proxied = RedactMode::Redact;
    config.approvals.mode = ApprovalMode::Ask;
    config.approvals.timeout = APPROVAL_TIMEOUT;
    config.approvals.rule = vec![known_hosts_rule()];
    std::fs::write(home.join("rules.yaml"), RULES).map_err(|e| format!("the demo's rules: {e}"))?;
    let here = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    config.upstream.hosts = NAMES.iter().map(|name| ((*name).to_owned(), here.clone())).collect();
    let vault = home.ca().with_file_name("bank");
    let bank = interflow_demo::tls_demo::start_server(&vault)
        .await
        .map_err(|e| format!("the demo's bank could not start: {e}"))?;
    config.upstream.extra_ca = vec![vault.join("ca.pem")];
    #[cfg(feature = "media")]
    {
        config.media.allow_private = vec![IpNet::from(here[0])];
    }
    let running = run::start(&config, home).await?;
    let film = film(&running, origin.port());
    let bank = interflow_demo::tls_demo::TlsDemo::new(bank.port(), &home.ca())
        .map_err(|e| format!("the demo's authority: {e}"))?;
    let _announced = running.write_instance_file();
    let proxy =
        running.engine.proxy_addresses().first().copied().ok_or_else(|| "the proxy does not listen".to_owned())?;
    print_banner(&running, proxy);
    let world = DemoEndpoints { proxy, port: origin.port() };
    let traffic = async move {
        let mut round = 0;
        while args.rounds.is_none_or(|n| round < n) {
            client::round(world, &bank, film.as_ref(), round).await;
            round += 1;
            if args.rounds.is_none_or(|n| round < n) {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
        }
    };
    if args.rounds.is_some() {
        traffic.await;
        return running.flush_and_stop().await;
    }
    tokio::select! {
        () = traffic => {}
        () = client::reserve_stock(world) => {}
        () = running.run_until_shutdown(crate::instance::run::ShutdownSignal::listen()) => {}
    }
    Ok(())
}

/// A sealed link to the demo's video; `None` if no gateway listens.
#[cfg(feature = "media")]
fn film(running: &run::RunningInstance, port: u16) -> Option<MediaDemo> {
    let gateway = *running.engine.gateway_addresses().first()?;
    let request = json!({"endpoint": "/proxy/stream", "destination_url": MediaDemo::video_url(port), "sealed": true});
    let request: LinkRequest = serde_json::from_value(request).expect("it is a link request");
    let media = &running.components.media;
    MediaDemo::new(gateway, &media.link(&request, &media.base(gateway)).ok()?.url)
}

#[cfg(not(feature = "media"))]
const fn film(_: &run::RunningInstance, _: u16) -> Option<MediaDemo> {
    None
}

/// The rule that allows the demo's other traffic.
fn known_hosts_rule() -> RuleSpec {
    let rule =
        serde_json::json!({"action": "allow", "hosts": KNOWN_HOSTS, "note": "the demo asks only about its warehouse"});
    serde_json::from_value(rule).expect("it is a rule")
}

fn print_banner(running: &run::RunningInstance, proxy: SocketAddr) {
    let bold = anstyle::Style::new().bold();
    anstream::println!("{bold}Interflow demo{bold:#}: agents and a shop talk through a proxy on this machine.\n");
    if let Some((_, addr)) = &running.admin {
        // If the output is not a terminal, use `interflow open` to log in.
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let token = if terminal { format!("?token={}", running.token) } else { String::new() };
        anstream::println!("  look      http://{addr}/{token}");
        anstream::println!("  agents    http://{addr}/conversations{token}");
        anstream::println!("  decide    http://{addr}/approvals{token}");
    }
    anstream::println!("  proxy     http://{proxy}\n\nCtrl-C ends it.");
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

impl DemoFolder {
    fn temporary() -> Result<Self, CliError> {
        let name = format!("interflow-demo-{}-{}", std::process::id(), interflow_types::Timestamp::now().micros());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
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
