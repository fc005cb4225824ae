//! Reads keys in a thread of its own, which can be paused while another program has the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, KeyEventKind, poll, read};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::app::TopEvent;

/// How long keys are waited for before the thread looks whether it shall pause.
const POLL: Duration = Duration::from_millis(100);
const PAUSE_STEP: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct KeyReader {
    wanted: AtomicBool,
    /// Whether the thread keeps its hands off the terminal.
    paused: AtomicBool,
}

impl KeyReader {
    /// Reads keys until the terminal is gone.
    pub fn start(events: mpsc::Sender<TopEvent>) -> Arc<Self> {
        let reader = Arc::new(Self::default());
        let own = Arc::clone(&reader);
        thread::spawn(move || own.run(&events));
        reader
    }

    /// Returns once no key is read any more.
    pub async fn pause(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        while !self.paused.load(Ordering::SeqCst) {
            sleep(PAUSE_STEP).await;
        }
    }

    pub fn resume(&self) {
        self.wanted.store(false, Ordering::SeqCst);
    }

    fn run(&self, events: &mpsc::Sender<TopEvent>) {
        loop {
            // In this order: either this thread sees the wish, or `pause` sees that it goes on.
            loop {
                self.paused.store(false, Ordering::SeqCst);
                if !self.wanted.load(Ordering::SeqCst) {
                    break;
                }
                self.paused.store(true, Ordering::SeqCst);
                thread::sleep(PAUSE_STEP);
            }
            let event = match poll(POLL).and_then(|ready| if ready { read().map(Some) } else { Ok(None) }) {
                Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => TopEvent::Key(key),
                Ok(Some(Event::Resize(..))) => TopEvent::Redraw,
                Ok(_) => continue,
                Err(_) => TopEvent::Quit,
            };
            let last = matches!(event, TopEvent::Quit);
            // A caller that pauses it does not wait for a queue that is full, nor for a reader that has ended.
            self.paused.store(true, Ordering::SeqCst);
            if events.blocking_send(event).is_err() || last {
                return;
            }
        }
    }
}
