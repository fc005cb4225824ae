//! Each side's view of an edited flow: the client sent the request as received by the proxy and got the response that
//! was sent on; the origin got the request that was sent on and sent the response as received.

use std::borrow::Cow;
use std::io::{self, Read};

use interflow_types::Direction;

use super::Interface;
use crate::{BodySource, MessageIter};
use interflow_store::FlowRecord;

impl Interface {
    /// The direction of the message that this side exchanged before it was edited.
    const fn unedited(self) -> Direction {
        match self {
            Self::Client => Direction::Request,
            Self::Upstream => Direction::Response,
        }
    }

    /// The flow as seen on this side.
    pub(super) fn view(self, row: &FlowRecord) -> Cow<'_, FlowRecord> {
        let direction = self.unedited();
        let Some(original) = row.original.as_deref().filter(|_| row.is_edited(direction)) else {
            return Cow::Borrowed(row);
        };
        let mut original = original.clone();
        match direction {
            // Only the message that this side did not exchange edited is taken as received.
            Direction::Request => original.response = None,
            Direction::Response => original.request = None,
        }
        Cow::Owned(FlowRecord { original: Some(Box::new(original)), ..row.clone() }.original_view())
    }
}

/// A flow on one side, with the contents that this side exchanged.
pub(super) struct FlowSide<'c> {
    pub side: Interface,
    pub row: &'c FlowRecord,
    pub contents: &'c dyn BodySource,
}

pub(super) struct SideContents<'c> {
    pub side: Interface,
    /// The flow with all recorded data.
    pub whole: &'c FlowRecord,
    pub contents: &'c dyn BodySource,
}

impl BodySource for SideContents<'_> {
    fn body<'a>(&'a self, _: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        let edited = self.whole.recorded_body(direction, true).is_some();
        match edited && direction == self.side.unedited() {
            true => self.contents.original_body(self.whole, direction),
            false => self.contents.body(self.whole, direction),
        }
    }

    fn messages<'a>(&'a self, _: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        self.contents.messages(self.whole)
    }
}
