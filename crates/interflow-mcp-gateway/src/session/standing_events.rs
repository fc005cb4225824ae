//! The events of a session's stream outside of calls, numbered and kept for a client whose connection breaks off
//! (MCP 2025-11-25, transports, resumability): it names the last one that it has, and gets those after it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::settings::McpSettings;

/// Bounds on the events that are kept, sent or not: the oldest make room, also if the client reads slowly. The latest is
/// kept whatever its size.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct StandingEvents(Mutex<State>);

#[derive(Default)]
struct State {
    /// By number, redacted as they are recorded.
    events: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    /// The number of the latest event; 0 if there was none.
    last: u64,
    /// How many streams were opened; only the latest goes on.
    streams: u64,
    is_open: bool,
    reader: Option<Waker>,
    /// What passes on the messages of servers.
    listeners: Vec<AbortHandle>,
    /// The settings that they were started with.
    settings: Weak<McpSettings>,
}

/// A stream that was opened.
pub(crate) struct OpenedStream {
    pub stream: u64,
    /// The number of the event after which it begins.
    pub after: u64,
    /// The number of the latest event when it was opened; those up to it are sent again.
    pub last: u64,
    /// Whether the listeners of the stream before it go on for this one.
    pub has_listeners: bool,
}

impl StandingEvents {
    /// Opens a stream, which takes the place of the one before. It begins after the event with this id, if that and all
    /// that came since are known, and otherwise with the next event.
    pub fn open(&self, last_event: Option<&str>, settings: &Arc<McpSettings>) -> OpenedStream {
        let mut state = self.0.lock();
        state.streams += 1;
        state.is_open = true;
        state.wake();
        let oldest = state.events.front().map_or(state.last + 1, |(number, _)| *number);
        let resumed = last_event.and_then(|id| id.parse::<u64>().ok());
        let resumed = resumed.filter(|number| *number <= state.last && oldest <= *number + 1);
        let is_running = !state.listeners.is_empty() && state.listeners.iter().all(|task| !task.is_finished());
        let is_same = std::ptr::eq(state.settings.as_ptr(), Arc::as_ptr(settings));
        let has_listeners = resumed.is_some() && is_running && is_same;
        state.settings = Arc::downgrade(settings);
        if !has_listeners {
            state.end_listeners();
        }
        OpenedStream { stream: state.streams, after: resumed.unwrap_or(state.last), last: state.last, has_listeners }
    }

    /// Gives a stream the tasks that pass on the messages of servers. They end with it, or later if it is resumed.
    pub fn attach_listeners(&self, stream: u64, listeners: Vec<AbortHandle>) {
        let mut state = self.0.lock();
        if state.streams == stream && state.is_open {
            state.listeners = listeners;
        } else {
            listeners.iter().for_each(AbortHandle::abort);
        }
    }

    /// Adds an event, if the client ever had a stream.
    pub fn push(&self, text: String) {
        let mut state = self.0.lock();
        if state.streams == 0 {
            return;
        }
        state.last += 1;
        state.bytes += text.len();
        let number = state.last;
        state.events.push_back((number, text.into()));
        while state.events.len() > 1 && (state.events.len() > MAX_EVENTS || state.bytes > MAX_BYTES) {
            let Some((_, oldest)) = state.events.pop_front() else { break };
            state.bytes -= oldest.len();
        }
        state.wake();
    }

    /// The first event after this number, which then is that event's; `None` if the stream is over.
    pub fn poll_next(&self, stream: u64, after: &mut u64, cx: &mut Context<'_>) -> Poll<Option<Arc<str>>> {
        let mut state = self.0.lock();
        if state.streams != stream || !state.is_open {
            return Poll::Ready(None);
        }
        let at = state.events.partition_point(|(number, _)| *number <= *after);
        if let Some((number, text)) = state.events.get(at) {
            *after = *number;
            return Poll::Ready(Some(Arc::clone(text)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The client of a stream is gone; whether it was the latest one, and can be resumed.
    pub fn leave(&self, stream: u64) -> bool {
        let mut state = self.0.lock();
        let is_latest = state.streams == stream && state.is_open;
        if is_latest {
            (state.is_open, state.reader) = (false, None);
        }
        is_latest
    }

    /// Ends what passes on the messages of servers, if a stream that was left was not resumed.
    pub fn end_unless_resumed(&self, stream: u64) {
        let mut state = self.0.lock();
        if state.streams == stream && !state.is_open {
            state.end_listeners();
        }
    }

    /// Ends the stream.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.is_open = false;
        state.end_listeners();
        state.wake();
    }

    pub fn is_open(&self) -> bool {
        self.0.lock().is_open
    }

    /// Whether an event that is added now can reach the client, at once or when it resumes its stream.
    pub fn keeps_events(&self) -> bool {
        self.0.lock().streams > 0
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn end_listeners(&mut self) {
        std::mem::take(&mut self.listeners).iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &StandingEvents, opened: &OpenedStream) -> Vec<String> {
        let (mut after, mut texts) = (opened.after, Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(text)) = events.poll_next(opened.stream, &mut after, &mut cx) {
            texts.push(text.to_string());
        }
        texts
    }

    #[test]
    fn a_stream_begins_after_an_event_that_is_known_and_otherwise_now() {
        let (events, settings) = <(StandingEvents, Arc<McpSettings>)>::default();
        events.push("nobody ever listened".into());
        let first = events.open(Some("0"), &settings);
        events.push("a".into());
        events.push("b".into());
        assert_eq!(read(&events, &first), ["a", "b"]);
        assert!(events.leave(first.stream));
        events.push("c".into());
        for (id, replayed) in [
            (Some("0"), &["a", "b", "c"][..]),
            (Some("1"), &["b", "c"]),
            (Some("3"), &[]),
            (Some("4"), &[]),
            (Some("-1"), &[]),
            (Some("18446744073709551615"), &[]),
            (Some("x"), &[]),
            (None, &[]),
        ] {
            let opened = events.open(id, &settings);
            assert_eq!(read(&events, &opened), replayed, "{id:?}");
        }
        assert!(read(&events, &first).is_empty() && !events.leave(first.stream), "others took its place");
    }

    #[test]
    fn events_are_bounded_in_number_and_bytes() {
        let (events, settings) = <(StandingEvents, Arc<McpSettings>)>::default();
        let opened = events.open(None, &settings);
        for n in 0..=MAX_EVENTS {
            events.push(n.to_string());
        }
        assert_eq!(events.0.lock().events.len(), MAX_EVENTS);
        let read_all = read(&events, &opened);
        assert_eq!((read_all.len(), read_all[0].as_str()), (MAX_EVENTS, "1"), "the oldest is gone");
        assert!(read(&events, &events.open(Some("0"), &settings)).is_empty(), "too old");
        assert_eq!(read(&events, &events.open(Some("1"), &settings)).len(), MAX_EVENTS);
        let large = "x".repeat(MAX_BYTES);
        events.push(large.clone());
        events.push(large);
        let state = events.0.lock();
        assert_eq!((state.events.len(), state.bytes), (1, MAX_BYTES));
    }

    #[tokio::test]
    async fn listeners_go_on_for_a_client_that_comes_back() {
        let (events, settings) = <(StandingEvents, Arc<McpSettings>)>::default();
        let listener = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let (kept, other) = (listener(), listener());
        let first = events.open(None, &settings);
        events.attach_listeners(first.stream, vec![kept.clone()]);
        assert!(events.leave(first.stream));
        let second = events.open(Some("0"), &settings);
        assert!(second.has_listeners);
        events.end_unless_resumed(first.stream);
        assert!(events.leave(second.stream));
        events.end_unless_resumed(second.stream);
        // It has ended, and the next stream needs others.
        let third = events.open(Some("0"), &settings);
        assert!(!third.has_listeners);
        events.close();
        events.attach_listeners(third.stream, vec![other.clone()]);
        tokio::task::yield_now().await;
        assert!(kept.is_finished() && other.is_finished());
    }
}
