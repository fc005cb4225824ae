//! The gateway port's routes: selects the origin of a request in origin-form.

use std::sync::Arc;

use interflow_types::{
    Authority, ByteStr, GatewayMount, GatewayRequest, Host, HostPatterns, MountTarget, Response, Scheme, StatusCode,
    Url,
};

use crate::config::GatewayRoute;
use crate::http::error_response::html_page;
use interflow_codec::html::escape;

/// Compiled routes, the longest path first, so that the first match is the most specific one.
#[derive(Debug, Default)]
pub(crate) struct GatewayRoutes {
    routes: Vec<CompiledGatewayRoute>,
}

#[derive(Debug)]
struct CompiledGatewayRoute {
    path: String,
    hosts: HostPatterns,
    scheme: Scheme,
    authority: Authority,
    base: String,
    strip: bool,
    keep_host: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GatewayRouteMatch {
    pub url: Url,
    pub keep_host: bool,
}

/// The target of a request on the gateway port: a configured route, or else that of a mount.
pub(crate) fn find_target<'m>(
    routes: &GatewayRoutes,
    mounts: &'m [Arc<dyn GatewayMount>],
    request: &GatewayRequest<'_>,
) -> Option<(MountTarget, Option<&'m Arc<dyn GatewayMount>>)> {
    if let Some(GatewayRouteMatch { url, keep_host }) = routes.find(request.path, request.host) {
        return Some((MountTarget::Forward { url, keep_host, endpoint: None }, None));
    }
    mounts.iter().find_map(|m| Some((m.find(request)?, Some(m))))
}

impl GatewayRoutes {
    /// Compiles the routes of a config.
    ///
    /// # Errors
    /// Names the invalid route (`gateway.route[2]`) and what is wrong.
    pub fn new(config: &[GatewayRoute]) -> Result<Self, String> {
        let compile = |(i, r): (usize, &GatewayRoute)| {
            CompiledGatewayRoute::new(r).map_err(|e| format!("gateway.route[{i}]: {e}"))
        };
        let mut routes = config.iter().enumerate().map(compile).collect::<Result<Vec<_>, _>>()?;
        // Stable, so that of two equal paths the first in the file wins.
        routes.sort_by_key(|r| std::cmp::Reverse(r.path.len()));
        Ok(Self { routes })
    }

    /// The route for this path (with query) and host.
    pub fn find(&self, path: &str, host: Option<&Host>) -> Option<GatewayRouteMatch> {
        let route = self.routes.iter().find(|r| r.matches(path, host))?;
        Some(GatewayRouteMatch { url: route.target_url(path), keep_host: route.keep_host })
    }

    pub fn not_found(&self, path: &str, accept: &str) -> Response {
        if !accept.contains("text/html") {
            // Probably a program: an SDK with a wrong base URL.
            let message = format!("this gateway has no route for {path}");
            let error =
                serde_json::json!({ "message": message, "type": "not_found", "param": null, "code": "no_route" });
            let body = serde_json::json!({ "error": error }).to_string();
            return Response::full(StatusCode::NOT_FOUND, "application/json", body);
        }
        let list: String = self
            .routes
            .iter()
            .map(|r| format!("<li><code>{}</code> to <code>{}</code></li>", escape(&r.path), escape(&r.target())))
            .collect();
        let candidates = if list.is_empty() {
            "<p>No route is configured: add <code>[[gateway.route]]</code> with <code>path</code> and <code>to</code>.</p>".into()
        } else {
            format!("<p>The routes are:</p><ul>{list}</ul>")
        };
        let body =
            format!("<h1>No route</h1><p>This gateway has no route for <code>{}</code>.</p>{candidates}", escape(path));
        Response::full(StatusCode::NOT_FOUND, "text/html; charset=utf-8", html_page("No route", &body))
    }
}

impl CompiledGatewayRoute {
    fn new(config: &GatewayRoute) -> Result<Self, String> {
        if !config.path.starts_with('/') {
            return Err(format!("the path `{}` must begin with /", config.path));
        }
        let wrong = |why: &str| format!("`{}` is not an origin: {why}; write it as https://host/path", config.to);
        let (scheme, authority, base) = Url::split_service(&config.to).map_err(|e| wrong(&e.to_string()))?;
        if base.contains(['?', '#']) {
            return Err(wrong("a query is not allowed here"));
        }
        Ok(Self {
            path: config.path.trim_end_matches('/').to_owned(),
            hosts: HostPatterns::parse_without_ports(&config.hosts).map_err(|e| e.to_string())?,
            scheme,
            authority,
            base: base.trim_end_matches('/').to_owned(),
            strip: config.strip_path,
            keep_host: config.preserve_host,
        })
    }

    fn matches(&self, path: &str, host: Option<&Host>) -> bool {
        // The prefix must end at a segment boundary: `/api` must not match `/apix`.
        // `self.path` has no trailing slash, so what remains is empty, a further segment or the query.
        let below = path.strip_prefix(self.path.as_str()).is_some_and(|r| r.is_empty() || r.starts_with(['/', '?']));
        below && (self.hosts.is_empty() || host.is_some_and(|h| self.hosts.matches_host(h)))
    }

    fn target_url(&self, path: &str) -> Url {
        let rest = if self.strip { path.strip_prefix(self.path.as_str()).unwrap_or(path) } else { path };
        // Joins base and rest with exactly one slash; a route to a bare origin needs one even for an empty rest.
        let slash = if rest.starts_with('/') || (rest.is_empty() && !self.base.is_empty()) { "" } else { "/" };
        Url {
            scheme: self.scheme,
            authority: self.authority.clone(),
            path: ByteStr::from(format!("{}{slash}{rest}", self.base)),
        }
    }

    fn target(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority.to_host_header(self.scheme), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, to: &str, strip_path: bool, hosts: &[&str]) -> GatewayRoute {
        let hosts = hosts.iter().map(|h| h.to_string()).collect();
        GatewayRoute { path: path.into(), hosts, to: to.into(), strip_path, preserve_host: false }
    }

    #[test]
    fn the_longest_path_wins_and_paths_are_joined() {
        let routes = GatewayRoutes::new(&[
            route("/", "http://fallback:8080", false, &[]),
            route("/api/", "https://api.test/v2/", true, &[]),
            route("/api/admin", "https://admin.test", false, &["in.test"]),
        ])
        .unwrap();
        let inside = Host::parse("in.test").unwrap();
        for (path, host, url) in [
            ("/", None, "http://fallback:8080/"),
            ("/apix?q", None, "http://fallback:8080/apix?q"),
            ("/api", None, "https://api.test/v2"),
            ("/api/", None, "https://api.test/v2/"),
            ("/api?q=1", None, "https://api.test/v2/?q=1"),
            ("/api/a/b?c", None, "https://api.test/v2/a/b?c"),
            ("/api/admin/x", None, "https://api.test/v2/admin/x"),
            ("/api/admin/x", Some(&inside), "https://admin.test/api/admin/x"),
        ] {
            assert_eq!(routes.find(path, host).unwrap().url.to_string(), url, "{path}");
        }
        assert_eq!(GatewayRoutes::default().find("/", None), None);
    }

    #[test]
    fn invalid_gateway_route_is_reported_with_its_index() {
        for (path, to, says) in [
            ("x", "http://a", "must begin with /"),
            ("/", "a.test", "no scheme"),
            ("/", "ftp://a", "neither http nor https"),
            ("/", "http://a:0", "port"),
            ("/", "http://a/x?y", "query"),
        ] {
            let e = GatewayRoutes::new(&[route(path, to, false, &[])]).unwrap_err();
            assert!(e.starts_with("gateway.route[0]: ") && e.contains(says), "{e}");
        }
    }
}
