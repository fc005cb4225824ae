//! What a script asks for.

use bytes::Bytes;

use crate::flow::external_changes::ExternalChanges;

/// What a script requested.
#[derive(Debug, Default)]
pub(crate) struct ScriptOutcome {
    pub changes: ExternalChanges,
    pub tags: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub end: Option<ScriptVerdict>,
}

/// How a script ends a flow.
#[derive(Debug)]
pub(crate) enum ScriptVerdict {
    Answer { status: u16, headers: Vec<(String, Vec<u8>)>, body: Bytes },
    Deny(Option<String>),
    Drop,
}
