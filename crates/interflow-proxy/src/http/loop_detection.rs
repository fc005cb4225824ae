//! Detects forwarding loops: each instance adds its pseudonym to `Via` where the next hop may be another proxy or
//! gateway (RFC 9110 7.6.3). A request that arrives with it is a loop.

use std::sync::Arc;

use interflow_net::egress::UpstreamRoute;
use interflow_net::egress::proxy::ProxyKind;
use interflow_types::{
    EndpointId, EntryKind, Error, ErrorKind, Flow, Headers, Host, RequestHead, Result, Scheme, random_bytes,
};

/// The pseudonym of this instance, random at each start so that it does not identify an installation over time, and
/// the whole `Via` entry made of it. Both are empty if disabled.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViaPseudonym {
    name: Arc<str>,
    entry: Arc<str>,
}

/// The `Via` of the CONNECT that opened a tunnel, an extension on the flows of the requests in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedVia(pub Option<Arc<str>>);

impl ViaPseudonym {
    pub fn random() -> Self {
        let name = format!("interflow-{}", hex::encode(random_bytes::<8>()));
        Self { entry: format!("1.1 {name}").into(), name: name.into() }
    }

    /// Rejects a request that has already passed this instance.
    ///
    /// # Errors
    /// [`ErrorKind::Loop`].
    pub fn check(&self, headers: &Headers) -> Result<()> {
        // An entry is `version pseudonym`, optionally followed by a comment; the pseudonym is the second word.
        let is_local = |entry: &[u8]| {
            let name = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1);
            name.is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
        };
        // If `Via` is disabled, the name is empty and equals no word.
        if headers.list_items("via").any(is_local) {
            let text = "the request has passed this proxy before (its own pseudonym is in Via): this is a \
                        forwarding loop; check upstream.proxy and the gateway's routes of the proxies on the path";
            return Err(Error::new(ErrorKind::Loop, text));
        }
        Ok(())
    }

    /// The `Via` of CONNECT requests to upstream proxies: the received value, followed by this instance's entry.
    pub fn connect_via(&self, received: Option<&str>) -> Option<Arc<str>> {
        match received {
            _ if self.name.is_empty() => None,
            None => Some(Arc::clone(&self.entry)),
            Some(received) => Some(format!("{received}, {}", self.entry).into()),
        }
    }

    /// Adds a tunnel's `Via` to the route of the requests in it.
    pub fn add_tunnel_via(&self, route: &mut UpstreamRoute, flow: &Flow) {
        if let Some(ReceivedVia(Some(received))) = flow.extension::<ReceivedVia>() {
            route.connect_via = self.connect_via(Some(received));
        }
    }

    /// Adds this instance's entry to a request whose route could loop.
    pub fn add_via(&self, head: &RequestHead, sent: &mut Option<Box<RequestHead>>, route: &UpstreamRoute, flow: &Flow) {
        if !self.name.is_empty() && may_loop(head, route, flow) {
            // The head that is sent is cloned only if it differs from the recorded one.
            let sent = sent.get_or_insert_with(|| Box::new(head.clone()));
            sent.headers.append_unchecked(b"Via", self.entry.as_bytes());
        }
    }
}

/// Whether the next hop may forward the request as it is. For TLS through an HTTP proxy the CONNECT carries `Via`,
/// and the request itself is unchanged. Of a gateway's routes, only those to public provider hosts cannot lead to
/// another gateway.
fn may_loop(head: &RequestHead, route: &UpstreamRoute, flow: &Flow) -> bool {
    if let Some(last) = route.via.last() {
        // Behind SOCKS5 and inside a tunnel there is the origin: the entry would tell it, and all other origins, of this
        // instance.
        return head.url.scheme == Scheme::Http && last.kind != ProxyKind::Socks5;
    }
    let is_provider = || {
        flow.extension::<EndpointId>().is_some()
            && head.url.scheme == Scheme::Https
            && matches!(&head.url.authority.host, Host::Name(name) if name.contains('.'))
    };
    flow.transport == EntryKind::Gateway && !is_provider()
}

/// The `Via` of a request that opens a tunnel.
pub(crate) fn received_via(headers: &Headers) -> Option<Arc<str>> {
    let entries: Vec<_> = headers.get_all("via").map(String::from_utf8_lossy).collect();
    (!entries.is_empty()).then(|| entries.join(", ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_via_pseudonym_is_a_loop() {
        let (local, other) = (ViaPseudonym::random(), ViaPseudonym::random());
        for (via, looped) in [
            (String::new(), false),
            ("1.1 interflow".into(), false),
            (format!("1.0 fred, {}", other.entry), false),
            (format!("1.0 fred, 1.1 x.example.com (Apache), {}", local.entry), true),
            (format!("HTTP/2.0   {} (a comment)", local.name.to_uppercase()), true),
            (local.name.to_string(), false),
        ] {
            let headers: Headers = [("Via", via.as_str())].into_iter().collect();
            assert_eq!(local.check(&headers).is_err(), looped, "{via}");
        }
    }

    #[test]
    fn connect_via_keeps_received_entries_and_appends_its_own() {
        let local = ViaPseudonym::random();
        let headers: Headers = [("Via", "1.1 a"), ("via", "1.1 b, 1.1 c")].into_iter().collect();
        let received = received_via(&headers);
        assert_eq!(
            local.connect_via(received.as_deref()).unwrap().as_ref(),
            format!("1.1 a, 1.1 b, 1.1 c, {}", local.entry)
        );
        assert_eq!(local.connect_via(None).unwrap(), local.entry);
        assert_eq!(ViaPseudonym::default().connect_via(None), None);
        assert_eq!(received_via(&Headers::new()), None);
    }
}
