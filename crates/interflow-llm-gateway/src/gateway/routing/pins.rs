//! Which deployment made a response of OpenAI's Responses API: a request that continues one has to be sent there, since
//! no other keeps it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use interflow_limits::KeyContext;
use interflow_llm::event_stream::ResponseForm;
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::usage::UsageReader;
use interflow_types::{Body, ByteStr, Flow, Headers, percent};
use parking_lot::Mutex;

use crate::exchange::response::stream::{self, EventObserver, ReadEnd};
use crate::gateway::LlmUpstream;

/// The deployments of the latest responses, in this process. They outlive a reload.
#[derive(Default)]
pub(crate) struct ResponsePins {
    /// Ids are kept as keyed hashes: nobody can choose ids that collide.
    hasher: RandomState,
    state: Mutex<PinState>,
}

/// Two generations: when the younger is full, it becomes the older, whose pins are forgotten.
#[derive(Default)]
struct PinState {
    young: HashMap<u64, Pin>,
    old: HashMap<u64, Pin>,
}

/// The deployment that made a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub deployment: ByteStr,
    /// Responses are kept per account: another model there can continue it, too.
    pub upstream: ByteStr,
    /// Whose it is.
    pub owner: ResponseOwner,
}

/// The virtual key of a client, else its user. Ids of responses are in URLs and records, so that one alone must not lead to
/// what another client said. A client with credentials of its own has what its provider keeps for those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseOwner(Option<Arc<str>>);

impl ResponseOwner {
    pub fn of(flow: &Flow) -> Self {
        let key = flow.extension::<KeyContext>().and_then(|context| context.key.as_ref());
        Self(key.map(|key| Arc::clone(&key.id)).or_else(|| flow.user.clone()))
    }

    /// Whether the upstream may not tell this client from others, whose requests have the same key.
    pub fn shares(&self, upstream: &LlmUpstream) -> bool {
        self.0.is_some() || upstream.has_key()
    }
}

/// The response or conversation that a path names (`/v1/responses/ID`), as a server reads it: decoded, and maybe without
/// regard to case.
pub(crate) fn response_in_path(path: &str) -> Option<String> {
    let path = percent::decoded_lossy(path.split('?').next()?);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let named = |list: &str| segments.windows(2).rfind(|pair| pair[0].eq_ignore_ascii_case(list));
    ["responses", "interactions", "conversations"].into_iter().find_map(named).map(|pair| pair[1].to_owned())
}

impl ResponsePins {
    /// Remembers which deployment made a response; of the pins before at least `max / 2` stay, and `max` at most.
    pub fn insert(&self, id: &str, pin: Pin, max: usize) {
        if max == 0 {
            return;
        }
        let key = self.hasher.hash_one(id);
        let mut state = self.state.lock();
        if state.young.len() >= max.div_ceil(2) {
            state.old = std::mem::take(&mut state.young);
        }
        state.young.insert(key, pin);
    }

    pub fn get(&self, id: &str) -> Option<Pin> {
        let key = self.hasher.hash_one(id);
        let state = self.state.lock();
        state.young.get(&key).or_else(|| state.old.get(&key)).cloned()
    }

    /// The body that registers its response before the client can have read it.
    pub fn follow(self: &Arc<Self>, headers: &Headers, body: Body, pin: Pin, max: usize) -> Body {
        if max == 0 {
            return body;
        }
        let observer = IdObserver { usage: UsageReader::default(), pins: Arc::clone(self), pin: Some(pin), max };
        stream::observe(body, headers, ResponseForm::default().framing(headers), observer)
    }
}

/// Reads the id of a response while it is relayed.
struct IdObserver {
    usage: UsageReader,
    pins: Arc<ResponsePins>,
    /// `None` once the id is known.
    pin: Option<Pin>,
    max: usize,
}

impl EventObserver for IdObserver {
    fn event(&mut self, event: &ParsedEvent) {
        if self.pin.is_none() {
            return;
        }
        self.usage.read(event);
        if let Some(id) = &self.usage.summary().id
            && let Some(pin) = self.pin.take()
        {
            self.pins.insert(id, pin, self.max);
        }
    }

    fn end(&mut self, _end: ReadEnd) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(name: &str) -> Pin {
        Pin { deployment: name.into(), upstream: name.into(), owner: ResponseOwner::default() }
    }

    #[test]
    fn a_response_is_found_in_every_spelling_of_its_path() {
        for path in [
            "/v1/responses/resp_7",
            "/v1/responses/resp%5F7/input_items?limit=1",
            "/V1/Responses/resp_7/",
            "/v1/%72esponses%2Fresp_7",
            "/responses/v1/responses/resp_7/cancel",
            "/v1beta/interactions/resp_7",
            "/v1/conversations/resp_7/items",
        ] {
            assert_eq!(response_in_path(path).as_deref(), Some("resp_7"), "{path}");
        }
        assert_eq!(response_in_path("/v1/responses?at=/responses/resp_7"), None);
    }

    #[test]
    fn the_latest_are_kept_within_the_bound() {
        let pins = ResponsePins::default();
        for n in 0..100 {
            pins.insert(&format!("resp_{n}"), pin("a"), 10);
            let state = pins.state.lock();
            assert!(state.young.len() + state.old.len() <= 10);
        }
        let kept: Vec<u32> = (0..100).filter(|n| pins.get(&format!("resp_{n}")).is_some()).collect();
        assert!(kept.len() >= 5 && *kept.last().unwrap() == 99 && kept[0] >= 90, "{kept:?}");
        pins.insert("off", pin("a"), 0);
        assert_eq!(pins.get("off"), None);
    }

    #[test]
    fn a_response_is_registered_with_its_first_event_or_its_last_byte() {
        use interflow_types::BodyFrame;

        let pins = Arc::new(ResponsePins::default());
        let sse: Headers = [("content-type", "text/event-stream")].into_iter().collect();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let first = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\"}}\n\n";
        let frames = [first, "data: {\"type\":\"x\"}\n\n"].map(|text| Ok(BodyFrame::Data(text.into())));
        let mut body = pins.follow(&sse, Body::replay(frames.into(), Body::Empty), pin("a"), 10);
        assert!(body.poll_frame(&mut cx).is_ready());
        assert_eq!(pins.get("resp_1"), Some(pin("a")));
        let whole = Body::from(bytes::Bytes::from_static(br#"{"id":"resp_2","object":"response","model":"m"}"#));
        drop(pins.follow(&Headers::new(), whole, pin("b"), 10));
        assert_eq!(pins.get("resp_2"), Some(pin("b")));
    }
}
