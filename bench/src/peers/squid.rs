//! Squid (with OpenSSL): as a plain forward proxy, and with SSL bump. Caching and logs are off.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, apt, port, run_quietly, version_line};
use crate::testbed::Testbed;

const CERTGEN: &str = "/usr/lib/squid/security_file_certgen";

#[derive(Clone, Copy, PartialEq)]
pub enum Squid {
    Plain,
    Bump,
}

impl Peer for Squid {
    fn name(&self) -> &'static str {
        match self {
            Self::Plain => "squid",
            Self::Bump => "squid-bump",
        }
    }

    fn install(&self) -> Result<String> {
        apt(CERTGEN, "squid-openssl")?;
        version_line("squid", &["-v"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let dir = testbed.path(self.name());
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
        let at = dir.display();
        let mut text = format!(
            "http_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_log {at}/cache.log\n\
             pid_filename {at}/pid\ncoredump_dir {at}\nvisible_hostname bench\nshutdown_lifetime 0 seconds\n\
             client_persistent_connections on\nserver_persistent_connections on\nmax_filedescriptors 65536\n\
             via on\nforwarded_for off\nconnect_timeout 30 seconds\npinger_enable off\n"
        );
        match self {
            Self::Plain => text += &format!("http_port {addr}\n"),
            Self::Bump => text += &self.bump(testbed, &dir, addr)?,
        }
        let config = dir.join("squid.conf");
        fs::write(&config, text)?;
        let mut command = Command::new("squid");
        command.arg("-N").arg("-f").arg(&config);
        Arm::forward(testbed, self, addr, command)
    }
}

impl Squid {
    fn bump(self, testbed: &Testbed, dir: &std::path::Path, addr: std::net::SocketAddr) -> Result<String> {
        let mut key = Command::new("openssl");
        key.args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "30", "-nodes"]);
        key.args(["-x509", "-subj", "/CN=bench squid", "-addext", "basicConstraints=critical,CA:TRUE"]);
        key.arg("-keyout").arg(dir.join("ca.pem")).arg("-out").arg(dir.join("ca.crt"));
        run_quietly(key)?;
        let both = fs::read_to_string(dir.join("ca.crt"))? + &fs::read_to_string(dir.join("ca.pem"))?;
        fs::write(dir.join("ca.pem"), both)?;
        fs::set_permissions(dir.join("ca.pem"), fs::Permissions::from_mode(0o644))?;
        let mut store = Command::new(CERTGEN);
        store.arg("-c").arg("-s").arg(dir.join("certs")).args(["-M", "16MB"]);
        run_quietly(store)?;
        let mut owner = Command::new("chown");
        owner.args(["-R", "proxy:proxy"]).arg(dir);
        run_quietly(owner)?;
        let at = dir.display();
        Ok(format!(
            "http_port {addr} ssl-bump tls-cert={at}/ca.pem generate-host-certificates=on dynamic_cert_mem_cache_size=16MB\n\
             sslcrtd_program {CERTGEN} -s {at}/certs -M 16MB\nsslcrtd_children 8 startup=2 idle=1\n\
             ssl_bump bump all\nsslproxy_cert_error allow all\ntls_outgoing_options cafile={}\n",
            testbed.path("ca.pem").display()
        ))
    }
}
