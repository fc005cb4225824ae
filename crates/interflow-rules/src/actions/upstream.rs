//! Actions on the upstream connection and on the TLS presented to clients.

use interflow_types::{Authority, ClientTlsOverride, HttpVersion, UpstreamOverrides};

use super::context::ActionContext;
use super::effect::{ActionEffect, invalid_value};
use crate::action::Action;
use crate::compiled::program::CompiledRule;

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> ActionEffect {
    match action {
        Action::ServeHttp1(_) => at.flow.extension_mut::<ClientTlsOverride>().http1 = true,
        Action::ShowCertificate(c) => at.flow.extension_mut::<ClientTlsOverride>().certificate = Some(c.files()),
        _ => {
            let Some(overrides) = at.overrides.take() else { return ActionEffect::Continue };
            let outcome = set_override(at, overrides, action);
            at.overrides = Some(overrides);
            if let Err((address, why)) = outcome {
                return invalid_value(at, rule, "address", &address, why);
            }
        }
    }
    ActionEffect::Continue
}

/// # Errors
/// An address that cannot be used, and why.
fn set_override(
    at: &ActionContext<'_>,
    overrides: &mut UpstreamOverrides,
    action: &Action,
) -> Result<(), (String, String)> {
    match action {
        Action::UpstreamProxy(b) if b.bypasses(&at.flow.authority) => {}
        Action::UpstreamProxy(b) => overrides.via = Some(b.via.iter().map(|t| at.render(t)).collect()),
        Action::Direct(_) => overrides.via = Some(Vec::new()),
        Action::HttpVersion(version) => {
            let version = version.0.first();
            overrides.version = version.map(|v| if v.starts_with('2') { HttpVersion::H2 } else { HttpVersion::Http11 });
        }
        Action::ConnectTo(s) => {
            let text = at.render(&s.to);
            let now = at.request().map_or(&at.flow.authority, |r| &r.url.authority);
            overrides.dial = Some(parse_connect_target(&text, now).map_err(|why| (text, why))?);
        }
        Action::DnsOverHttps(server) => overrides.dns_over_https = Some(server.0.clone()),
        Action::TlsVersion(only) => overrides.tls_version = Some(only.0),
        Action::DangerSkipVerify(_) => overrides.danger_skip_verify = true,
        Action::ClientCertificate(c) => overrides.client_certificate = Some(c.files()),
        Action::Impersonate(like) => overrides.fingerprint = Some(like.as_str().to_owned()),
        Action::OwnConnection(_) => overrides.own_connection = true,
        _ => {}
    }
    Ok(())
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
