//! The table that maps errors to responses, and the HTML pages that Interflow generates.

use interflow_codec::h1::Violation;
use interflow_codec::html::escape;
use interflow_types::{Error, ErrorKind, FlowId, Headers, Response, StatusCode};

/// The response for an error, in the format that `Accept` asks for: HTML for people, JSON or text for programs. Every
/// response names the error kind in `X-Interflow-Error` and must not be cached.
pub(crate) fn error_response(error: &Error, flow: Option<FlowId>, request: Option<&Headers>) -> Response {
    let kind = error.kind();
    let status = match kind {
        ErrorKind::Unsupported if error.message().ends_with(&Violation::Version.to_string()) => {
            StatusCode::HTTP_VERSION_NOT_SUPPORTED
        }
        kind => kind.status(),
    };
    let accept = request.and_then(|h| h.get_str("accept")).unwrap_or_default();
    let id = flow.map(|f| f.to_string());
    let message = error.to_string();
    let mut response = if accept.contains("text/html") {
        Response::full(status, "text/html; charset=utf-8", error_page(status, kind, &message, id.as_deref()))
    } else if accept.contains("json") {
        let body = serde_json::json!({
            "error": { "kind": kind.as_str(), "message": message, "remedy": kind.remedy(), "flow": id }
        });
        Response::full(status, "application/json", body.to_string())
    } else {
        let mut text = format!("{status}\n{message}\n");
        for line in [kind.remedy(), &id.as_ref().map(|i| format!("flow {i}")).unwrap_or_default()] {
            if !line.is_empty() {
                text.push_str(line);
                text.push('\n');
            }
        }
        Response::full(status, "text/plain; charset=utf-8", text)
    };
    response.head.headers.append_unchecked(b"X-Interflow-Error", kind.as_str().as_bytes());
    if let Some(id) = id {
        response.head.headers.append_unchecked(b"X-Interflow-Flow", id.as_bytes());
    }
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    if kind == ErrorKind::Overloaded {
        response.head.headers.append_unchecked(b"Retry-After", b"1");
    }
    response
}

fn error_page(status: StatusCode, kind: ErrorKind, message: &str, flow: Option<&str>) -> String {
    let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let flow = flow.map(|id| format!("<p class=dim>flow {id}</p>")).unwrap_or_default();
    let body = format!(
        "<h1>{}</h1><p><code>{}</code></p><p>{}</p><p>{}</p>{flow}",
        escape(&title),
        kind.as_str(),
        escape(message),
        escape(kind.remedy())
    );
    html_page(&title, &body)
}

/// A page in Interflow's style; `body` is HTML.
pub(crate) fn html_page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;\
         max-width:46rem;margin:3rem auto;padding:0 1rem}}code,pre{{font:14px ui-monospace,monospace}}code{{overflow-wrap:anywhere}}\
         pre{{padding:.7rem;overflow-x:auto;border:1px solid #8886;border-radius:.4rem}}.dim{{opacity:.6}}</style>{body}</html>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::Body;

    fn text(r: &Response) -> String {
        match &r.body {
            Body::Full(b) => String::from_utf8(b.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn error_response_media_type_follows_accept() {
        let e = Error::new(ErrorKind::Dns, "no such name: <b>.test");
        for (accept, media_type, says) in [
            ("text/html,*/*", "text/html; charset=utf-8", "&lt;b&gt;.test"),
            ("application/json", "application/json", "\"kind\":\"dns\""),
            ("*/*", "text/plain; charset=utf-8", "<b>.test"),
        ] {
            let request: Headers = [("Accept", accept)].into_iter().collect();
            let r = error_response(&e, Some(FlowId::from_u128(7)), Some(&request));
            assert_eq!(r.head.status, StatusCode::BAD_GATEWAY);
            assert_eq!(r.head.headers.get_str("content-type"), Some(media_type));
            assert_eq!(r.head.headers.get_str("x-interflow-error"), Some("dns"));
            assert!(text(&r).contains(says) && text(&r).contains(&FlowId::from_u128(7).to_string()), "{}", text(&r));
        }
    }
}
