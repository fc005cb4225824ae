//! Expectations written beside the rules: a flow, and what must come of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// A flow, and what the rules must make of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// Its name; the URL when absent.
    pub name: Option<String>,
    /// The request.
    pub request: TestRequest,
    /// What the origin answers; 200 with an empty body when absent.
    pub response: TestResponse,
    /// A message that passes after the head, from the client.
    pub message: Option<String>,
    /// What must come of it.
    pub expect: ExpectedOutcome,
    /// The file that it stands in.
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

/// What must come of a flow; what is not named does not matter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedOutcome {
    /// Rules that match.
    pub matched: Vec<String>,
    /// Rules that do not.
    pub not_matched: Vec<String>,
    /// Whether a rule answers in the origin's place.
    pub answered: Option<bool>,
    /// Whether the flow is denied, or its connection closed.
    pub denied: Option<bool>,
    /// What goes to the origin.
    pub request: MessageExpectation,
    /// What goes to the client.
    pub response: MessageExpectation,
    /// What becomes of the message.
    pub message: Option<String>,
    /// Tags on the flow.
    pub tags: Vec<String>,
}

/// What a head and body must be.
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
    /// Fields that must not be there.
    pub without: Vec<String>,
    /// The body.
    pub body: Option<String>,
    /// A text in the body.
    pub contains: Option<String>,
}
