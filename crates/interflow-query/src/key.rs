//! The table of keys and flags with their names, kinds, help texts and examples, from which parser, completion and
//! help are derived.

use interflow_types::Phase;

/// The kind of value that a key takes, which decides how the value is parsed and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A text that must match as a whole.
    Whole,
    /// A prefix of a text.
    Prefix,
    /// A substring; a glob must match the value as a whole.
    Anywhere,
    /// A substring or glob found anywhere in a long text, such as a body.
    Inside,
    /// One of a few values, each with its aliases.
    Choice(&'static [(&'static str, &'static [&'static str])]),
    Count,
    /// A status code or a class of them.
    Status,
    /// A number of bytes, also written with a unit: `64KiB`.
    Bytes,
    Duration,
    /// A timestamp.
    Time,
    Address,
    /// The name of a header field; as `key.name`, its value.
    Header,
    Flag,
}

impl ValueKind {
    /// Whether values are numbers, with or without a unit.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Count | Self::Status | Self::Bytes | Self::Duration)
    }

    /// How such a value is written, as a phrase in Markdown.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Whole => "text that must match as a whole",
            Self::Prefix => "start of a text",
            Self::Anywhere => "substring, or a glob for the whole text",
            Self::Inside => "text or glob anywhere in it",
            Self::Choice(_) => "one of",
            Self::Count => "number",
            Self::Status => "status code, class or range",
            Self::Bytes => "size: `64KiB`, `1.5MB`",
            Self::Duration => "duration: `500ms`, `2s`",
            Self::Time => "date, time, or how long ago",
            Self::Address => "address or network",
            Self::Header => "name of a field; with `.NAME`, its value",
            Self::Flag => "flag",
        }
    }
}

/// The table's entry for a key. Parser, completion, help and the phase of a query are derived from it.
#[derive(Debug)]
pub struct KeyInfo {
    pub key: Key,
    /// Its name; empty for bare words.
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// The kind of value it takes.
    pub kind: ValueKind,
    /// The phase from which it is known; a rule that tests it cannot run earlier.
    pub phase: Phase,
    /// The help text, a phrase without a full stop.
    pub doc: &'static str,
    /// An example term, which is also quoted in errors.
    pub example: &'static str,
}

#[derive(Debug)]
pub struct FlagInfo {
    pub flag: Flag,
    /// The name after `is:`.
    pub name: &'static str,
    /// The phase from which it is known.
    pub phase: Phase,
    /// The help text.
    pub doc: &'static str,
}

macro_rules! keys {
    ($($key:ident $name:literal $aliases:tt $kind:expr, $phase:ident, $doc:literal, $example:literal;)*) => {
        /// A fact of a flow that a query can test.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Key { $(#[doc = $doc] $key,)* }

        /// Every key, in the order of the help.
        pub const KEYS: &[KeyInfo] = &[$(KeyInfo {
            key: Key::$key, name: $name, aliases: &$aliases, kind: $kind, phase: Phase::$phase, doc: $doc,
            example: $example,
        },)*];
    };
}

macro_rules! flags {
    ($($flag:ident $name:literal, $phase:ident, $doc:literal;)*) => {
        /// A boolean property of a flow: `is:error`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Flag { $(#[doc = $doc] $flag,)* }

        /// Every flag, in the order of the help.
        pub const FLAGS: &[FlagInfo] = &[$(FlagInfo {
            flag: Flag::$flag, name: $name, phase: Phase::$phase, doc: $doc,
        },)*];
    };
}

const SCHEMES: ValueKind = ValueKind::Choice(&[("http", &["ws"]), ("https", &["wss"])]);
const TRANSPORTS: ValueKind = ValueKind::Choice(&[
    ("absolute", &["proxy"]),
    ("connect", &[]),
    ("socks5", &["socks"]),
    ("transparent", &["redirect", "tproxy"]),
    ("reverse", &[]),
    ("gateway", &[]),
    ("internal", &[]),
]);
const VERSIONS: ValueKind = ValueKind::Choice(&[
    ("HTTP/1.0", &["1.0", "http1.0"]),
    ("HTTP/1.1", &["1.1", "1", "h1", "http1", "http1.1"]),
    ("HTTP/2", &["2", "2.0", "h2", "http2", "HTTP/2.0"]),
]);

keys! {
    Word "" [] ValueKind::Inside, Done, "text in the URL or in a body", "refund";
    Host "host" ["domain"] ValueKind::Whole, Authority, "host name or address of the origin", "host:*.openai.com";
    Port "port" [] ValueKind::Count, Authority, "port of the origin", "port:8443";
    Authority "authority" [] ValueKind::Whole, Authority, "host and port of the origin", "authority:/^shop[.]test:(443|8443)$/";
    Scheme "scheme" [] SCHEMES, RequestHead, "http or https", "scheme:https";
    Url "url" [] ValueKind::Anywhere, RequestHead, "whole URL", "url:/v1/messages";
    Path "path" [] ValueKind::Anywhere, RequestHead, "path of the URL, without the query", "path:/api/*";
    Query "query" ["qs"] ValueKind::Anywhere, RequestHead, "query of the URL, without the question mark", "query:page=2";
    Method "method" [] ValueKind::Whole, RequestHead, "request method", "method:POST";
    Version "version" ["proto"] VERSIONS, RequestHead, "HTTP version of either side", "version:h2";
    Status "status" ["code"] ValueKind::Status, ResponseHead, "status code, or a class of them", "status:4xx";
    Type "type" ["mime", "content-type"] ValueKind::Anywhere, ResponseHead,
        "media type of the request or the response", "type:json";
    ReqType "req.type" ["request.type"] ValueKind::Anywhere, RequestHead, "media type of the request", "req.type:multipart";
    RespType "resp.type" ["response.type"] ValueKind::Anywhere, ResponseHead,
        "media type of the response", "resp.type:image/*";
    Header "header" ["headers"] ValueKind::Header, ResponseHead,
        "a header field by name; with .name, by value", "header.server:nginx";
    ReqHeader "req.header" ["request.header", "req.headers", "request.headers"] ValueKind::Header, RequestHead,
        "the same in the request only", "req.header.accept:html";
    RespHeader "resp.header" ["response.header", "resp.headers", "response.headers"] ValueKind::Header, ResponseHead,
        "the same in the response only", "resp.header:set-cookie";
    Body "body" [] ValueKind::Inside, Done, "text in a body or message of either direction", "body:\"no funds\"";
    ReqBody "req.body" ["request.body"] ValueKind::Inside, RequestBody,
        "text in the request's body or messages", "req.body:prompt";
    RespBody "resp.body" ["response.body"] ValueKind::Inside, Done,
        "text in the response's body or messages", "resp.body:/err(or)?/i";
    Size "size" ["bytes"] ValueKind::Bytes, Done, "bytes of both bodies together", "size:>1MB";
    ReqSize "req.size" ["request.size"] ValueKind::Bytes, Done, "bytes of the request's body", "req.size:>=64KiB";
    RespSize "resp.size" ["response.size"] ValueKind::Bytes, Done, "bytes of the response's body", "resp.size:0";
    Dur "dur" ["duration", "took"] ValueKind::Duration, Done, "how long the flow took", "dur:>2s";
    Ttfb "ttfb" ["latency"] ValueKind::Duration, ResponseHead,
        "from the start until the response's head came", "ttfb:>500ms";
    Time "time" ["date", "started"] ValueKind::Time, Authority,
        "when the flow began: a date or time (UTC unless it names an offset), or how long ago", "time:>-1h";
    Error "error" ["err"] ValueKind::Inside, Done, "kind or message of the error", "error:timeout";
    Passthrough "passthrough" ["uninspected"] ValueKind::Whole, Done,
        "why a tunnel was passed through without inspection", "passthrough:pinning_bypass";
    Is "is" [] ValueKind::Flag, Done, "one of the flags below", "is:websocket";
    Tag "tag" [] ValueKind::Whole, Done, "a tag of the flow", "tag:checkout";
    Comment "comment" ["note"] ValueKind::Inside, Done, "the comment on the flow", "comment:flaky";
    User "user" [] ValueKind::Whole, Authority, "authenticated user of the proxy", "user:alice";
    Client "client" ["src"] ValueKind::Address, Authority, "address of the client, or its network", "client:10.0.0.0/8";
    Upstream "upstream" ["dst"] ValueKind::Address, ResponseHead,
        "address that was connected to, or its network", "upstream:192.0.2.7";
    Listener "listener" [] ValueKind::Whole, Authority, "name of the listener", "listener:proxy";
    Transport "transport" [] TRANSPORTS, Authority, "how the request reached the proxy", "transport:connect";
    Sni "sni" [] ValueKind::Whole, ClientHello, "server name in the client's TLS hello", "sni:*.example.com";
    Ja3 "ja3" [] ValueKind::Prefix, ClientHello, "JA3 fingerprint of the client, or its start", "ja3:cd08e314";
    Ja4 "ja4" [] ValueKind::Prefix, ClientHello, "JA4 fingerprint of the client, or its start", "ja4:t13d1516h2";
    Ja4h "ja4h" [] ValueKind::Prefix, RequestHead, "JA4H fingerprint of the request, or its start", "ja4h:ge11cn";
    Http2 "http2" ["akamai"] ValueKind::Prefix, RequestHead,
        "Akamai's fingerprint of the client's HTTP/2 connection, or its start", "http2:\"1:65536;2:0\"";
    Process "process" ["program"] ValueKind::Whole, Authority, "program of a client on this machine", "process:curl";
    Pid "pid" [] ValueKind::Count, Authority, "process number of a client on this machine", "pid:4711";
    Container "container" [] ValueKind::Whole, Authority, "Docker or Podman container of a client", "container:web";
    Id "id" [] ValueKind::Anywhere, Authority, "id of the flow, or a part of it, such as its end in lists", "id:8M2QK4ZD";
    Parent "parent" [] ValueKind::Anywhere, Authority, "id of the flow it was replayed from, or a part of it", "parent:8M2QK4ZD";
    Model "model" [] ValueKind::Anywhere, Done, "model of an LLM call", "model:claude";
    Agent "agent" [] ValueKind::Whole, Done, "program that talks to the model", "agent:claude-code";
    Provider "provider" [] ValueKind::Whole, Done, "provider of an LLM call", "provider:anthropic";
    Tokens "tokens" [] ValueKind::Count, Done, "tokens in and out of an LLM call", "tokens:>10000";
}

flags! {
    Error "error", Done, "failed";
    Http "http", RequestHead, "is an HTTP exchange";
    Answered "answered", ResponseHead, "has a response";
    Websocket "websocket", RequestHead, "is a WebSocket";
    Tunnel "tunnel", Done, "is a tunnel passed through without inspection";
    Sse "sse", ResponseHead, "the response is an event stream";
    Grpc "grpc", RequestHead, "is a gRPC call";
    Intercepted "intercepted", RequestHead, "was decrypted from intercepted TLS";
    Replay "replay", Authority, "was replayed by Interflow";
    Imported "imported", Authority, "was imported from an archive";
    Open "open", Authority, "is still in progress";
    Cut "cut", Done, "was not recorded to its end";
    Redacted "redacted", Done, "has redacted content";
    Held "held", Done, "waits or waited for a decision";
}

impl Key {
    pub fn info(self) -> &'static KeyInfo {
        KEYS.iter().find(|k| k.key == self).expect("every key has its line in the table")
    }

    /// Its name; empty for bare words.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    pub fn kind(self) -> ValueKind {
        self.info().kind
    }

    /// Finds a key by name or alias, ignoring case. Bare words have no name and are not found.
    pub fn find(name: &str) -> Option<Self> {
        let is = |n: &str| !n.is_empty() && n.eq_ignore_ascii_case(name);
        KEYS.iter().find(|k| is(k.name) || k.aliases.iter().any(|a| is(a))).map(|k| k.key)
    }
}

impl Flag {
    pub fn info(self) -> &'static FlagInfo {
        FLAGS.iter().find(|f| f.flag == self).expect("every flag has its line in the table")
    }

    /// The name after `is:`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Finds a flag by name, ignoring case.
    pub fn find(name: &str) -> Option<Self> {
        FLAGS.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_and_aliases_are_unique() {
        let mut names: Vec<&str> = KEYS.iter().flat_map(|k| k.aliases.iter().copied().chain([k.name])).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn every_example_parses_to_a_term_of_its_key() {
        for info in KEYS {
            let query = crate::Query::parse(info.example).unwrap_or_else(|e| panic!("{}: {e}", info.example));
            let mut keys = Vec::new();
            query.expr().visit(&mut |t| keys.push(t.key));
            assert_eq!(keys, [info.key], "{}", info.example);
        }
    }
}
