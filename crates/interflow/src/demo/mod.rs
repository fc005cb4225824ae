//! `interflow demo`: an instance with something to see. A local origin, a fake provider of language models and agents that
//! talk to it; nothing leaves the machine, and nothing is left behind.

mod agent;
mod bank;
mod client;
mod film;
mod model;
mod origin;
mod script;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use interflow_engine::approvals::config::{Mode, RuleSpec};
use interflow_flow::units::Span;
use interflow_redact::RedactMode;
use ipnet::IpNet;

use crate::Failure;
use crate::config::Config;
use crate::home::Home;
use crate::log;
use crate::run;

/// Names that the demo's traffic goes to; all of them are this machine.
const NAMES: [&str; 9] = [
    "shop.example",
    "cdn.example",
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "llm.example",
    "ollama.example",
    WAREHOUSE,
    BANK,
];

/// A host that is reached over TLS.
const BANK: &str = "bank.example";

/// A host that nobody has decided about: requests to it are held.
const WAREHOUSE: &str = "warehouse";
/// What everything else is let through by: every name with a dot, every address.
const KNOWN: &str = "*[.:]*";
/// How long a request to the warehouse is held.
const PATIENCE: Span = Span::secs(900);

/// Rules that do something to see.
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

/// How long to rest between two rounds of traffic.
const REST: Duration = Duration::from_secs(8);

/// What the demo is told.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Address of the proxy port; any free one when the usual one is taken.
    #[arg(long, value_name = "ADDR")]
    pub proxy: Option<SocketAddr>,
    /// Address of the gateway port; any free one when the usual one is taken.
    #[arg(long, value_name = "ADDR")]
    pub gateway: Option<SocketAddr>,
    /// Address of the admin port; any free one when the usual one is taken.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Keep the recording in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// End after so many rounds of traffic, instead of going on until Ctrl-C.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
}

/// Runs until a signal. It has a data folder of its own, never the owner's.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let place = match &args.keep {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            Place { folder: folder.clone(), passing: false }
        }
        None => Place::passing()?,
    };
    let home = Home::find(Some(&place.folder))?;
    let mut config = Config::default();
    config.log.level = "warn".into();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the runtime could not be started: {e}"))?;
    log::start(&config.log)?;
    let done = runtime.block_on(show(args, config, &home));
    drop(place);
    done
}

async fn show(args: &DemoArgs, mut config: Config, home: &Home) -> Result<(), Failure> {
    let origin = origin::start().await.map_err(|e| format!("the demo's origin could not listen: {e}"))?;
    config.proxy.listen = vec![args.proxy.unwrap_or_else(|| free(7070))];
    // Whoever wants any port for the proxy has another demo running, or may.
    let any = args.proxy.filter(|a| a.port() == 0);
    config.gateway.listen = vec![args.gateway.or(any).unwrap_or_else(|| free(7071))];
    config.admin.listen = Some(args.admin.unwrap_or_else(|| free(7072)));
    config.redact.intercepted = RedactMode::Redact;
    config.approvals.mode = Mode::Ask;
    config.approvals.timeout = PATIENCE;
    config.approvals.rule = vec![known()];
    std::fs::write(home.join("rules.yaml"), RULES).map_err(|e| format!("the demo's rules: {e}"))?;
    let here = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    config.upstream.resolve = NAMES.iter().map(|name| ((*name).to_owned(), here.clone())).collect();
    let vault = home.ca().with_file_name("bank");
    let bank = bank::open(&vault).await.map_err(|e| format!("the demo's bank could not open: {e}"))?;
    config.upstream.extra_ca = vec![vault.join("ca.pem")];
    config.media.allow_private = vec![IpNet::from(here[0])];
    let running = run::start(&config, home).await?;
    let film = film::Film::link(&running, origin.port());
    let bank = bank::Bank::new(bank.port(), &home.ca()).map_err(|e| format!("the demo's authority: {e}"))?;
    let _announced = running.announce();
    let proxy =
        running.engine.proxy_addresses().first().copied().ok_or_else(|| "the proxy does not listen".to_owned())?;
    greet(&running, proxy);
    let world = client::World { proxy, port: origin.port() };
    let traffic = async move {
        let mut round = 0;
        while args.rounds.is_none_or(|n| round < n) {
            client::round(world, &bank, film.as_ref(), round).await;
            round += 1;
            if args.rounds.is_none_or(|n| round < n) {
                tokio::time::sleep(REST).await;
            }
        }
    };
    if args.rounds.is_some() {
        traffic.await;
        return running.settle().await;
    }
    tokio::select! {
        () = traffic => {}
        () = client::reserve(world) => {}
        () = running.until_told(crate::run::Stop::listen()) => {}
    }
    Ok(())
}

/// The rule that lets the demo's other traffic through.
fn known() -> RuleSpec {
    let rule =
        serde_json::json!({"action": "allow", "hosts": [KNOWN], "note": "the demo asks about its warehouse alone"});
    serde_json::from_value(rule).expect("it is a rule")
}

fn greet(running: &run::Running, proxy: SocketAddr) {
    let bold = anstyle::Style::new().bold();
    anstream::println!("{bold}Interflow demo{bold:#}: agents and a shop talk through a proxy on this machine.\n");
    if let Some((_, addr)) = &running.admin {
        // `interflow open` logs in where the output goes elsewhere.
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let token = if terminal { format!("?token={}", running.token) } else { String::new() };
        anstream::println!("  look      http://{addr}/{token}");
        anstream::println!("  agents    http://{addr}/conversations{token}");
        anstream::println!("  decide    http://{addr}/approvals{token}");
    }
    anstream::println!("  proxy     http://{proxy}\n\nCtrl-C ends it.");
}

/// The usual port where it is free, else any.
fn free(port: u16) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match std::net::TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

/// The data folder; a passing one is removed at the end.
struct Place {
    folder: PathBuf,
    passing: bool,
}

impl Place {
    fn passing() -> Result<Self, Failure> {
        let name = format!("interflow-demo-{}-{}", std::process::id(), interflow_flow::Timestamp::now().micros());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder, passing: true })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.passing {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
