//! Actions on message heads: fields, cookies, parameters, method, URL, status.

use interflow_types::{Headers, Phase, RequestHead};
use regex::bytes::Captures;

use super::context::ActionContext;
use super::effect::{ActionEffect, action_failed, invalid_value, invalid_value_error};
use super::static_files::set_status;
use crate::action::Action;
use crate::compiled::program::CompiledRule;
use crate::flow::render::RenderContext;
use crate::params::{CookieLine, MapRemoteParams, RegexParam, ReplaceField, final_status, request_method};
use crate::text::template::TextTemplate;
use crate::text::url::parse_url;
use crate::text::{cookies, query_params};

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderOp {
    Add,
    Set,
    Update,
}

pub(super) fn apply(at: &mut ActionContext<'_>, action: &Action, rule: &CompiledRule) -> Option<ActionEffect> {
    Some(match action {
        Action::AddRequestHeader(p) | Action::AddResponseHeader(p) => apply_header_op(at, &p.0, HeaderOp::Add, rule),
        Action::SetRequestHeader(p) | Action::SetResponseHeader(p) => apply_header_op(at, &p.0, HeaderOp::Set, rule),
        Action::UpdateRequestHeader(p) | Action::UpdateResponseHeader(p) => {
            apply_header_op(at, &p.0, HeaderOp::Update, rule)
        }
        Action::RemoveRequestHeader(names) | Action::RemoveResponseHeader(names) => {
            for name in &names.0 {
                let name = at.render(name);
                if let Some(headers) = at.head_mut() {
                    remove_fields(headers, &name);
                }
            }
            ActionEffect::Continue
        }
        Action::ReplaceRequestHeader(r) | Action::ReplaceResponseHeader(r) => replace_in_field(at, r, rule),
        Action::BasicAuth(b) => {
            let value = crate::text::template::basic_credentials(&at.render(&b.user), &at.render(&b.password));
            write_field(at, HeaderOp::Set, "Authorization", &value, rule)
        }
        Action::BearerToken(t) => {
            let value = format!("Bearer {}", at.render(t));
            write_field(at, HeaderOp::Set, "Authorization", &value, rule)
        }
        Action::SetMethod(t) => {
            let text = at.render(t);
            match request_method(&text) {
                Ok(method) => change_request(at, |r| r.method = method),
                Err(e) => invalid_value(at, rule, "method", &text, e),
            }
        }
        Action::SetPath(t) => {
            let path = query_params::encode_path(&at.render(t));
            change_request(at, |r| r.url.path = path.into())
        }
        Action::SetUrl(t) => {
            let text = at.render(t);
            retarget(at, &text, false, rule)
        }
        Action::SetQuery(pairs) => {
            pairs.0.iter().for_each(|(name, value)| set_param(at, name, Some(value)));
            ActionEffect::Continue
        }
        Action::RemoveQuery(names) => {
            names.0.iter().for_each(|name| set_param(at, name, None));
            ActionEffect::Continue
        }
        Action::SetRequestCookie(pairs) => {
            for (name, value) in &pairs.0 {
                let (name, value) = (at.render(name), at.render(value));
                if let Err(why) = cookies::check_cookie_value(&value) {
                    return Some(invalid_value(at, rule, "cookie", &name, why));
                }
                set_cookie_pair(at, &name, Some(&value));
            }
            ActionEffect::Continue
        }
        Action::RemoveRequestCookie(names) => {
            for name in &names.0 {
                let name = at.render(name);
                set_cookie_pair(at, &name, None);
            }
            ActionEffect::Continue
        }
        Action::MapRemote(remote) => map_remote(at, remote, rule),
        Action::SetStatus(t) => {
            let text = at.render(t);
            let status = text.trim().parse().map_err(|_| "it is none".to_owned()).and_then(final_status);
            match (status, at.response.as_deref_mut()) {
                (Ok(status), Some(response)) => {
                    set_status(response, status);
                    ActionEffect::Continue
                }
                (Err(why), _) => invalid_value(at, rule, "status", &text, why),
                (_, None) => ActionEffect::Continue,
            }
        }
        Action::SetResponseCookie(line) => {
            let value = set_cookie(at, line);
            write_field(at, HeaderOp::Add, "Set-Cookie", &value, rule)
        }
        Action::RemoveResponseCookie(names) => {
            for name in &names.0 {
                let value = format!("{}=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT", at.render(name));
                if let end @ ActionEffect::End(_) = write_field(at, HeaderOp::Add, "Set-Cookie", &value, rule) {
                    return Some(end);
                }
            }
            ActionEffect::Continue
        }
        Action::Anticache(_) => anticache(at),
        Action::Anticomp(_) => write_field(at, HeaderOp::Set, "Accept-Encoding", "identity", rule),
        Action::StickyCookie(_) => sticky_cookie(at),
        Action::StickyAuth(_) => sticky_auth(at),
        Action::SaveSession(_) | Action::ApplySession(_) | Action::ClearSession(_) => session_action(at, action),
        _ => return None,
    })
}

fn apply_header_op(
    at: &mut ActionContext<'_>,
    pairs: &[(TextTemplate, TextTemplate)],
    how: HeaderOp,
    rule: &CompiledRule,
) -> ActionEffect {
    for (name, value) in pairs {
        let name = name.render_view(&at.view());
        let value = match value.as_literal() {
            Some(text) if how != HeaderOp::Update => text.into(),
            _ => {
                let view = at.view();
                let previous = view.head_of(at.side()).and_then(|h| h.get(&name));
                if how == HeaderOp::Update && previous.is_none() {
                    continue;
                }
                value.render(&RenderContext { view: &view, previous, groups: None })
            }
        };
        if let end @ ActionEffect::End(_) = write_field(at, how, &name, &value, rule) {
            return end;
        }
    }
    ActionEffect::Continue
}

fn write_field(
    at: &mut ActionContext<'_>,
    how: HeaderOp,
    name: &str,
    value: &str,
    rule: &CompiledRule,
) -> ActionEffect {
    let add = how == HeaderOp::Add;
    match at.head_mut().map(|h| if add { h.append(name, value) } else { h.set(name, value) }) {
        Some(Err(e)) => invalid_value(at, rule, "field", name, e),
        _ => ActionEffect::Continue,
    }
}

/// Removes a field; `NAME*` removes all fields whose names begin so.
fn remove_fields(headers: &mut Headers, name: &str) {
    match name.strip_suffix('*') {
        None => drop(headers.remove(name)),
        Some(start) => {
            headers.retain(|n, _| !n.get(..start.len()).is_some_and(|n| n.eq_ignore_ascii_case(start.as_bytes())));
        }
    }
}

fn replace_in_field(at: &mut ActionContext<'_>, r: &ReplaceField, rule: &CompiledRule) -> ActionEffect {
    let name = at.render(&r.name);
    let values: Vec<Vec<u8>> = {
        let view = at.view();
        let Some(headers) = view.head_of(at.side()) else { return ActionEffect::Continue };
        if !headers.get_all(&name).any(|v| r.regex.0.is_match(v)) {
            return ActionEffect::Continue;
        }
        let one = |v: &[u8]| {
            let new = |groups: &Captures<'_>| r.with.render_match(&view, Some(v), groups).into_bytes();
            r.regex.0.replace_all(v, new).into_owned()
        };
        headers.get_all(&name).map(one).collect()
    };
    let Some(headers) = at.head_mut() else { return ActionEffect::Continue };
    // Rebuilt in place order, so that the positions and spellings of the other fields stay.
    let mut new = Headers::with_capacity(headers.len(), headers.size());
    let mut next = values.iter();
    for (n, v) in headers.iter() {
        let value = if n.eq_ignore_ascii_case(name.as_bytes()) { next.next().map_or(v, |v| v.as_slice()) } else { v };
        let name = String::from_utf8_lossy(n);
        if let Err(e) = new.append(&name, value) {
            let error = invalid_value_error(rule, "field", &name, e);
            return action_failed(at, rule, error);
        }
    }
    *headers = new;
    ActionEffect::Continue
}

fn change_request(at: &mut ActionContext<'_>, change: impl FnOnce(&mut RequestHead)) -> ActionEffect {
    if let Some(request) = at.request_mut() {
        change(request);
    }
    ActionEffect::Continue
}

/// Sets a query parameter, or removes it if there is no value.
fn set_param(at: &mut ActionContext<'_>, name: &TextTemplate, value: Option<&TextTemplate>) {
    let (name, value) = (at.render(name), value.map(|v| at.render(v)));
    change_request(at, |r| r.url.path = query_params::set_param(&r.url.path, &name, value.as_deref()).into());
}

/// Sets a cookie of the request, or removes it if there is no value.
fn set_cookie_pair(at: &mut ActionContext<'_>, name: &str, value: Option<&str>) {
    change_request(at, |r| cookies::set_request_cookie(&mut r.headers, name, value));
}

/// Sends the request to another URL; `Host` follows the new host unless it is to be preserved.
fn retarget(at: &mut ActionContext<'_>, url: &str, keep_host: bool, rule: &CompiledRule) -> ActionEffect {
    match parse_url(url) {
        Ok(url) => change_request(at, |r| {
            if !keep_host && url.authority != r.url.authority {
                let host = url.authority.to_host_header(url.scheme);
                r.headers.set("Host", host).expect("an authority is a well-formed value");
            }
            r.url = url;
        }),
        Err(e) => invalid_value(at, rule, "URL", url, e),
    }
}

/// Another base URL with the request's path appended, or the result of a regex replacement; a regex that does not
/// match changes nothing.
fn map_remote(at: &mut ActionContext<'_>, remote: &MapRemoteParams, rule: &CompiledRule) -> ActionEffect {
    let new = {
        let view = at.view();
        let Some(request) = view.request else { return ActionEffect::Continue };
        match &remote.regex {
            Some(RegexParam(regex)) => {
                let url = view.url();
                if !regex.is_match(url.as_bytes()) {
                    return ActionEffect::Continue;
                }
                let to = |groups: &Captures<'_>| remote.to.render_match(&view, None, groups).into_bytes();
                String::from_utf8_lossy(&regex.replace_all(url.as_bytes(), to)).into_owned()
            }
            None => {
                let base = remote.to.0.render_view(&view).into_owned();
                format!("{}{}", base.trim_end_matches('/'), request.url.path.as_str())
            }
        }
    };
    retarget(at, &new, remote.keep_host, rule)
}

/// A `Set-Cookie` line (RFC 6265 4.1). Separators and line breaks in rendered values are dropped, so that a value
/// cannot add attributes.
fn set_cookie(at: &ActionContext<'_>, line: &CookieLine) -> String {
    let clean = |t: &TextTemplate| at.render(t).replace([';', '\r', '\n', '\0'], "");
    let mut out = format!("{}={}", clean(&line.name), clean(&line.value));
    for (name, value) in [("Path", &line.path), ("Domain", &line.domain)] {
        out.extend(value.iter().map(|value| format!("; {name}={}", clean(value))));
    }
    if let Some(seconds) = line.expires_in {
        out += &format!("; Expires={}", crate::text::dates::format_http_date(crate::text::dates::unix_now() + seconds));
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

/// Request phase: removes conditional fields and forbids caches to answer; the response phase then forbids storing.
fn anticache(at: &mut ActionContext<'_>) -> ActionEffect {
    if let Some(r) = at.request_mut() {
        for name in ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "etag"] {
            r.headers.remove(name);
        }
        r.headers.set("Cache-Control", "no-cache").expect("a constant is a valid value");
        r.headers.set("Pragma", "no-cache").expect("a constant is a valid value");
        at.state().uncached = true;
    }
    ActionEffect::Continue
}

/// The response part of [`anticache`]: removes validators and forbids storing.
pub(crate) fn disable_caching(headers: &mut Headers) {
    for name in ["etag", "last-modified", "expires", "age"] {
        headers.remove(name);
    }
    headers.set("Cache-Control", "no-store").expect("a constant is a valid value");
}

fn request_host(at: &ActionContext<'_>) -> String {
    at.view().with_host(ToOwned::to_owned)
}

fn sticky_cookie(at: &mut ActionContext<'_>) -> ActionEffect {
    let host = request_host(at);
    let sessions = &at.program.runtime.sessions;
    match at.request().filter(|r| r.headers.contains("cookie")) {
        Some(r) => sessions.store_request_cookies(&host, &r.headers),
        None => apply_cookies(at, &host, true),
    }
    at.state().sticky = true;
    ActionEffect::Continue
}

fn sticky_auth(at: &mut ActionContext<'_>) -> ActionEffect {
    let host = request_host(at);
    let own = at.request().and_then(|r| r.headers.get_str("authorization")).map(ToOwned::to_owned);
    let key = format!("sticky-auth {host}");
    match own {
        Some(value) => at.program.runtime.sessions.store_header(&key, "Authorization", &value),
        None => {
            let stored = at.program.runtime.sessions.headers(&key);
            if let (Some(r), Some((_, value))) = (at.request_mut(), stored.into_iter().next()) {
                let _ = r.headers.set("Authorization", value);
            }
        }
    }
    ActionEffect::Continue
}

/// Sends the stored cookies for a host and path; with `merge`, the client's own come first.
fn apply_cookies(at: &mut ActionContext<'_>, host: &str, merge: bool) {
    let view = at.view();
    let Some(path) = view.request.map(|r| r.url.path_only().to_owned()) else { return };
    let cookies = at.program.runtime.sessions.cookies(host, &path, view.scheme() == interflow_types::Scheme::Https);
    drop(view);
    let Some(r) = at.request_mut() else { return };
    if !merge {
        r.headers.remove("cookie");
    }
    for (name, value) in cookies {
        if cookies::request_cookie(&r.headers, &name).is_none() {
            cookies::set_request_cookie(&mut r.headers, &name, Some(&value));
        }
    }
}

fn session_action(at: &mut ActionContext<'_>, action: &Action) -> ActionEffect {
    let host = request_host(at);
    let sessions = &at.program.runtime.sessions;
    match action {
        Action::SaveSession(s) => {
            if let (true, Some(response)) = (s.cookies, at.response.as_deref()) {
                sessions.store_cookies(&host, &response.headers);
            }
            if let (true, Some(request)) = (s.request_cookies, at.request()) {
                sessions.store_request_cookies(&host, &request.headers);
            }
            for name in &s.headers {
                if let Some(value) = at.response.as_deref().and_then(|r| r.headers.get_str(name)) {
                    sessions.store_header(&host, name, value);
                }
            }
        }
        Action::ApplySession(s) => {
            let domain = s.domain.as_ref().map_or_else(|| host.clone(), |d| at.render(d));
            if s.cookies {
                apply_cookies(at, &domain, s.merge);
            }
            if s.headers {
                let stored = sessions.headers(&domain);
                if let Some(r) = at.request_mut() {
                    for (n, v) in stored {
                        let _ = r.headers.set(&n, v);
                    }
                }
            }
        }
        Action::ClearSession(s) => {
            let domain = s.domain.as_ref().map(|d| at.render(d));
            sessions.clear(domain.as_deref());
        }
        _ => {}
    }
    debug_assert!(at.phase >= Phase::RequestHead);
    ActionEffect::Continue
}
