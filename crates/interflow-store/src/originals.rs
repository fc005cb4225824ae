//! Requests and responses as received, recorded next to the edited versions that were sent on.

use interflow_types::schema::JsonSchema;
use interflow_types::{Authority, Direction, Scheme, Url};
use serde::{Deserialize, Serialize};

use crate::model::{BodyRecord, FlowRecord, RequestRecord, ResponseRecord};

/// A flow's request and response as received, before they were edited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Original")]
pub struct OriginalRecord {
    /// The request as received from the client, if it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<OriginalRequestRecord>,
    /// The response as received from the origin, if it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<OriginalResponseRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OriginalRequest")]
pub struct OriginalRequestRecord {
    /// The original URL, with secrets in the query masked.
    pub url: String,
    #[serde(flatten)]
    pub head: RequestRecord,
    /// Whether the body was edited as well and is recorded twice; otherwise the body sent on is the original.
    pub body_edited: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OriginalResponse")]
pub struct OriginalResponseRecord {
    #[serde(flatten)]
    pub head: ResponseRecord,
    /// Whether the body was edited as well and is recorded twice; otherwise the body delivered is the original.
    pub body_edited: bool,
}

impl OriginalRecord {
    /// Metadata of the received body in this direction, if it was edited.
    pub fn edited_body(&self, direction: Direction) -> Option<&BodyRecord> {
        match direction {
            Direction::Request => self.request.as_ref().filter(|r| r.body_edited).map(|r| &r.head.body),
            Direction::Response => self.response.as_ref().filter(|r| r.body_edited).map(|r| &r.head.body),
        }
    }

    pub fn edited_body_mut(&mut self, direction: Direction) -> Option<&mut BodyRecord> {
        match direction {
            Direction::Request => self.request.as_mut().filter(|r| r.body_edited).map(|r| &mut r.head.body),
            Direction::Response => self.response.as_mut().filter(|r| r.body_edited).map(|r| &mut r.head.body),
        }
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        [Direction::Request, Direction::Response].into_iter().filter_map(|d| self.edited_body(d)).map(|b| b.kept).sum()
    }
}

/// The origin named by a URL. `None` for a URL that an import brought in a form that is not understood.
fn target(url: &str) -> Option<(Scheme, Authority)> {
    Url::split(url).ok().map(|(scheme, authority, _)| (scheme, authority))
}

impl FlowRecord {
    /// Metadata of a body as sent on, or as received if it was edited.
    pub fn recorded_body(&self, direction: Direction, received: bool) -> Option<&BodyRecord> {
        if received { self.original.as_ref()?.edited_body(direction) } else { self.body(direction) }
    }

    pub fn recorded_body_mut(&mut self, direction: Direction, received: bool) -> Option<&mut BodyRecord> {
        match direction {
            _ if received => self.original.as_mut()?.edited_body_mut(direction),
            Direction::Request => self.request.as_mut().map(|request| &mut request.body),
            Direction::Response => self.response.as_mut().map(|response| &mut response.body),
        }
    }

    /// Whether the message in this direction was edited, so that the received version is recorded too.
    pub fn is_edited(&self, direction: Direction) -> bool {
        self.original.as_deref().is_some_and(|o| match direction {
            Direction::Request => o.request.is_some(),
            Direction::Response => o.response.is_some(),
        })
    }

    /// The flow as received: with the client's request and the origin's response where they were edited. A body that
    /// was not edited is the one sent on.
    pub fn original_view(&self) -> Self {
        let mut row = self.clone();
        let Some(original) = row.original.take() else { return row };
        if let Some(OriginalRequestRecord { url, head, body_edited }) = original.request {
            if let Some((scheme, authority)) = target(&url) {
                (row.scheme, row.authority) = (scheme, authority);
            }
            // The original's own body metadata is empty if the body was not edited.
            let sent = self.request.as_ref().map(|r| r.body).filter(|_| !body_edited);
            row.request = Some(RequestRecord { body: sent.unwrap_or(head.body), ..head });
        }
        if let Some(OriginalResponseRecord { head, body_edited }) = original.response {
            let sent = self.response.as_ref().map(|r| r.body).filter(|_| !body_edited);
            row.response = Some(ResponseRecord { body: sent.unwrap_or(head.body), ..head });
        }
        row
    }
}
