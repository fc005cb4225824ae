//! The attempts at which a gateway sends a client's request: to several providers, or several times to one. They are part
//! of the client's flow and have none of their own in the record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::labelled_enum;
use crate::schema::JsonSchema;
use crate::{ByteStr, Error, ErrorKind, Flow, FlowTimings, UpstreamInfo};

/// One attempt at sending a client's request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// The provider, by its name in the configuration.
    pub provider: String,
    /// The deployment's name in its route; for a provider without one, the provider's.
    pub deployment: String,
    /// The model that was asked for there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Host of the request, and the port if it is not the scheme's.
    pub host: String,
    /// Path of the request, without its query.
    pub path: String,
    pub state: AttemptState,
    /// Whether it was sent beside an earlier one because that was slow.
    #[serde(default)]
    pub hedge: bool,
    /// Status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The label of the error's kind, such as `upstream_timeout`. An attempt that served the client may have failed later.
    #[serde(default, with = "kind_label", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub error: Option<ErrorKind>,
    /// What failed; for a response, the provider's code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was sent, in microseconds after the flow's start.
    pub started: u64,
    /// When the head of its response arrived, in microseconds after the flow's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<u64>,
    /// When it ended, in microseconds after the flow's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Input tokens that are charged, those of a cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Output tokens that are charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Whether the tokens were counted or estimated, because the provider did not report them.
    #[serde(default)]
    pub estimated: bool,
    /// Cost in millionths of a dollar, if the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

labelled_enum! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum AttemptState {
        /// Not answered yet.
        #[default]
        Running "running",
        /// Its response went to the client.
        Served "served",
        /// It failed, or its response was one after which another attempt is made.
        Failed "failed",
        /// It was given up, because another attempt was faster or the client left.
        Cancelled "cancelled",
    }
}

/// The kind of an error by its label; one of a newer version is read as none.
mod kind_label {
    use super::{Deserialize, Deserializer, ErrorKind, Serialize, Serializer};

    pub fn serialize<S: Serializer>(kind: &Option<ErrorKind>, to: S) -> Result<S::Ok, S::Error> {
        kind.map(ErrorKind::as_str).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ErrorKind>, D::Error> {
        let label = Option::<String>::deserialize(from)?;
        Ok(label.and_then(|label| ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == label)))
    }
}

/// The attempts of a flow, in the order in which they began: an extension of the client's flow.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Arc<Mutex<Vec<AttemptEntry>>>);

#[derive(Debug, Default)]
struct AttemptEntry {
    attempt: Attempt,
    /// Of the flow that it is sent as.
    upstream: Option<UpstreamInfo>,
    timings: FlowTimings,
    tags: Vec<ByteStr>,
}

impl Attempts {
    /// Adds an attempt that is about to be sent.
    pub fn begin(&self, attempt: Attempt) -> AttemptHandle {
        let mut entries = self.entries();
        entries.push(AttemptEntry { attempt, ..AttemptEntry::default() });
        AttemptHandle { attempts: self.clone(), index: entries.len() - 1 }
    }

    /// The attempts as they are now.
    pub fn list(&self) -> Vec<Attempt> {
        self.entries().iter().map(|entry| entry.attempt.clone()).collect()
    }

    /// Changes the attempt at this position of the list.
    pub fn edit(&self, index: usize, edit: impl FnOnce(&mut Attempt)) {
        if let Some(entry) = self.entries().get_mut(index) {
            edit(&mut entry.attempt);
        }
    }

    /// The client's flow ends: no attempt outlasts it.
    pub fn close(&self, now: u64) {
        for AttemptEntry { attempt, .. } in self.entries().iter_mut() {
            if attempt.state == AttemptState::Running {
                attempt.state = AttemptState::Cancelled;
            }
            attempt.ended.get_or_insert(now);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<AttemptEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One attempt, by which it is kept up to date: an extension of the flow that it is sent as, which is not recorded.
#[derive(Clone, Debug, Default)]
pub struct AttemptHandle {
    attempts: Attempts,
    index: usize,
}

impl AttemptHandle {
    /// What is known of the flow that it is sent as: when its response began, and at its end.
    pub fn observe(&self, flow: &Flow) {
        let mut entries = self.attempts.entries();
        let Some(AttemptEntry { attempt, upstream, timings, tags }) = entries.get_mut(self.index) else { return };
        let since_start = |at: Option<u64>| at.map(|at| attempt.started + at);
        attempt.first_byte = since_start(flow.timings.first_byte);
        attempt.ended = since_start(flow.timings.done);
        attempt.status = flow.status.map(|status| status.as_u16());
        upstream.clone_from(&flow.upstream);
        *timings = flow.timings;
        tags.clone_from(&flow.tags);
    }

    /// The flow that it is sent as ended with this error.
    pub fn fail(&self, error: &Error) {
        self.attempts.edit(self.index, |attempt| match (attempt.state, error.kind()) {
            (AttemptState::Running, ErrorKind::ClientGone) => attempt.state = AttemptState::Cancelled,
            (AttemptState::Running | AttemptState::Served, kind) if kind != ErrorKind::ClientGone => {
                (attempt.error, attempt.message) = (Some(kind), Some(error.to_string()));
            }
            // The response of an attempt that failed already, which is read for its words.
            _ => {}
        });
    }

    /// Whether its response goes to the client; if not, the error that it counts as, unless it was answered.
    pub fn settle(&self, state: AttemptState, error: Option<ErrorKind>) {
        self.attempts.edit(self.index, |attempt| (attempt.state, attempt.error) = (state, error));
    }

    /// What the response of a failed attempt said.
    pub fn explain(&self, code: String) {
        self.attempts.edit(self.index, |attempt| attempt.message = attempt.message.take().or(Some(code)));
    }

    /// Its connection and timings become those of the client's flow, because its response does.
    pub fn adopt(&self, flow: &mut Flow) {
        let entries = self.attempts.entries();
        let Some(AttemptEntry { attempt, upstream, timings, tags }) = entries.get(self.index) else { return };
        let since_start = |at: Option<u64>| at.map(|at| attempt.started + at);
        // Earlier attempts, and pauses between them, are time in which the request waited.
        let first = entries.first().map_or(attempt.started, |entry| entry.attempt.started);
        let waited = attempt.started.saturating_sub(first) + timings.blocked.unwrap_or_default();
        flow.upstream.clone_from(upstream);
        flow.timings = FlowTimings {
            blocked: Some(waited).filter(|waited| *waited > 0 || timings.blocked.is_some()),
            dns: timings.dns,
            connect: timings.connect,
            tls: timings.tls,
            request_sent: since_start(timings.request_sent),
            first_byte: since_start(timings.first_byte),
            ..flow.timings
        };
        tags.iter().for_each(|tag| flow.tag(tag.clone()));
    }
}
