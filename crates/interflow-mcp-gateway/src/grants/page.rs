//! The pages on which users connect their accounts: plain HTML without scripts, which no other page may frame.

use interflow_codec::html::escape;
use interflow_types::{Response, StatusCode};

const STYLE: &str = include_str!("../../data/account-page.css");
const POLICY: &[u8] =
    b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A page; `body` and `head` are HTML.
pub(super) fn page(status: StatusCode, title: &str, head: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} · Interflow</title>{head}<style>{STYLE}</style></head>\
         <body><main><h1>{title}</h1>{body}</main></body></html>\n"
    );
    let mut response = Response::full(status, "text/html; charset=utf-8", html);
    for (name, value) in [
        (&b"Content-Security-Policy"[..], POLICY),
        (b"Cache-Control", b"no-store"),
        // With `no-referrer`, browsers would send the form with `Origin: null`.
        (b"Referrer-Policy", b"same-origin"),
        (b"X-Content-Type-Options", b"nosniff"),
    ] {
        response.head.headers.append_unchecked(name, value);
    }
    response
}

pub(super) fn refusal_page(status: StatusCode, why: &str) -> Response {
    page(status, "The account is not connected", "", &format!("<p role=\"alert\">{}.</p>", escape(why)))
}

/// Sends the browser to another site. A redirect would be one of the form, to which the policy does not let it go.
pub(super) fn leaving(url: &str, issuer: &str) -> Response {
    let (url, issuer) = (escape(url), escape(issuer));
    let head = format!("<meta http-equiv=\"refresh\" content=\"0;url={url}\">");
    let body = format!(
        "<p>You allow the access at <b>{issuer}</b>.</p><p><a class=\"button\" href=\"{url}\">Continue</a></p>"
    );
    page(StatusCode::OK, "One moment", &head, &body)
}

pub(super) struct Confirmation<'a> {
    pub server: &'a str,
    pub user: &'a str,
    pub token: &'a str,
    pub is_connected: bool,
    /// The browser has to show the virtual key.
    pub needs_key: bool,
}

pub(super) fn confirmation(question: &Confirmation<'_>) -> Response {
    let [server, user, token] = [question.server, question.user, question.token].map(escape);
    let key = "<label for=\"key\">The virtual key</label><input id=\"key\" name=\"key\" type=\"password\" required autocomplete=\"off\">";
    let (state, connect) = match question.is_connected {
        true => ("<p>An account is connected.</p>", "Connect another account"),
        false => ("", "Connect"),
    };
    let disconnect = "<button class=\"second\" name=\"action\" value=\"disconnect\">Disconnect</button>";
    let body = format!(
        "<p>Clients that use the gateway as <b>{user}</b> will act with your account at <b>{server}</b>. Go on only \
         if this is you, and if you asked for this page.</p>{state}\
         <form method=\"post\"><input type=\"hidden\" name=\"token\" value=\"{token}\">{}\
         <button name=\"action\" value=\"connect\">{connect}</button>{}</form>",
        if question.needs_key { key } else { "" },
        if question.is_connected { disconnect } else { "" },
    );
    page(StatusCode::OK, &format!("Connect an account at {server}"), "", &body)
}
