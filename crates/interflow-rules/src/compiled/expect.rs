//! Tests in rule files: a flow, and the expected result of the rules.

use std::collections::BTreeMap;

use interflow_types::schema::JsonSchema;
use serde::Deserialize;

/// A flow, and the expected result.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// Its name; the URL when absent.
    pub name: Option<String>,
    /// The request.
    pub request: TestRequest,
    /// The origin's response; 200 with an empty body when absent.
    pub response: TestResponse,
    /// A message from the client after the head.
    pub message: Option<String>,
    /// The expected result.
    pub expect: ExpectedOutcome,
    #[serde(skip)]
    pub file: String,
}

/// A request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestRequest {
    /// The method; GET when absent.
    pub method: Option<String>,
    /// The URL.
    pub url: String,
    /// Its fields.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
}

/// A response.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestResponse {
    /// The status; 200 when absent.
    pub status: Option<u16>,
    /// Its fields.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
}

/// The expected result; fields that are absent are not checked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedOutcome {
    /// Rules that must match.
    pub matched: Vec<String>,
    /// Rules that must not match.
    pub not_matched: Vec<String>,
    /// Whether a rule answers in the origin's place.
    pub answered: Option<bool>,
    /// Whether the flow is denied or its connection closed.
    pub denied: Option<bool>,
    /// The request sent to the origin.
    pub request: MessageExpectation,
    /// The response sent to the client.
    pub response: MessageExpectation,
    /// The message after the rules.
    pub message: Option<String>,
    /// Tags on the flow.
    pub tags: Vec<String>,
}

/// The expected head and body.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageExpectation {
    /// The method.
    pub method: Option<String>,
    /// The URL.
    pub url: Option<String>,
    /// The status.
    pub status: Option<u16>,
    /// Fields with these values.
    pub headers: BTreeMap<String, String>,
    /// Fields that must be absent.
    pub without: Vec<String>,
    /// The body.
    pub body: Option<String>,
    /// A text that the body must contain.
    pub contains: Option<String>,
}
