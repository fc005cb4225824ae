//! nginx as a reverse proxy before the origin: plain HTTP, and TLS opened with one fixed certificate and encrypted anew.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, apt, port, version_line};
use crate::testbed::Testbed;

pub struct Nginx;

impl Peer for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn install(&self) -> Result<String> {
        apt("nginx", "nginx")?;
        version_line("nginx", &["-v"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (plain, tls) = (port()?, port()?);
        let dir = testbed.path("nginx-proxy");
        fs::create_dir_all(&dir)?;
        let config = testbed.path("nginx-proxy.conf");
        fs::write(&config, config_text(testbed, &dir.display().to_string(), plain, tls))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&dir).arg("-c").arg(&config).arg("-e").arg(dir.join("errors.log"));
        Arm::reverse(testbed, self, plain, command, (Some(Via::Reverse(plain)), Some(Via::Reverse(tls))))
    }
}

fn config_text(testbed: &Testbed, dir: &str, plain: std::net::SocketAddr, tls: std::net::SocketAddr) -> String {
    let (cert, key) = (testbed.path("leaf.pem"), testbed.path("leaf.key"));
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|n| format!("  {n}_temp_path {dir}/{n};\n"))
        .collect();
    format!(
        "user root;\ndaemon off;\nworker_processes auto;\npid {dir}/pid;\n\
         events {{ worker_connections 18000; }}\n\
         http {{\n  access_log off;\n  tcp_nodelay on;\n  keepalive_timeout 600;\n  keepalive_requests 1000000000;\n{temp}\
         \x20 proxy_http_version 1.1;\n  proxy_set_header Connection \"\";\n  proxy_set_header Host $http_host;\n\
         \x20 upstream o {{ server {}; keepalive 256; keepalive_requests 1000000000; }}\n\
         \x20 upstream t {{ server {}; keepalive 256; keepalive_requests 1000000000; }}\n\
         \x20 server {{ listen {plain} backlog=16384; location / {{ proxy_pass http://o; }} }}\n\
         \x20 server {{ listen {tls} ssl backlog=16384; ssl_certificate {}; ssl_certificate_key {};\n\
         \x20   location / {{ proxy_pass https://t; }} }}\n}}\n",
        testbed.http(),
        testbed.https(),
        cert.display(),
        key.display()
    )
}
