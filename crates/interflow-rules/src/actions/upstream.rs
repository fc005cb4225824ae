//! Actions on the upstream connection and on the TLS presented to clients.

use interflow_types::{Authority, ClientTlsOverride, HttpVersion};

use super::context::ActionContext;
use super::effect::{ActionEffect, action_failed, invalid_value_error};
use crate::action::Action;
use crate::compiled::program::{CompiledRule, RuleProgram};

pub(super) fn apply(
    at: &mut ActionContext<'_>,
    action: &Action,
    rule: &CompiledRule,
    program: &RuleProgram,
) -> ActionEffect {
    match action {
        Action::UpstreamProxy(b) => {
            let direct = b.bypasses(&at.flow.authority);
            let via = b.via.iter().map(|t| at.render(program, t)).collect();
            if let Some(way) = at.overrides.as_deref_mut().filter(|_| !direct) {
                way.via = Some(via);
            }
        }
        Action::Direct(_) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.via = Some(Vec::new());
            }
        }
        Action::HttpVersion(version) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.version =
                    version.0.first().map(|v| if v.starts_with('2') { HttpVersion::H2 } else { HttpVersion::Http11 });
            }
        }
        Action::ConnectTo(s) => {
            let text = at.render(program, &s.to);
            let now = at.request().map_or(&at.flow.authority, |r| &r.url.authority).clone();
            match parse_connect_target(&text, &now) {
                Ok(authority) => {
                    if let Some(way) = at.overrides.as_deref_mut() {
                        way.dial = Some(authority);
                    }
                }
                Err(e) => return action_failed(program, rule, at.flow, invalid_value_error(rule, "address", &text, e)),
            }
        }
        Action::DnsOverHttps(server) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.dns_over_https = Some(server.0.clone());
            }
        }
        Action::TlsVersion(only) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.tls_version = Some(only.0);
            }
        }
        Action::ServeHttp1(_) => at.flow.extension_mut::<ClientTlsOverride>().http1 = true,
        Action::ShowCertificate(c) => {
            at.flow.extension_mut::<ClientTlsOverride>().certificate = Some(c.files());
        }
        Action::DangerSkipVerify(_) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.danger_skip_verify = true;
            }
        }
        Action::ClientCertificate(c) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.client_certificate = Some(c.files());
            }
        }
        Action::Impersonate(like) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.fingerprint = Some(like.as_str().to_owned());
            }
        }
        Action::OwnConnection(_) => {
            if let Some(way) = at.overrides.as_deref_mut() {
                way.own_connection = true;
            }
        }
        _ => {}
    }
    ActionEffect::Continue
}

/// `host`, `host:port` or `:port`; missing parts are taken from `now`, the authority of the request.
fn parse_connect_target(text: &str, now: &Authority) -> Result<Authority, String> {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    if let Some(port) = text.strip_prefix(':').filter(|_| !bare_v6) {
        let port = port.parse().ok().filter(|p| *p > 0).ok_or("the port must be a number from 1 to 65535")?;
        return Ok(Authority::new(now.host.clone(), port));
    }
    let text = if bare_v6 { format!("[{text}]") } else { text.to_owned() };
    Authority::parse(&text, Some(now.port)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_target_keeps_omitted_host_or_port() {
        let now: Authority = "a.test:443".parse().unwrap();
        for (text, to) in [
            ("b.test", "b.test:443"),
            ("b.test:80", "b.test:80"),
            (":8443", "a.test:8443"),
            ("127.0.0.1", "127.0.0.1:443"),
            ("::1", "[::1]:443"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(parse_connect_target(text, &now).unwrap().to_string(), to, "{text}");
        }
        for text in ["", ":0", ":x", "a b"] {
            assert!(parse_connect_target(text, &now).is_err(), "{text}");
        }
    }
}
