//! A reverse proxy on Pingora, as its user guide writes one: `pingora-peer PLAIN ORIGIN TLS TLS_ORIGIN CERTIFICATE KEY`.

#![forbid(unsafe_code)]

use async_trait::async_trait;
use pingora::prelude::*;

struct Origin {
    address: String,
    is_tls: bool,
}

#[async_trait]
impl ProxyHttp for Origin {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.address.as_str(), self.is_tls, "localhost".into());
        peer.options.verify_cert = false;
        peer.options.verify_hostname = false;
        Ok(Box::new(peer))
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [plain, origin, tls, tls_origin, certificate, key] = &words[..] else {
        eprintln!("pingora-peer PLAIN ORIGIN TLS TLS_ORIGIN CERTIFICATE KEY");
        std::process::exit(2);
    };
    let mut server = Server::new(None).expect("a server");
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Origin { address: origin.clone(), is_tls: false });
    service.add_tcp(plain);
    service.threads = std::thread::available_parallelism().ok().map(usize::from);
    server.add_service(service);
    let mut service = http_proxy_service(&server.configuration, Origin { address: tls_origin.clone(), is_tls: true });
    service.add_tls(tls, certificate, key).expect("the certificate");
    service.threads = std::thread::available_parallelism().ok().map(usize::from);
    server.add_service(service);
    server.run_forever();
}
