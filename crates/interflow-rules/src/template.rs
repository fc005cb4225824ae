//! Text templates: `${…}` variables rendered from the current flow.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use interflow_types::Timestamp;
use regex::bytes::Captures;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::closest_name;
use crate::view::FlowView;

#[derive(Clone, Debug, Default)]
pub struct TextTemplate {
    source: String,
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug)]
enum TemplatePart {
    Text(String),
    Var(TemplateVariable),
}

/// A variable between `${` and `}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateVariable {
    /// A predefined fact of the flow.
    Fact(&'static str),
    /// `req.header.NAME`.
    ReqHeader(String),
    /// `resp.header.NAME`.
    RespHeader(String),
    /// `cookie.NAME`.
    Cookie(String),
    /// `query.NAME`.
    Param(String),
    /// `env.NAME`.
    Env(String),
    /// `var.NAME`: captured or set in this flow, or a constant of the file.
    Var(String),
    /// A group of the action's own regex, by number or name.
    Group(String),
    /// The value being replaced.
    Previous,
    /// A Fluxzy variable that is always empty.
    Nothing,
}

/// The predefined facts with their descriptions.
pub const TEMPLATE_FACTS: &[(&str, &str)] = &[
    ("host", "host of the origin"),
    ("port", "port of the origin"),
    ("scheme", "http or https"),
    ("secure", "true over TLS, else false"),
    ("url", "whole URL"),
    ("method", "request method"),
    ("path", "path without the query"),
    ("target", "path with the query"),
    ("query", "query without the question mark"),
    ("status", "status code of the response"),
    ("flow.id", "id of the flow"),
    ("phase", "phase in which the rule runs"),
    ("client.ip", "address of the client"),
    ("user", "authenticated user of the proxy"),
    ("listener", "name of the listener"),
    ("time", "now, as 2026-01-31T12:00:00Z"),
    ("time.unix", "now, in seconds since 1970"),
    ("time.ms", "now, in milliseconds since 1970"),
    ("random", "32 random hexadecimal digits"),
    ("uuid", "a random UUID"),
    ("req.body", "body of the request, where the phase has it"),
    ("resp.body", "body of the response, where the phase has it"),
    ("message", "message of a WebSocket, event stream or gRPC stream, in the phase message"),
];

/// Prefixes of variables that end in a user-chosen name.
const VARIABLE_PREFIXES: &[&str] = &["req.header.", "resp.header.", "cookie.", "query.", "env.", "var."];

/// The input of rendering.
pub(crate) struct RenderContext<'a, 'v> {
    pub view: &'a FlowView<'v>,
    pub previous: Option<&'a [u8]>,
    pub groups: Option<&'a Captures<'a>>,
}

impl<'a, 'v> RenderContext<'a, 'v> {
    pub fn from_view(view: &'a FlowView<'v>) -> Self {
        Self { view, previous: None, groups: None }
    }
}

impl TextTemplate {
    /// Parses a template. `$${` is a literal `${`.
    ///
    /// # Errors
    /// An unknown variable, with the closest known one; a `${` without `}`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with(text, &mut |name| parse_variable(name))
    }

    /// As [`parse`](Self::parse); `$1` and `${1}` are groups of a regex.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_replacement(text: &str) -> Result<Self, String> {
        let mut template = Self::parse(text)?;
        let mut parts = Vec::new();
        for part in template.parts {
            match part {
                TemplatePart::Text(text) => split_groups(&text, &mut parts),
                other => parts.push(other),
            }
        }
        template.parts = parts;
        Ok(template)
    }

    /// Parses as Fluxzy does: unknown variables are empty. Their names are added to `unknown`.
    pub fn parse_fluxzy(text: &str, unknown: &mut Vec<String>) -> Self {
        let text = text.replace("{{previous}}", "${previous}");
        let read = Self::parse_with(&text, &mut |name| {
            Ok(fluxzy_variable(name).unwrap_or_else(|| {
                unknown.push(name.to_owned());
                TemplateVariable::Nothing
            }))
        });
        read.unwrap_or_else(|_| Self::literal(&text))
    }

    pub fn literal(text: &str) -> Self {
        Self { source: text.to_owned(), parts: vec![TemplatePart::Text(text.to_owned())] }
    }

    fn parse_with(
        text: &str,
        lookup: &mut dyn FnMut(&str) -> Result<TemplateVariable, String>,
    ) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at - 1]);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let inner = &rest[at + 2..];
            let end = inner
                .find('}')
                .ok_or_else(|| format!("`${{` without its `}}` in {text:?}: write $${{ when no variable is meant"))?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Var(lookup(inner[..end].trim())?));
            rest = &inner[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() || parts.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Self { source: text.to_owned(), parts })
    }

    /// The source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text, if it has no variables.
    pub fn as_literal(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The user-defined variables that it reads.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|p| match p {
            TemplatePart::Var(TemplateVariable::Var(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether it reads the body of the request, and of the response.
    pub(crate) fn wants_bodies(&self) -> (bool, bool) {
        let has = |n| self.parts.iter().any(|p| matches!(p, TemplatePart::Var(TemplateVariable::Fact(f)) if *f == n));
        (has("req.body"), has("resp.body"))
    }

    pub(crate) fn wants_message(&self) -> bool {
        self.parts.iter().any(|p| matches!(p, TemplatePart::Var(TemplateVariable::Fact("message"))))
    }

    pub(crate) fn wants_request(&self) -> bool {
        const OF_REQUEST: [&str; 5] = ["method", "path", "target", "query", "url"];
        self.parts.iter().any(|p| match p {
            TemplatePart::Var(TemplateVariable::Fact(f)) => OF_REQUEST.contains(f),
            TemplatePart::Var(
                TemplateVariable::ReqHeader(_) | TemplateVariable::Cookie(_) | TemplateVariable::Param(_),
            ) => true,
            _ => false,
        })
    }

    pub(crate) fn wants_response(&self) -> bool {
        self.parts
            .iter()
            .any(|p| matches!(p, TemplatePart::Var(TemplateVariable::Fact("status") | TemplateVariable::RespHeader(_))))
    }

    pub(crate) fn render(&self, with: &RenderContext<'_, '_>) -> Cow<'_, str> {
        if let Some(text) = self.as_literal() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(self.source.len() + 32);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Var(variable) => variable.write(with, &mut out),
            }
        }
        Cow::Owned(out)
    }

    /// Renders everything but the groups of a regex: calls `see` with each text, and with each group name and an empty
    /// text.
    pub(crate) fn render_parts(&self, view: &FlowView<'_>, see: &mut dyn FnMut(String, Option<&str>)) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => see(text.clone(), None),
                TemplatePart::Var(TemplateVariable::Group(group)) => see(String::new(), Some(group)),
                TemplatePart::Var(variable) => {
                    let mut text = String::new();
                    variable.write(&RenderContext::from_view(view), &mut text);
                    see(text, None);
                }
            }
        }
    }

    pub(crate) fn render_view(&self, view: &FlowView<'_>) -> Cow<'_, str> {
        self.render(&RenderContext::from_view(view))
    }
}

/// `$1` and `$name` without braces.
fn split_groups(text: &str, parts: &mut Vec<TemplatePart>) {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let mut behind = &rest[at + 1..];
        plain.push_str(&rest[..at]);
        // `$$1` is a literal `$1`.
        let escaped = behind.strip_prefix('$').filter(|b| b.starts_with(|c: char| c.is_ascii_digit()));
        behind = escaped.unwrap_or(behind);
        let len = behind.bytes().take_while(u8::is_ascii_digit).count();
        if escaped.is_some() {
            plain.push('$');
            plain.push_str(&behind[..len]);
        } else if len > 0 {
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Var(TemplateVariable::Group(behind[..len].to_owned())));
        } else {
            plain.push('$');
        }
        rest = &behind[len..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain));
    }
}

fn parse_variable(name: &str) -> Result<TemplateVariable, String> {
    if name == "previous" {
        return Ok(TemplateVariable::Previous);
    }
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(TemplateVariable::Group(name.to_owned()));
    }
    if let Some((fact, _)) = TEMPLATE_FACTS.iter().find(|(f, _)| *f == name) {
        return Ok(TemplateVariable::Fact(fact));
    }
    let family = |start: &str| name.strip_prefix(start).filter(|n| !n.is_empty()).map(ToOwned::to_owned);
    type VariableConstructor = fn(String) -> TemplateVariable;
    let made: [(&str, VariableConstructor); 7] = [
        ("req.header.", TemplateVariable::ReqHeader),
        ("resp.header.", TemplateVariable::RespHeader),
        ("cookie.", TemplateVariable::Cookie),
        ("query.", TemplateVariable::Param),
        ("env.", TemplateVariable::Env),
        ("var.", TemplateVariable::Var),
        ("group.", TemplateVariable::Group),
    ];
    for (start, make) in made {
        if let Some(rest) = family(start) {
            return Ok(make(rest));
        }
    }
    let known = TEMPLATE_FACTS.iter().map(|(f, _)| *f).chain(VARIABLE_PREFIXES.iter().copied()).chain(["previous"]);
    Err(match closest_name(name, known) {
        Some(near) => format!("unknown variable `${{{name}}}`: did you mean `${{{near}}}`?"),
        None => format!(
            "unknown variable `${{{name}}}`: facts such as ${{host}}, ${{req.header.NAME}}, ${{env.NAME}}, and ${{var.NAME}} for what rules set"
        ),
    })
}

fn fluxzy_variable(name: &str) -> Option<TemplateVariable> {
    Some(match name {
        "previous" => TemplateVariable::Previous,
        "authority.host" => TemplateVariable::Fact("host"),
        "authority.port" => TemplateVariable::Fact("port"),
        "authority.secure" => TemplateVariable::Fact("secure"),
        "global.filterScope" => TemplateVariable::Fact("phase"),
        "exchange.id" => TemplateVariable::Fact("flow.id"),
        "exchange.url" => TemplateVariable::Fact("url"),
        "exchange.method" => TemplateVariable::Fact("method"),
        "exchange.path" => TemplateVariable::Fact("target"),
        "exchange.status" => TemplateVariable::Fact("status"),
        _ => {
            if let Some(rest) = name.strip_prefix("env.") {
                TemplateVariable::Env(rest.to_owned())
            } else if let Some(rest) = name.strip_prefix("user.") {
                TemplateVariable::Var(rest.to_owned())
            } else {
                return parse_variable(name).ok();
            }
        }
    })
}

impl TemplateVariable {
    fn write(&self, with: &RenderContext<'_, '_>, out: &mut String) {
        let view = with.view;
        let lossy = |out: &mut String, bytes: &[u8]| out.push_str(&String::from_utf8_lossy(bytes));
        match self {
            Self::Fact(name) => write_fact(name, view, out),
            Self::ReqHeader(name) => {
                if let Some(v) = view.request.and_then(|r| r.headers.get(name)) {
                    lossy(out, v);
                }
            }
            Self::RespHeader(name) => {
                if let Some(v) = view.response.and_then(|r| r.headers.get(name)) {
                    lossy(out, v);
                }
            }
            Self::Cookie(name) => {
                if let Some(v) = view.request.and_then(|r| crate::cookies::request_cookie(&r.headers, name)) {
                    lossy(out, v);
                }
            }
            Self::Param(name) => {
                if let Some(query) = view.request.and_then(|r| r.url.query())
                    && let Some((_, v)) = crate::query_params::decode_pairs(query).find(|(n, _)| n == name)
                {
                    out.push_str(&v);
                }
            }
            Self::Env(name) => out.push_str(&std::env::var(name).unwrap_or_default()),
            Self::Var(name) => out.push_str(view.variable(name).unwrap_or_default()),
            Self::Group(name) => {
                let found = with.groups.and_then(|g| match name.parse::<usize>() {
                    Ok(n) => g.get(n),
                    Err(_) => g.name(name),
                });
                if let Some(m) = found {
                    lossy(out, m.as_bytes());
                }
            }
            Self::Previous => {
                if let Some(v) = with.previous {
                    lossy(out, v);
                }
            }
            Self::Nothing => {}
        }
    }
}

fn write_fact(name: &str, view: &FlowView<'_>, out: &mut String) {
    let flow = view.flow;
    let written = match name {
        "host" => write!(out, "{}", flow.authority.host),
        "port" => write!(out, "{}", flow.authority.port),
        "scheme" => write!(out, "{}", view.scheme()),
        "secure" => write!(out, "{}", view.scheme() == interflow_types::Scheme::Https),
        "url" => write!(out, "{}", view.url()),
        "method" => view.request.map_or(Ok(()), |r| out.write_str(r.method.as_str())),
        "path" => view.request.map_or(Ok(()), |r| out.write_str(r.url.path_only())),
        "target" => view.request.map_or(Ok(()), |r| out.write_str(&r.url.path)),
        "query" => view.request.and_then(|r| r.url.query()).map_or(Ok(()), |q| out.write_str(q)),
        "status" => view.response.map_or(Ok(()), |r| write!(out, "{}", r.status.as_u16())),
        "flow.id" => write!(out, "{}", flow.id),
        "phase" => out.write_str(crate::phase_names::name(view.phase)),
        "client.ip" => write!(out, "{}", flow.client.peer.ip().to_canonical()),
        "user" => flow.user.as_deref().map_or(Ok(()), |u| out.write_str(u)),
        "listener" => out.write_str(&flow.client.listener),
        "time" => {
            let now = jiff::Timestamp::from_second((Timestamp::now().micros() / 1_000_000) as i64);
            now.map_or(Ok(()), |t| write!(out, "{t}"))
        }
        "time.unix" => write!(out, "{}", Timestamp::now().micros() / 1_000_000),
        "time.ms" => write!(out, "{}", Timestamp::now().micros() / 1000),
        "random" => write!(out, "{:032x}", u128::from_be_bytes(interflow_types::random_bytes())),
        "uuid" => {
            out.push_str(&uuid::Builder::from_random_bytes(interflow_types::random_bytes()).into_uuid().to_string());
            Ok(())
        }
        "req.body" => view.request_body.map_or(Ok(()), |b| out.write_str(&String::from_utf8_lossy(b))),
        "message" => view.message.map_or(Ok(()), |m| out.write_str(&String::from_utf8_lossy(&m.payload))),
        "resp.body" => view.response_body.map_or(Ok(()), |b| out.write_str(&String::from_utf8_lossy(b))),
        _ => Ok(()),
    };
    written.expect("a String takes all");
}

/// `Basic` credentials (RFC 7617).
pub(crate) fn basic_credentials(user: &str, password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

impl<'de> Deserialize<'de> for TextTemplate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&scalar(d)?).map_err(de::Error::custom)
    }
}

/// A text, or a number or boolean as text: YAML parses unquoted `1` and `true` as such.
pub(crate) fn scalar<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    struct ScalarVisitor;
    impl de::Visitor<'_> for ScalarVisitor {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text")
        }
        fn visit_str<E: de::Error>(self, s: &str) -> Result<String, E> {
            Ok(s.to_owned())
        }
        fn visit_bool<E: de::Error>(self, b: bool) -> Result<String, E> {
            Ok(b.to_string())
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<String, E> {
            Ok(n.to_string())
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<String, E> {
            Ok(n.to_string())
        }
        fn visit_f64<E: de::Error>(self, n: f64) -> Result<String, E> {
            Ok(n.to_string())
        }
    }
    d.deserialize_any(ScalarVisitor)
}

impl Serialize for TextTemplate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.source)
    }
}

impl JsonSchema for TextTemplate {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"], "description": "A text that may hold ${variables}." })
    }
}

/// A [`TextTemplate`] in which `$1` is a group of the action's regex.
#[derive(Clone, Debug, Default)]
pub struct ReplacementTemplate(pub TextTemplate);

impl<'de> Deserialize<'de> for ReplacementTemplate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        TextTemplate::parse_replacement(&scalar(d)?).map(Self).map_err(de::Error::custom)
    }
}

impl JsonSchema for ReplacementTemplate {
    fn schema_name() -> Cow<'static, str> {
        "Replacement".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"],
            "description": "A text that may hold ${variables}, and $1 for the first group of the regex." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_variables_are_distinguished_from_text() {
        for (text, parts) in [("plain", 1), ("${host}", 1), ("a${host}b${var.x}", 4), ("$${host}", 1), ("", 1)] {
            assert_eq!(TextTemplate::parse(text).unwrap().parts.len(), parts, "{text}");
        }
        assert_eq!(TextTemplate::parse("$${host} $5").unwrap().as_literal(), Some("${host} $5"));
    }

    #[test]
    fn unknown_template_variables_are_reported_with_a_suggestion() {
        for (text, part) in [
            ("${hots}", "did you mean `${host}`?"),
            ("${zzzzzzzzz}", "facts such as"),
            ("${host", "without its `}`"),
            ("${var.}", "unknown variable"),
        ] {
            let error = TextTemplate::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn regex_groups_are_expanded_only_in_replacements() {
        assert_eq!(TextTemplate::parse_replacement("a$1-${2}$").unwrap().parts.len(), 5);
        assert_eq!(TextTemplate::parse("a$1").unwrap().as_literal(), Some("a$1"));
    }

    #[test]
    fn fluxzy_variables_are_known_and_unknown_ones_empty() {
        let mut unknown = Vec::new();
        let t = TextTemplate::parse_fluxzy("${authority.host}${user.x}${nope}{{previous}}", &mut unknown);
        assert_eq!(unknown, ["nope"]);
        assert_eq!(t.variables().collect::<Vec<_>>(), ["x"]);
    }
}
