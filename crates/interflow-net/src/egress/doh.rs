//! DNS over HTTPS (RFC 8484): a lookup is two requests over a verified connection, which is kept for later ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interflow_codec::dns;
use interflow_types::{
    Authority, Body, Error, FlowClock, FlowTimings, Headers, HttpVersion, Method, Request, RequestHead, Scheme,
    StatusCode, Url,
};

use super::dial::{AllowAllAddresses, Dialer, DialerOptions};
use super::dns::{DnsResolver, ResolverOptions};
use super::name_servers::{DnsAnswer, HostsFile, LookupFailure, look_up_both};
use super::{EgressOptions, EgressShared, UpstreamClient, UpstreamReport, UpstreamRoute};
use crate::tls::TlsProfile;

/// The media type of DNS messages (RFC 8484 6).
const MEDIA_TYPE: &str = "application/dns-message";

/// The largest response: DNS messages have 16-bit lengths.
const MAX_RESPONSE_BYTES: usize = 65_535;

/// Servers that can be configured by name.
const KNOWN_SERVERS: [(&str, &str); 3] = [
    ("cloudflare", "https://cloudflare-dns.com/dns-query"),
    ("google", "https://dns.google/dns-query"),
    ("quad9", "https://dns.quad9.net/dns-query"),
];

/// A DNS over HTTPS server, and how its certificate is verified.
#[derive(Clone)]
pub struct DohServer {
    url: Url,
    tls: Arc<TlsProfile>,
}

impl DohServer {
    /// Parses `https://host/path`, optionally followed by `{?dns}`, or the name of a well-known server: `cloudflare`,
    /// `google`, `quad9`.
    ///
    /// # Errors
    /// What is wrong with it; the caller knows whether the text is from the configuration or a rule.
    pub fn parse(text: &str, tls: Arc<TlsProfile>) -> Result<Self, String> {
        let server = KNOWN_SERVERS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        let full = server.map_or(text, |(_, url)| url);
        let rest = full.strip_prefix("https://").ok_or_else(|| {
            let names = KNOWN_SERVERS.map(|(name, _)| name).join(", ");
            format!("`{text}` is not a DNS over HTTPS server: write https://host/path, or one of {names}")
        })?;
        // Server lists give URI templates (RFC 8484 section 3); POST needs no variable of them.
        let rest = rest.strip_suffix("{?dns}").unwrap_or(rest);
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = Authority::parse(&rest[..at], Some(443)).map_err(|e| format!("`{text}`: {e}"))?;
        // A fragment is never sent.
        let path = rest[at..].split('#').next().unwrap_or_default();
        let path = if path.is_empty() { "/dns-query" } else { path };
        if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("`{text}` has no path that is valid in a request"));
        }
        Ok(Self { url: Url { scheme: Scheme::Https, authority, path: path.into() }, tls })
    }
}

impl fmt::Debug for DohServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DohServer({})", self.url)
    }
}

/// A client of one server, whose own name is resolved by the system.
pub(super) struct DohClient {
    server: DohServer,
    route: UpstreamRoute,
    egress: UpstreamClient,
    /// The hosts file takes precedence here too.
    hosts: HostsFile,
}

impl DohClient {
    pub fn new(server: DohServer, timeout: Duration) -> Self {
        let names = DnsResolver::new(ResolverOptions { timeout, ..ResolverOptions::default() });
        // The server's own name is resolved conventionally: DNS over HTTPS cannot resolve itself. The address filter
        // does not apply, since the operator chose the server.
        let dialer = Dialer::new(names, Arc::new(AllowAllAddresses), DialerOptions::default());
        let egress = UpstreamClient::new(EgressOptions::default(), Arc::new(dialer), EgressShared::new(None));
        let route = UpstreamRoute::new(Scheme::Https, server.url.authority.clone(), Arc::clone(&server.tls));
        Self { server, route, egress, hosts: HostsFile::read() }
    }

    /// The addresses of a name; over HTTP/2 one connection carries the queries for both families.
    pub async fn look_up(&self, name: &str) -> Result<DnsAnswer, LookupFailure> {
        // As the system's resolver does: entries there are meant to override DNS.
        match self.hosts.look_up(name) {
            Some(answer) => Ok(answer),
            None => look_up_both(|kind| self.ask(name, kind)).await,
        }
    }

    async fn ask(&self, name: &str, kind: u16) -> Result<DnsAnswer, LookupFailure> {
        // A constant id makes equal queries equal in bytes, so that HTTP caches can respond (RFC 8484 4.1).
        let Some(query) = dns::write_query(0, name, kind) else {
            return Err(LookupFailure::Server("it is not a DNS name".to_owned()));
        };
        let answer = match self.post(query).await {
            Ok((answer, age)) => DnsAnswer::parse(&answer, age),
            Err(e) => Err(LookupFailure::Server(e.to_string())),
        };
        answer.map_err(|failure| match failure {
            LookupFailure::Server(why) => LookupFailure::Server(format!("{}: {why}", self.server.url)),
            absent => absent,
        })
    }

    /// One exchange: the response's bytes, and its `Age` in seconds.
    async fn post(&self, message: Vec<u8>) -> Result<(Vec<u8>, u32), Error> {
        let mut headers = Headers::new();
        headers.append_unchecked(b"host", self.server.url.authority.to_host_header(Scheme::Https).as_bytes());
        headers.append_unchecked(b"accept", MEDIA_TYPE.as_bytes());
        headers.append_unchecked(b"content-type", MEDIA_TYPE.as_bytes());
        headers.append_unchecked(b"content-length", message.len().to_string().as_bytes());
        let head = RequestHead {
            method: Method::POST,
            url: self.server.url.clone(),
            version: HttpVersion::H2,
            headers,
            protocol: None,
        };
        let request = Request { head, body: Body::Full(message.into()) };
        let (clock, mut timings, mut upstream) = (FlowClock::start(), FlowTimings::default(), None);
        let mut x =
            UpstreamReport { clock: &clock, timings: &mut timings, upstream: &mut upstream, interim: &mut |_| () };
        let answer = self.egress.send(&self.route, request, &mut x).await?;
        let broken = |what: String| Error::new(interflow_types::ErrorKind::Dns, what);
        // Any error of DNS itself has status 200 and its code in the message (RFC 8484 4.2.1).
        if answer.head.status != StatusCode::OK {
            return Err(broken(format!("it responded with {}", answer.head.status)));
        }
        let media = answer.head.headers.get_str("content-type").unwrap_or_default();
        if !media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE) {
            return Err(broken(format!("its response has the type `{media}` instead of {MEDIA_TYPE}")));
        }
        let age = answer.head.headers.get_str("age").and_then(|a| a.trim().parse().ok()).unwrap_or(0);
        // Bounded: the server could send without end otherwise.
        let (bytes, _) = answer.body.collect(MAX_RESPONSE_BYTES).await.map_err(|e| broken(e.to_string()))?;
        Ok((bytes.to_vec(), age))
    }
}

#[cfg(test)]
#[path = "doh_tests.rs"]
mod tests;
