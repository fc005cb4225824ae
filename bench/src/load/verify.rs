//! Checks each response body as it arrives: against the bytes the origin holds, or a stream's length and stamped events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memchr::memmem;

use crate::load::spec::Check;

/// What precedes a stamp in each wire format of the fake provider, and as gateways write it anew.
const BEFORE_STAMP: [&[u8]; 4] = [b"\"text\":\"", b"\"content\":\"", b"\"text\": \"", b"\"content\": \""];
const STAMP_DIGITS: usize = 19;

/// What a body must be, loaded into memory.
pub enum Expected {
    /// These bytes.
    Exact(Box<[u8]>),
    /// Anything that holds these bytes.
    Holds(Box<[u8]>),
    /// A stamped stream.
    Stamped {
        /// Body length; unset where a gateway writes the events anew.
        bytes: Option<usize>,
        /// Stamped events.
        events: usize,
    },
    /// A refusal.
    Refused,
}

impl Expected {
    /// Loads what a spec names.
    pub fn load(check: &Check) -> std::io::Result<Self> {
        Ok(match check {
            Check::File(path) => Self::Exact(std::fs::read(path)?.into()),
            Check::Holds(text) => Self::Holds(text.as_bytes().into()),
            Check::Stamped { bytes, events } => Self::Stamped { bytes: *bytes, events: *events },
            Check::Refused => Self::Refused,
        })
    }

    /// Length of the body.
    pub fn len(&self) -> usize {
        match self {
            Self::Exact(bytes) => bytes.len(),
            Self::Holds(_) | Self::Refused => 0,
            Self::Stamped { bytes, .. } => bytes.unwrap_or_default(),
        }
    }
}

/// The check of one body.
pub struct Verifier<'a> {
    expected: &'a Expected,
    at: usize,
    seen: Vec<u8>,
    searched: usize,
    /// Age of each stamped event when it was read.
    pub delays: Vec<Duration>,
}

impl<'a> Verifier<'a> {
    /// Begins with the first byte.
    pub fn new(expected: &'a Expected) -> Self {
        Self { expected, at: 0, seen: Vec::new(), searched: 0, delays: Vec::new() }
    }

    /// Whether this is the status that is expected.
    pub fn fits(&self, status: u16) -> bool {
        match self.expected {
            Expected::Refused => matches!(status, 401 | 403),
            _ => status == 200,
        }
    }

    /// Checks the next bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.expected {
            Expected::Exact(whole) => {
                if whole.get(self.at..self.at + bytes.len()) != Some(bytes) {
                    return Err(format!("the body differs from the origin's behind byte {}", self.at));
                }
            }
            Expected::Holds(_) => self.seen.extend_from_slice(bytes),
            Expected::Refused => {}
            Expected::Stamped { .. } => {
                self.seen.extend_from_slice(bytes);
                self.find_stamps();
            }
        }
        self.at += bytes.len();
        Ok(())
    }

    /// Checks that nothing is missing.
    pub fn finish(&self) -> Result<(), String> {
        if let Expected::Holds(text) = self.expected {
            let shown = || String::from_utf8_lossy(&self.seen[..self.seen.len().min(300)]).into_owned();
            let found = memmem::find(&self.seen, text).is_some();
            return if found {
                Ok(())
            } else {
                Err(format!("the answer lacks {:?}: {}", String::from_utf8_lossy(text), shown()))
            };
        }
        let any_length = matches!(self.expected, Expected::Stamped { bytes: None, .. } | Expected::Refused);
        if !any_length && self.at != self.expected.len() {
            return Err(format!("a body of {} bytes in place of {}", self.at, self.expected.len()));
        }
        match self.expected {
            Expected::Stamped { events, .. } if *events != self.delays.len() => {
                Err(format!("{} stamped events in place of {events}", self.delays.len()))
            }
            _ => Ok(()),
        }
    }

    fn find_stamps(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        loop {
            let rest = &self.seen[self.searched..];
            let found = BEFORE_STAMP.iter().filter_map(|b| memmem::find(rest, b).map(|at| at + b.len())).min();
            let Some(at) = found else {
                self.searched = self.seen.len().saturating_sub(16).max(self.searched);
                return;
            };
            let Some(digits) = rest.get(at..at + STAMP_DIGITS) else { return };
            let stamp = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
            if let Some(nanos) = stamp {
                self.delays.push(now.saturating_sub(Duration::from_nanos(nanos)));
            }
            self.searched += at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_at_any_segmentation() {
        let body = b"data: {\"text\":\"\"}\n\ndata: {\"text\":\"1700000000000000000ab\"}\n\ndata: {\"content\":\"1700000000000000001\"}\n\n";
        let expected = Expected::Stamped { bytes: Some(body.len()), events: 2 };
        for size in 1..body.len() {
            let mut verifier = Verifier::new(&expected);
            body.chunks(size).for_each(|c| verifier.take(c).unwrap());
            verifier.finish().unwrap_or_else(|e| panic!("pieces of {size}: {e}"));
        }
    }

    #[test]
    fn a_missing_event_is_an_error() {
        for bytes in [Some(2), None] {
            let expected = Expected::Stamped { bytes, events: 1 };
            let mut verifier = Verifier::new(&expected);
            verifier.take(b"ab").unwrap();
            assert!(verifier.finish().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn length_of_a_stream_that_a_gateway_writes_anew_is_not_compared() {
        let expected = Expected::Stamped { bytes: None, events: 1 };
        let mut verifier = Verifier::new(&expected);
        verifier.take(b"data: {\"text\": \"1700000000000000000ab\"}\n\n").unwrap();
        verifier.finish().unwrap();
    }
}
