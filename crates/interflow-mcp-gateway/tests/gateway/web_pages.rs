//! Clients in web pages: the questions of browsers, and what they let scripts read.

use interflow_testkit::Answer;

use crate::Gate;
use crate::eras::section;
use crate::stateless::{ACCEPTS, message, stateless_server};

const PAGE: &str = "Origin: http://localhost:6274\r\n";
const OAUTH: &str = "[mcp.oauth]\nissuer = 'https://issuer.test'\nresource = 'https://gate.test/mcp'\n";

fn fields<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let value = answer.header(&format!("access-control-{name}"));
    value.into_iter().flat_map(|value| value.split(", ")).collect()
}

#[tokio::test]
async fn a_browser_learns_what_a_page_may_send_and_read() {
    let server = stateless_server().await;
    let gate = Gate::without_session("/mcp", &format!("{OAUTH}{}", section("new", &server, ""))).await;
    let asked = "Access-Control-Request-Method: POST\r\n\
                 Access-Control-Request-Headers: content-type, mcp-method, Mcp-Param-Region, x-other\r\n";
    // It has no credentials.
    let allowed = gate.send("OPTIONS", &format!("{PAGE}{asked}"), "").await;
    assert_eq!((allowed.status, fields(&allowed, "allow-origin")), (204, vec!["http://localhost:6274"]));
    assert_eq!(fields(&allowed, "allow-methods"), ["GET", "POST", "DELETE"]);
    let names = fields(&allowed, "allow-headers");
    for (name, is_allowed) in [
        ("authorization", true),
        ("content-type", true),
        ("last-event-id", true),
        ("mcp-method", true),
        ("mcp-name", true),
        ("mcp-param-region", true),
        ("mcp-protocol-version", true),
        ("mcp-session-id", true),
        ("x-other", false),
    ] {
        assert_eq!(names.contains(&name), is_allowed, "{names:?}");
    }
    let (routing, body) = message(7, "server/discover", &serde_json::json!({}), &serde_json::json!({}));
    for (fields_of, token, status) in
        [(PAGE, "", 401), (PAGE, "Authorization: Bearer eyJanna.mcp.1\r\n", 200), ("", "", 401)]
    {
        let answer = gate.send("POST", &format!("{ACCEPTS}{routing}{fields_of}{token}"), &body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        // Also of a refusal: it says where to get a token.
        let is_page = !fields_of.is_empty();
        assert_eq!(fields(&answer, "allow-origin").is_empty(), !is_page);
        let exposed = fields(&answer, "expose-headers");
        assert!(
            ["Mcp-Session-Id", "WWW-Authenticate"].iter().all(|name| exposed.contains(name)) == is_page,
            "{exposed:?}"
        );
    }
    for (origin, fields_of) in [("http://evil.test", asked), ("null", asked), ("http://evil.test", "")] {
        let refused = gate.send("OPTIONS", &format!("Origin: {origin}\r\n{fields_of}"), "").await;
        assert_eq!((refused.status, fields(&refused, "allow-origin")), (403, vec![]), "{}", refused.text());
    }
    let foreign = format!("Host: evil.test\r\nOrigin: http://evil.test\r\n{asked}");
    assert_ne!(gate.send("OPTIONS", &foreign, "").await.status, 204, "a name that was bound to this address");
    assert_eq!(gate.send("OPTIONS", "Authorization: Bearer eyJanna.mcp.1\r\n", "").await.status, 405, "not of a page");
    let metadata = Gate { path: "/.well-known/oauth-protected-resource/mcp".into(), ..gate };
    for (method, status) in [("OPTIONS", 204), ("GET", 200)] {
        let answer = metadata.send(method, &format!("{PAGE}{asked}"), "").await;
        assert_eq!((answer.status, fields(&answer, "allow-origin").len()), (status, 1), "{}", answer.text());
    }
}
