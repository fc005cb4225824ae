//! Actions on heads: fields, cookies, parameters, method, URL, status.

use interflow_flow::{Headers, Method, Phase, StatusCode};

use super::{At, Effect, failed, unusable};
use crate::action::Action;
use crate::cookies;
use crate::given::{CookieLine, Remote, ReplaceField};
use crate::params;
use crate::program::{Program, Rule};
use crate::sample::parse_url;
use crate::template::{Fill, Template};

/// What is done to a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    Add,
    Set,
    Update,
}

pub(super) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::AddRequestHeader(p) | Action::AddResponseHeader(p) => put(at, &p.0, Put::Add, rule, program),
        Action::SetRequestHeader(p) | Action::SetResponseHeader(p) => put(at, &p.0, Put::Set, rule, program),
        Action::UpdateRequestHeader(p) | Action::UpdateResponseHeader(p) => put(at, &p.0, Put::Update, rule, program),
        Action::RemoveRequestHeader(names) | Action::RemoveResponseHeader(names) => {
            for name in &names.0 {
                let name = at.fill(program, name);
                if let Some(headers) = at.head_mut() {
                    remove(headers, &name);
                }
            }
            Effect::Go
        }
        Action::ReplaceRequestHeader(r) | Action::ReplaceResponseHeader(r) => replace(at, r, rule, program),
        Action::BasicAuth(b) => {
            let value = crate::template::basic(&at.fill(program, &b.user), &at.fill(program, &b.password));
            set_field(at, "Authorization", &value, rule, program)
        }
        Action::BearerToken(t) => {
            let value = format!("Bearer {}", at.fill(program, t));
            set_field(at, "Authorization", &value, rule, program)
        }
        Action::SetMethod(t) => {
            let text = at.fill(program, t);
            match Method::from_bytes(text.as_bytes()) {
                Ok(method) => {
                    if let Some(r) = at.request_mut() {
                        r.method = method;
                    }
                    Effect::Go
                }
                Err(e) => failed(program, rule, at.flow, unusable(rule, "method", &text, e)),
            }
        }
        Action::SetPath(t) => {
            let path = params::path(&at.fill(program, t));
            set_path(at, path)
        }
        Action::SetUrl(t) => {
            let text = at.fill(program, t);
            go_to(at, &text, false, rule, program)
        }
        Action::SetQuery(pairs) => {
            for (name, value) in &pairs.0 {
                let (name, value) = (at.fill(program, name), at.fill(program, value));
                let Some(target) = at.request().map(|r| params::put(&r.url.path, &name, Some(&value))) else { break };
                set_path(at, target);
            }
            Effect::Go
        }
        Action::RemoveQuery(names) => {
            for name in &names.0 {
                let name = at.fill(program, name);
                let Some(target) = at.request().map(|r| params::put(&r.url.path, &name, None)) else { break };
                set_path(at, target);
            }
            Effect::Go
        }
        Action::SetRequestCookie(pairs) => {
            for (name, value) in &pairs.0 {
                let (name, value) = (at.fill(program, name), at.fill(program, value));
                if value.bytes().any(|b| matches!(b, b';' | b'\r' | b'\n' | 0)) {
                    let why = "a cookie holds no semicolon and no line break";
                    return failed(program, rule, at.flow, unusable(rule, "cookie", &value, why));
                }
                if let Some(r) = at.request_mut() {
                    cookies::put(&mut r.headers, &name, Some(&value));
                }
            }
            Effect::Go
        }
        Action::RemoveRequestCookie(names) => {
            for name in &names.0 {
                let name = at.fill(program, name);
                if let Some(r) = at.request_mut() {
                    cookies::put(&mut r.headers, &name, None);
                }
            }
            Effect::Go
        }
        Action::MapRemote(remote) => map_remote(at, remote, rule, program),
        Action::SetStatus(t) => {
            let text = at.fill(program, t);
            let status =
                text.trim().parse::<u16>().ok().filter(|n| *n >= 200).and_then(|n| StatusCode::from_u16(n).ok());
            match (status, at.response.as_deref_mut()) {
                (Some(status), Some(response)) => {
                    response.status = status;
                    response.reason = status.canonical_reason().unwrap_or_default().into();
                    Effect::Go
                }
                (None, _) => failed(program, rule, at.flow, unusable(rule, "status", &text, "it is none")),
                (_, None) => Effect::Go,
            }
        }
        Action::SetResponseCookie(line) => {
            let value = set_cookie(at, line, program);
            add_field(at, "Set-Cookie", &value, rule, program)
        }
        Action::RemoveResponseCookie(names) => {
            for name in &names.0 {
                let value =
                    format!("{}=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT", at.fill(program, name));
                if let end @ Effect::End(_) = add_field(at, "Set-Cookie", &value, rule, program) {
                    return end;
                }
            }
            Effect::Go
        }
        Action::Anticache(_) => anticache(at),
        Action::Anticomp(_) => set_field(at, "Accept-Encoding", "identity", rule, program),
        Action::StickyCookie(_) => sticky_cookie(at, program),
        Action::StickyAuth(_) => sticky_auth(at, program),
        Action::SaveSession(_) | Action::ApplySession(_) | Action::ClearSession(_) => session(at, action, program),
        _ => Effect::Go,
    }
}

fn put(at: &mut At<'_>, pairs: &[(Template, Template)], how: Put, rule: &Rule, program: &Program) -> Effect {
    for (name, value) in pairs {
        let name = at.fill(program, name);
        let value = {
            let view = at.view(program);
            let previous = view.head_of(at.side()).and_then(|h| h.get(&name));
            if how == Put::Update && previous.is_none() {
                continue;
            }
            value.fill(&Fill { view: &view, previous, groups: None }).into_owned()
        };
        let effect = match how {
            Put::Add => add_field(at, &name, &value, rule, program),
            Put::Set | Put::Update => set_field(at, &name, &value, rule, program),
        };
        if matches!(effect, Effect::End(_)) {
            return effect;
        }
    }
    Effect::Go
}

fn add_field(at: &mut At<'_>, name: &str, value: &str, rule: &Rule, program: &Program) -> Effect {
    match at.head_mut().map(|h| h.append(name, value)) {
        Some(Err(e)) => failed(program, rule, at.flow, unusable(rule, "field", name, e)),
        _ => Effect::Go,
    }
}

fn set_field(at: &mut At<'_>, name: &str, value: &str, rule: &Rule, program: &Program) -> Effect {
    match at.head_mut().map(|h| h.set(name, value)) {
        Some(Err(e)) => failed(program, rule, at.flow, unusable(rule, "field", name, e)),
        _ => Effect::Go,
    }
}

fn remove(headers: &mut Headers, name: &str) {
    match name.strip_suffix('*') {
        None => drop(headers.remove(name)),
        Some(start) => {
            headers.retain(|n, _| !n.get(..start.len()).is_some_and(|n| n.eq_ignore_ascii_case(start.as_bytes())));
        }
    }
}

fn replace(at: &mut At<'_>, r: &ReplaceField, rule: &Rule, program: &Program) -> Effect {
    let name = at.fill(program, &r.name);
    let values: Vec<Vec<u8>> = {
        let view = at.view(program);
        let Some(headers) = view.head_of(at.side()) else { return Effect::Go };
        if !headers.get_all(&name).any(|v| r.regex.0.is_match(v)) {
            return Effect::Go;
        }
        let one = |v: &[u8]| {
            let new = |groups: &regex::bytes::Captures<'_>| {
                r.with.0.fill(&Fill { view: &view, previous: Some(v), groups: Some(groups) }).into_owned().into_bytes()
            };
            r.regex.0.replace_all(v, new).into_owned()
        };
        headers.get_all(&name).map(one).collect()
    };
    let Some(headers) = at.head_mut() else { return Effect::Go };
    let mut new = Headers::with_capacity(headers.len(), headers.size());
    let mut next = values.iter();
    for (n, v) in headers.iter() {
        let value = if n.eq_ignore_ascii_case(name.as_bytes()) { next.next().map_or(v, |v| v.as_slice()) } else { v };
        let name = String::from_utf8_lossy(n);
        if let Err(e) = new.append(&name, value) {
            let error = unusable(rule, "field", &name, e);
            return failed(program, rule, at.flow, error);
        }
    }
    *headers = new;
    Effect::Go
}

fn set_path(at: &mut At<'_>, path: String) -> Effect {
    if let Some(r) = at.request_mut() {
        r.url.path = path.into();
    }
    Effect::Go
}

/// Sends the request to another URL; what asks for another host says so in `Host`, unless that shall stay.
fn go_to(at: &mut At<'_>, url: &str, keep_host: bool, rule: &Rule, program: &Program) -> Effect {
    match parse_url(url) {
        Ok(url) => {
            if let Some(r) = at.request_mut() {
                if !keep_host && url.authority != r.url.authority {
                    let host = url.authority.host_field(url.scheme);
                    r.headers.set("Host", host).expect("an authority is a well-formed value");
                }
                r.url = url;
            }
            Effect::Go
        }
        Err(e) => failed(program, rule, at.flow, unusable(rule, "URL", url, e)),
    }
}

fn map_remote(at: &mut At<'_>, remote: &Remote, rule: &Rule, program: &Program) -> Effect {
    let new = {
        let view = at.view(program);
        let Some(request) = view.request else { return Effect::Go };
        match &remote.regex {
            Some(regex) => {
                let url = view.url();
                if !regex.is_match(url.as_bytes()) {
                    return Effect::Go;
                }
                let to = |groups: &regex::bytes::Captures<'_>| {
                    remote
                        .to
                        .0
                        .fill(&Fill { view: &view, previous: None, groups: Some(groups) })
                        .into_owned()
                        .into_bytes()
                };
                String::from_utf8_lossy(&regex.replace(url.as_bytes(), to)).into_owned()
            }
            None => {
                let base = remote.to.0.fill_from(&view).into_owned();
                format!("{}{}", base.trim_end_matches('/'), request.url.path.as_str())
            }
        }
    };
    go_to(at, &new, remote.keep_host, rule, program)
}

fn set_cookie(at: &At<'_>, line: &CookieLine, program: &Program) -> String {
    let clean = |t: &Template| at.fill(program, t).replace([';', '\r', '\n', '\0'], "");
    let mut out = format!("{}={}", clean(&line.name), clean(&line.value));
    if let Some(path) = &line.path {
        out += &format!("; Path={}", clean(path));
    }
    if let Some(domain) = &line.domain {
        out += &format!("; Domain={}", clean(domain));
    }
    if let Some(seconds) = line.expires_in {
        out += &format!("; Expires={}", crate::dates::show(crate::dates::now() + seconds));
    }
    if let Some(seconds) = line.max_age {
        out += &format!("; Max-Age={seconds}");
    }
    if line.http_only {
        out += "; HttpOnly";
    }
    if line.secure {
        out += "; Secure";
    }
    if let Some(same) = &line.same_site {
        out += &format!("; SameSite={}", same.replace([';', '\r', '\n'], ""));
    }
    out
}

/// At the request nothing conditional goes out; at the response nothing may be kept.
fn anticache(at: &mut At<'_>) -> Effect {
    if let Some(r) = at.request_mut() {
        for name in ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "etag"] {
            r.headers.remove(name);
        }
        r.headers.set("Cache-Control", "no-cache").expect("a constant is a valid value");
        r.headers.set("Pragma", "no-cache").expect("a constant is a valid value");
        at.state().uncached = true;
    }
    Effect::Go
}

/// The response's part of [`anticache`].
pub(crate) fn uncache(headers: &mut Headers) {
    for name in ["etag", "last-modified", "expires", "age"] {
        headers.remove(name);
    }
    headers.set("Cache-Control", "no-store").expect("a constant is a valid value");
}

fn host_of(at: &At<'_>, program: &Program) -> String {
    at.view(program).with_host(ToOwned::to_owned)
}

fn sticky_cookie(at: &mut At<'_>, program: &Program) -> Effect {
    let host = host_of(at, program);
    let sessions = &program.around.sessions;
    if at.request().is_some_and(|r| r.headers.contains("cookie")) {
        if let Some(r) = at.request() {
            sessions.keep_request_cookies(&host, &r.headers);
        }
    } else {
        apply_cookies(at, &host, true, program);
    }
    at.state().sticky = true;
    Effect::Go
}

fn sticky_auth(at: &mut At<'_>, program: &Program) -> Effect {
    let host = host_of(at, program);
    let own = at.request().and_then(|r| r.headers.get_str("authorization")).map(ToOwned::to_owned);
    let key = format!("sticky-auth {host}");
    match own {
        Some(value) => program.around.sessions.keep_header(&key, "Authorization", &value),
        None => {
            let kept = program.around.sessions.headers(&key);
            if let (Some(r), Some((_, value))) = (at.request_mut(), kept.into_iter().next()) {
                let _ = r.headers.set("Authorization", value);
            }
        }
    }
    Effect::Go
}

fn apply_cookies(at: &mut At<'_>, host: &str, merge: bool, program: &Program) {
    let view = at.view(program);
    let Some(path) = view.request.map(|r| r.url.path_only().to_owned()) else { return };
    let kept = program.around.sessions.cookies(host, &path, view.scheme() == interflow_flow::Scheme::Https);
    drop(view);
    let Some(r) = at.request_mut() else { return };
    if !merge {
        r.headers.remove("cookie");
    }
    for (name, value) in kept {
        if cookies::get(&r.headers, &name).is_none() {
            cookies::put(&mut r.headers, &name, Some(&value));
        }
    }
}

fn session(at: &mut At<'_>, action: &Action, program: &Program) -> Effect {
    let host = host_of(at, program);
    let sessions = &program.around.sessions;
    match action {
        Action::SaveSession(s) => {
            if let (true, Some(response)) = (s.cookies, at.response.as_deref()) {
                sessions.keep_cookies(&host, &response.headers);
            }
            if let (true, Some(request)) = (s.request_cookies, at.request()) {
                sessions.keep_request_cookies(&host, &request.headers);
            }
            for name in &s.headers {
                if let Some(value) = at.response.as_deref().and_then(|r| r.headers.get_str(name)) {
                    sessions.keep_header(&host, name, value);
                }
            }
        }
        Action::ApplySession(s) => {
            let domain = s.domain.as_ref().map_or_else(|| host.clone(), |d| at.fill(program, d));
            if s.cookies {
                apply_cookies(at, &domain, s.merge, program);
            }
            if s.headers {
                let kept = sessions.headers(&domain);
                if let Some(r) = at.request_mut() {
                    for (n, v) in kept {
                        let _ = r.headers.set(&n, v);
                    }
                }
            }
        }
        Action::ClearSession(s) => {
            let domain = s.domain.as_ref().map(|d| at.fill(program, d));
            sessions.clear(domain.as_deref());
        }
        _ => {}
    }
    debug_assert!(at.phase >= Phase::RequestHead);
    Effect::Go
}
