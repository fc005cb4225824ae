//! Header fields that repeat what is in the body of a request (MCP 2026-07-28, transports), so that intermediaries can
//! route by them: their values, and whether they agree with the body.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_types::RequestHead;
use serde_json::Value;

use super::jsonrpc::{HEADER_MISMATCH, RpcError, member, text_member};
use super::task_method::TaskMethod;

pub(crate) const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";
const PARAM_PREFIX: &str = "mcp-param-";
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The header fields of a request that repeat what is in its body.
#[derive(Debug, Default)]
pub struct RoutingFields {
    pub(crate) version: Option<String>,
    method: Option<String>,
    name: Option<String>,
    /// By the rest of their names, in lower case.
    params: HashMap<String, String>,
    /// A field that occurs twice: readers of the first and of the last would disagree.
    duplicate: Option<String>,
}

impl RoutingFields {
    /// Takes the fields off a head. Those that repeat values do not stay: they would be recorded without redaction.
    pub(crate) fn take(head: &mut RequestHead) -> Self {
        let fields = Self::of(head.headers.iter());
        head.headers.retain(|name, _| {
            let name = name.to_ascii_lowercase();
            name != NAME_HEADER.as_bytes() && !name.starts_with(PARAM_PREFIX.as_bytes())
        });
        fields
    }

    /// Those of the fields of a request.
    pub fn of<'f>(all: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Self {
        let mut fields = Self::default();
        for (name, value) in all {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let value = String::from_utf8_lossy(value).trim().to_owned();
            let before = match name.as_str() {
                VERSION_HEADER => fields.version.replace(value),
                METHOD_HEADER => fields.method.replace(value),
                NAME_HEADER => fields.name.replace(value),
                _ => {
                    let Some(param) = name.strip_prefix(PARAM_PREFIX) else { continue };
                    fields.params.insert(param.to_owned(), value)
                }
            };
            if before.is_some() {
                fields.duplicate = Some(name);
            }
        }
        fields
    }

    /// Compares the fields with the version, the method and the name in the body.
    ///
    /// # Errors
    /// A field is missing, occurs twice or differs.
    pub(crate) fn check(&self, version: &Value, method: &str, params: &Value) -> Result<(), RpcError> {
        if let Some(name) = &self.duplicate {
            return Err(mismatch(name, "occurs twice"));
        }
        if self.version.is_none() || self.version.as_deref() != version.as_str() {
            return Err(mismatch(VERSION_HEADER, "is not the protocol version in `_meta` of the body"));
        }
        if self.method.as_deref() != Some(method) {
            return Err(mismatch(METHOD_HEADER, "is not the method of the body"));
        }
        let name = name_member(method).and_then(|member| params[member].as_str());
        match name.filter(|name| self.name.as_deref().and_then(decoded).as_deref() != Some(*name)) {
            Some(_) => Err(mismatch(NAME_HEADER, "is not the name or the URI in the params of the body")),
            None => Ok(()),
        }
    }

    /// Compares the fields of parameters with the arguments in the body.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn check_params(&self, mirrored: &[MirroredParam], arguments: &str) -> Result<(), RpcError> {
        if mirrored.is_empty() {
            return Ok(());
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let differs = |param: &&MirroredParam| {
            let sent = self.params.get(&param.token.to_ascii_lowercase()).map(|value| decoded(value));
            match (param.value(&arguments), sent) {
                (None, None) => false,
                (Some(value), Some(Some(sent))) => !is_same(&value, &sent),
                _ => true,
            }
        };
        mirrored.iter().find(differs).map_or(Ok(()), |param| {
            Err(mismatch(&format!("{PARAM_PREFIX}{}", param.token), "is not the argument in the body"))
        })
    }
}

fn mismatch(field: &str, why: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("the header field {field} {why}"))
}

/// Whole numbers are compared by value: some clients write `42` as `42.0`.
fn is_same(value: &str, sent: &str) -> bool {
    value == sent || sent.split_once('.').is_some_and(|(whole, rest)| whole == value && rest.bytes().all(|b| b == b'0'))
}

/// The member of the params that the field `Mcp-Name` repeats.
pub(crate) fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => TaskMethod::ALL.iter().any(|task| task.as_str() == method).then_some("taskId"),
    }
}

/// The fields of a request that repeat what is in its body.
pub(crate) fn routing_fields(method: &str, params: &str, mirrored: &[MirroredParam]) -> Vec<(String, String)> {
    let mut fields = vec![("Mcp-Method".to_owned(), encoded(method).into_owned())];
    if let Some(name) = name_member(method).and_then(|member| text_member(params, member)) {
        fields.push(("Mcp-Name".to_owned(), encoded(&name).into_owned()));
    }
    if !mirrored.is_empty() {
        let arguments: Value =
            serde_json::from_str(member(params, "arguments").unwrap_or_default()).unwrap_or_default();
        fields.extend(mirrored.iter().filter_map(|param| param.field(&arguments)));
    }
    fields
}

/// A parameter of a tool whose value a field of the request repeats (`x-mcp-header` in its schema).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirroredParam {
    path: Vec<String>,
    token: String,
}

impl MirroredParam {
    /// Those of a schema; `None` if one of its annotations is invalid, because clients then leave the tool out.
    pub fn of_schema(schema: &Value) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        add_mirrored(schema, &mut Vec::new(), &mut all).then_some(all)
    }

    /// The value as the field has it before it is encoded; `None` if it has none.
    fn value(&self, arguments: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The field of a request with these arguments.
    fn field(&self, arguments: &Value) -> Option<(String, String)> {
        Some((format!("Mcp-Param-{}", self.token), encoded(&self.value(arguments)?).into_owned()))
    }
}

fn add_mirrored(schema: &Value, path: &mut Vec<String>, all: &mut Vec<MirroredParam>) -> bool {
    if let Some(token) = schema.get("x-mcp-header") {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let is_primitive = matches!(schema["type"].as_str(), Some("string" | "integer" | "boolean"));
        let token = token.as_str().filter(|token| !token.is_empty() && token.chars().all(is_token) && is_primitive);
        let is_other = |token: &&str| all.iter().all(|param| !param.token.eq_ignore_ascii_case(token));
        let Some(token) = token.filter(|token| !path.is_empty() && is_other(token)) else { return false };
        all.push(MirroredParam { path: path.clone(), token: token.to_owned() });
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        let is_valid = add_mirrored(property, path, all);
        path.pop();
        if !is_valid {
            return false;
        }
    }
    true
}

/// A value as a header field has it.
pub(crate) fn encoded(value: &str) -> Cow<'_, str> {
    let is_plain = value.bytes().all(|b| (0x20..0x7f).contains(&b)) && value.trim() == value;
    let looks_encoded = value.starts_with(ENCODED.0) && value.ends_with(ENCODED.1);
    match is_plain && !looks_encoded {
        true => Cow::Borrowed(value),
        false => Cow::Owned(format!("{}{}{}", ENCODED.0, STANDARD.encode(value), ENCODED.1)),
    }
}

/// The value of a header field; `None` if its encoding is broken.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1));
    let Some(inner) = inner else { return Some(Cow::Borrowed(value)) };
    String::from_utf8(STANDARD.decode(inner).ok()?).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_a_field_cannot_have_are_encoded() {
        for (value, field) in [
            ("eu-north", "eu-north"),
            ("a b", "a b"),
            ("", ""),
            (" a", "=?base64?IGE=?="),
            ("Zürich", "=?base64?WsO8cmljaA==?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encoded(value), field);
            assert_eq!(decoded(field).as_deref(), Some(value));
        }
        for broken in ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?="] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn parameters_with_invalid_annotations_are_not_mirrored() {
        let schema = json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "of": { "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
        } });
        let all = MirroredParam::of_schema(&schema).unwrap();
        let arguments = json!({ "region": "é", "of": { "n": 42 } });
        let fields: Vec<_> = all.iter().filter_map(|param| param.field(&arguments)).collect();
        let field = |name: &str, value: &str| (format!("Mcp-Param-{name}"), value.to_owned());
        assert_eq!(fields, [field("Region", "=?base64?w6k=?="), field("N", "42")]);
        assert!(all.iter().all(|param| param.field(&json!({ "region": null })).is_none()));
        for wrong in [
            json!({ "type": "number", "x-mcp-header": "A" }),
            json!({ "type": "string", "x-mcp-header": "A B" }),
            json!({ "type": "string", "x-mcp-header": "region" }),
            json!({ "x-mcp-header": "A" }),
        ] {
            let mut schema = schema.clone();
            schema["properties"]["wrong"] = wrong;
            assert!(MirroredParam::of_schema(&schema).is_none(), "{schema}");
        }
    }

    #[test]
    fn fields_of_parameters_agree_with_the_arguments() {
        let all =
            MirroredParam::of_schema(&json!({ "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } }))
                .unwrap();
        for (field, arguments, agrees) in [
            (Some("42"), r#"{"n":42}"#, true),
            (Some("42.0"), r#"{"n":42}"#, true),
            (Some("=?base64?NDI=?="), r#"{"n":42}"#, true),
            (Some("42.5"), r#"{"n":42}"#, false),
            (Some("43"), r#"{"n":42}"#, false),
            (None, r#"{"n":42}"#, false),
            (Some("42"), r#"{"n":null}"#, false),
            (None, "{}", true),
        ] {
            let params = field.map(|value| ("n".to_owned(), value.to_owned())).into_iter().collect();
            let fields = RoutingFields { params, ..RoutingFields::default() };
            assert_eq!(fields.check_params(&all, arguments).is_ok(), agrees, "{field:?} {arguments}");
        }
    }
}
