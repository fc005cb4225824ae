//! Text templates: texts with `${…}` variables, which `render` fills in from the current flow.

use base64::Engine as _;
use interflow_types::{Direction, Phase, data_file};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::LazyLock;

use crate::text::shape::{ScalarText, written_schema};

/// A parsed template with its source, which error messages and the API show.
#[derive(Clone, Debug, Default)]
pub struct TextTemplate {
    source: String,
    pub(crate) parts: Vec<TemplatePart>,
}

/// A piece of a template.
#[derive(Clone, Debug)]
pub(crate) enum TemplatePart {
    Text(String),
    Var(TemplateVariable),
}

/// A variable between `${` and `}`: a fact, or `req.header.NAME`, `resp.header.NAME`, `cookie.NAME` or `query.NAME`,
/// and those below. What is absent renders as an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateVariable {
    /// A predefined fact of the flow.
    Fact(&'static str),
    ReqHeader(String),
    RespHeader(String),
    Cookie(String),
    Param(String),
    /// `env.NAME`: an environment variable of Interflow's process.
    Env(String),
    /// `var.NAME`: captured or set in this flow, or a constant of the file.
    Var(String),
    /// A group of the action's own regex, by number or name.
    Group(String),
    /// The value that the action replaces.
    Previous,
    /// A variable that is always empty.
    Nothing,
}

/// The predefined facts with their descriptions.
pub static TEMPLATE_FACTS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/template_facts.txt")).map(<(_, _)>::from).collect());

/// Variables of which there is one for each name.
#[derive(Debug)]
pub struct TemplateFamily {
    /// What comes before the name.
    pub prefix: &'static str,
    /// A phrase in Markdown, in which NAME is the name.
    pub doc: &'static str,
    make: fn(String) -> TemplateVariable,
}

const fn family(prefix: &'static str, doc: &'static str, make: fn(String) -> TemplateVariable) -> TemplateFamily {
    TemplateFamily { prefix, doc, make }
}

/// The families of variables.
pub const TEMPLATE_FAMILIES: &[TemplateFamily] = &[
    family("req.header.", "first value of the request's header field NAME", TemplateVariable::ReqHeader),
    family("resp.header.", "first value of the response's header field NAME", TemplateVariable::RespHeader),
    family("cookie.", "cookie NAME of the request", TemplateVariable::Cookie),
    family("query.", "query parameter NAME", TemplateVariable::Param),
    family("env.", "environment variable NAME of Interflow's process", TemplateVariable::Env),
    family(
        "var.",
        "variable NAME of this flow, set by `set_variable`, `capture` or a named group, or a constant of the file",
        TemplateVariable::Var,
    ),
    family(
        "group.",
        "group NAME of the action's own regex; `$1` and `${1}` are its first group",
        TemplateVariable::Group,
    ),
];

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

    /// Parses a template of another program, whose names of variables `rename` translates. Unknown variables are empty;
    /// their names are returned, too.
    pub fn parse_renamed(text: &str, rename: &dyn Fn(&str) -> String) -> (Self, Vec<String>) {
        let mut unknown = Vec::new();
        let parsed = Self::parse_with(text, &mut |name| {
            Ok(parse_variable(&rename(name)).unwrap_or_else(|_| {
                unknown.push(name.to_owned());
                TemplateVariable::Nothing
            }))
        });
        (parsed.unwrap_or_else(|_| Self::literal(text)), unknown)
    }

    /// A text without variables, whatever it contains.
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
            // An escaped `$${` continues the literal text.
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

    /// The text as it was written.
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
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|p| match p {
            TemplatePart::Var(TemplateVariable::Var(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether it reads an environment variable.
    pub(crate) fn reads_env(&self) -> bool {
        self.has_variable(|v| matches!(v, TemplateVariable::Env(_)))
    }

    /// Whether it reads the body of this side.
    pub(crate) fn wants_body(&self, side: Direction) -> bool {
        let body = if side == Direction::Request { "req.body" } else { "resp.body" };
        self.has_variable(|v| *v == TemplateVariable::Fact(body))
    }

    /// Whether it reads the message, which only the phase `message` has.
    pub(crate) fn wants_message(&self) -> bool {
        self.has_variable(|v| *v == TemplateVariable::Fact("message"))
    }

    /// The earliest phase in which all its values are known. Variables may still change later, but count as known.
    pub(crate) fn phase(&self) -> Phase {
        let of_part = |part: &TemplatePart| match part {
            TemplatePart::Text(_) => Phase::Authority,
            TemplatePart::Var(variable) => variable.phase(),
        };
        self.parts.iter().map(of_part).fold(Phase::Authority, Phase::max)
    }

    fn has_variable(&self, is: impl Fn(&TemplateVariable) -> bool) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Var(variable) if is(variable)))
    }
}

impl TemplateVariable {
    fn phase(&self) -> Phase {
        match self {
            Self::Fact("method" | "path" | "target" | "query" | "url")
            | Self::ReqHeader(_)
            | Self::Cookie(_)
            | Self::Param(_) => Phase::RequestHead,
            Self::Fact("req.body") => Phase::RequestBody,
            Self::Fact("status") | Self::RespHeader(_) => Phase::ResponseHead,
            Self::Fact("resp.body") => Phase::ResponseBody,
            Self::Fact("message") => Phase::Message,
            _ => Phase::Authority,
        }
    }
}

/// Splits `$1` (without braces) out of a literal part; `$$1` is a literal `$1`.
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
    for family in TEMPLATE_FAMILIES {
        if let Some(rest) = name.strip_prefix(family.prefix).filter(|n| !n.is_empty()) {
            return Ok((family.make)(rest.to_owned()));
        }
    }
    let is_known =
        TEMPLATE_FACTS.iter().map(|(f, _)| *f).chain(TEMPLATE_FAMILIES.iter().map(|f| f.prefix)).chain(["previous"]);
    Err(match interflow_query::closest_name(name, is_known) {
        Some(near) => format!("unknown variable `${{{name}}}`: did you mean `${{{near}}}`?"),
        None => format!(
            "unknown variable `${{{name}}}`: facts such as ${{host}}, ${{req.header.NAME}}, ${{env.NAME}}, and ${{var.NAME}} for what rules set"
        ),
    })
}

/// `Basic` credentials (RFC 7617).
pub(crate) fn basic_credentials(user: &str, password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

impl<'de> Deserialize<'de> for TextTemplate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&ScalarText::deserialize(d)?.0).map_err(de::Error::custom)
    }
}

impl Serialize for TextTemplate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.source)
    }
}

written_schema!(
    TextTemplate,
    "Template",
    |_| json_schema!({ "title": "template", "type": ["string", "number", "boolean"],
            "description": "A text that may hold ${variables}." })
);

/// A [`TextTemplate`] in which `$1` is a group of the action's regex.
#[derive(Clone, Debug, Default)]
pub struct ReplacementTemplate(pub TextTemplate);

impl<'de> Deserialize<'de> for ReplacementTemplate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        TextTemplate::parse_replacement(&ScalarText::deserialize(d)?.0).map(Self).map_err(de::Error::custom)
    }
}

written_schema!(
    ReplacementTemplate,
    "Replacement",
    |_| json_schema!({ "title": "replacement", "type": ["string", "number", "boolean"],
            "description": "A text that may hold ${variables}, and $1 for the first group of the regex." })
);

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
    fn renamed_variables_are_known_and_unknown_ones_empty() {
        let rename = |name: &str| name.strip_prefix("user.").map_or(name.to_owned(), |rest| format!("var.{rest}"));
        let (t, unknown) = TextTemplate::parse_renamed("${user.x}${host}${nope}", &rename);
        assert_eq!((t.parts.len(), unknown), (3, vec!["nope".to_owned()]));
        assert_eq!(t.variables().collect::<Vec<_>>(), ["x"]);
    }
}
