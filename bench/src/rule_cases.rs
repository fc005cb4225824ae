//! Instruction counts of rules: the cost of their stages for a request of 8 KiB, without the request pipeline.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use interflow_rules::{ActiveRules, RuleRuntime, RulesConfig};
use interflow_types::{
    Authority, Body, ClientInfo, EntryKind, Flow, HttpVersion, MaybeFuture, Method, Phase, PlanScope, RequestHead,
    ResponseHead, Scheme, Stage, StatusCode, Timestamp, Url,
};

use crate::{Result, rule_set};

/// One round of a case.
type Round = Box<dyn FnMut()>;

/// The flow and its heads alone, whose cost is included in the other cases.
pub fn none() -> Result<Round> {
    round("rules = []")
}

/// Twenty rules of which none matches.
pub fn twenty() -> Result<Round> {
    round(rule_set::TWENTY)
}

/// A thousand rules for other hosts.
pub fn thousand_hosts() -> Result<Round> {
    round(&rule_set::thousand_hosts())
}

/// One field more in the response.
pub fn header() -> Result<Round> {
    round(rule_set::HEADER)
}

fn round(rules: &str) -> Result<Round> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, rules)?;
    let config = RulesConfig { files: vec![file], ..RulesConfig::default() };
    let rules = Arc::new(ActiveRules::new(&config, Arc::new(RuleRuntime::default())).map_err(|e| e.to_string())?);
    let exchange = Exchange::new()?;
    let stages: Vec<Arc<dyn Stage>> = [rules.request_stage(), rules.response_stage()]
        .iter()
        .filter_map(|stage| stage.specialize(&exchange.scope()))
        .collect();
    Ok(Box::new(move || {
        black_box(exchange.pass(&stages));
    }))
}

/// A request and its response as a browser and a web server write them.
struct Exchange {
    client: Arc<ClientInfo>,
    request: RequestHead,
    response: ResponseHead,
    body: Bytes,
}

impl Exchange {
    fn new() -> Result<Self> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let client = ClientInfo {
            connection: 1,
            peer: nowhere,
            local: nowhere,
            listener: "proxy".into(),
            accepted: Timestamp::now(),
            process: None,
            container: None,
        };
        let authority: Authority = "localhost:8443".parse()?;
        let url = Url { scheme: Scheme::Https, authority, path: "/files/8192.bin".into() };
        let mut request = RequestHead {
            method: Method::GET,
            url,
            version: HttpVersion::Http11,
            headers: Default::default(),
            protocol: None,
        };
        for (name, value) in [
            ("Host", "localhost:8443"),
            ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0"),
            ("Accept", "*/*"),
            ("Accept-Encoding", "gzip, deflate, br, zstd"),
            ("Accept-Language", "en-US,en;q=0.5"),
        ] {
            request.headers.append(name, value)?;
        }
        let mut response = ResponseHead::new(StatusCode::OK);
        for (name, value) in [
            ("Server", "nginx"),
            ("Date", "Fri, 20 Nov 2026 10:00:00 GMT"),
            ("Content-Type", "application/octet-stream"),
            ("Content-Length", "8192"),
            ("ETag", "\"691f-2000\""),
        ] {
            response.headers.append(name, value)?;
        }
        Ok(Self { client: client.into(), request, response, body: Bytes::from(vec![b'x'; 8192]) })
    }

    fn scope(&self) -> PlanScope<'_> {
        PlanScope {
            listener: "proxy",
            user: None,
            authority: &self.request.url.authority,
            transport: EntryKind::Connect,
            intercepted: true,
        }
    }

    /// Calls the stages like the request pipeline: each only at the phases it registered for.
    fn pass(&self, stages: &[Arc<dyn Stage>]) -> Option<Flow> {
        let authority = self.request.url.authority.clone();
        let mut flow = Flow::begin(Arc::clone(&self.client), EntryKind::Connect, Scheme::Https, authority);
        let (mut request, mut response) = (self.request.clone(), self.response.clone());
        for stage in stages {
            let interest = stage.interest(&self.scope());
            if interest.contains(Phase::RequestHead) {
                now(stage.request_head(&mut flow, &mut request))?;
            }
            if interest.contains(Phase::RequestBody) {
                now(stage.request_body(&mut flow, &mut request, Body::Empty))?.ok()?;
            }
            if interest.contains(Phase::ResponseHead) {
                now(stage.response_head(&mut flow, &request, &mut response))?;
            }
            if interest.contains(Phase::ResponseBody) {
                let body = Body::Full(self.body.clone());
                now(stage.response_body(&mut flow, &request, &mut response, body))?.ok()?;
            }
        }
        black_box((&request, &response));
        Some(flow)
    }
}

fn now<T>(step: MaybeFuture<'_, T>) -> Option<T> {
    match step {
        MaybeFuture::Ready(value) => Some(value),
        MaybeFuture::Pending(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_rules_load_and_take_effect() {
        let added = |rules: &str| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("rules.toml");
            std::fs::write(&file, rules).unwrap();
            let config = RulesConfig { files: vec![file], ..RulesConfig::default() };
            let rules = Arc::new(ActiveRules::new(&config, Arc::new(RuleRuntime::default())).unwrap());
            let exchange = Exchange::new().unwrap();
            let halves = [rules.request_stage(), rules.response_stage()];
            let stages: Vec<_> = halves.iter().filter_map(|s| s.specialize(&exchange.scope())).collect();
            exchange.pass(&stages).expect("nothing is waited for");
            (
                rules.program().rules.len(),
                rules.program().rules.iter().map(interflow_rules::CompiledRule::matches).sum::<u64>(),
            )
        };
        assert_eq!(added(rule_set::TWENTY), (20, 0));
        assert_eq!(added(&rule_set::thousand_hosts()), (1000, 0));
        assert_eq!(added(rule_set::HEADER), (1, 1));
    }
}
