//! Requests and responses as they came in, beside what went on, where they were edited.

use interflow_types::{Authority, Direction, Scheme};
use serde::{Deserialize, Serialize};

use crate::model::{BodyRow, FlowRow, RequestRow, ResponseRow};

/// A flow's request and response as they came in, before they were edited here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginalRow {
    /// The request as it came from the client, when it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<OriginalRequestRow>,
    /// The response as it came from the origin, when it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<OriginalResponseRow>,
}

/// A request as it came from the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginalRequestRow {
    /// Where it was to go, secrets in the query masked.
    pub url: String,
    /// Its head, and what is known of its body.
    #[serde(flatten)]
    pub head: RequestRow,
    /// The body was edited too: it is recorded twice. Otherwise the one that was sent is the original.
    pub body_edited: bool,
}

/// A response as it came from the origin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginalResponseRow {
    /// Its head, and what is known of its body.
    #[serde(flatten)]
    pub head: ResponseRow,
    /// The body was edited too: it is recorded twice. Otherwise the one that was delivered is the original.
    pub body_edited: bool,
}

impl OriginalRow {
    /// What is known of the body that came this way, when it was edited.
    pub fn edited_body(&self, direction: Direction) -> Option<&BodyRow> {
        match direction {
            Direction::Request => self.request.as_ref().filter(|r| r.body_edited).map(|r| &r.head.body),
            Direction::Response => self.response.as_ref().filter(|r| r.body_edited).map(|r| &r.head.body),
        }
    }

    /// The body row of this direction, when the body was edited.
    pub fn edited_body_mut(&mut self, direction: Direction) -> Option<&mut BodyRow> {
        match direction {
            Direction::Request => self.request.as_mut().filter(|r| r.body_edited).map(|r| &mut r.head.body),
            Direction::Response => self.response.as_mut().filter(|r| r.body_edited).map(|r| &mut r.head.body),
        }
    }

    /// Bytes of edited bodies that are kept.
    pub(crate) fn stored_bytes(&self) -> u64 {
        [Direction::Request, Direction::Response].into_iter().filter_map(|d| self.edited_body(d)).map(|b| b.kept).sum()
    }
}

/// Whom a URL names.
fn target(url: &str) -> Option<(Scheme, Authority)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = Scheme::parse(scheme)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some((scheme, Authority::parse(authority, Some(scheme.default_port())).ok()?))
}

impl FlowRow {
    /// Whether what went this way was edited, and is recorded as it came in too.
    pub fn is_edited(&self, direction: Direction) -> bool {
        self.original.as_deref().is_some_and(|o| match direction {
            Direction::Request => o.request.is_some(),
            Direction::Response => o.response.is_some(),
        })
    }

    /// The flow as it came in: with the request of the client and the response of the origin, where they were edited. A body
    /// that was not edited is the one that went on.
    #[must_use]
    pub fn original_view(&self) -> Self {
        let mut row = self.clone();
        let Some(original) = row.original.take() else { return row };
        if let Some(OriginalRequestRow { url, head, body_edited }) = original.request {
            if let Some((scheme, authority)) = target(&url) {
                (row.scheme, row.authority) = (scheme, authority);
            }
            let sent = self.request.as_ref().map(|r| r.body).filter(|_| !body_edited);
            row.request = Some(RequestRow { body: sent.unwrap_or(head.body), ..head });
        }
        if let Some(OriginalResponseRow { head, body_edited }) = original.response {
            let sent = self.response.as_ref().map(|r| r.body).filter(|_| !body_edited);
            row.response = Some(ResponseRow { body: sent.unwrap_or(head.body), ..head });
        }
        row
    }
}
