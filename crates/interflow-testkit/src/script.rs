//! Scripts for raw origins: what to wait for and what to send, byte by byte.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::message::{Framing, parse_head};
use crate::origin::Shared;
use crate::wire::{Wire, bad};

enum Step {
    Head,
    Request,
    Exactly(usize),
    ToEnd,
    Send(Bytes),
    Pause(Duration),
    Finish,
    Reset,
    Stall,
}

/// The steps of one connection, in order; the connection closes after the last one.
#[derive(Default)]
pub struct Script {
    steps: Vec<Step>,
}

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    /// Replies to one request with these bytes.
    pub fn answer(bytes: impl Into<Bytes>) -> Self {
        Self::new().request().send(bytes)
    }

    /// Reads a head up to its empty line.
    #[must_use]
    pub fn head(self) -> Self {
        self.step(Step::Head)
    }

    /// Reads a head and its body.
    #[must_use]
    pub fn request(self) -> Self {
        self.step(Step::Request)
    }

    #[must_use]
    pub fn exactly(self, n: usize) -> Self {
        self.step(Step::Exactly(n))
    }

    /// Reads until the peer closes its direction.
    #[must_use]
    pub fn to_end(self) -> Self {
        self.step(Step::ToEnd)
    }

    #[must_use]
    pub fn send(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        self.step(Step::Pause(pause))
    }

    /// Closes the sending direction (FIN); reading continues.
    #[must_use]
    pub fn finish(self) -> Self {
        self.step(Step::Finish)
    }

    #[must_use]
    pub fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// Does nothing more and keeps the connection open.
    #[must_use]
    pub fn stall(self) -> Self {
        self.step(Step::Stall)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) async fn play(&self, mut wire: Wire, connection: usize, seen: &Shared) -> io::Result<()> {
        for step in &self.steps {
            match step {
                Step::Head => {
                    let head = wire.head().await?.unwrap_or_default();
                    seen.receive(connection, &head);
                }
                Step::Request => {
                    let Some(head) = wire.head().await? else { return Ok(()) };
                    seen.receive(connection, &head);
                    let (_, headers) = parse_head(&head).map_err(bad)?;
                    let (body, _) = wire.body(Framing::of_request(&headers).map_err(bad)?).await?;
                    seen.receive(connection, &body);
                }
                Step::Exactly(n) => seen.receive(connection, &wire.exactly(*n).await?),
                Step::ToEnd => loop {
                    let some = wire.some().await?;
                    if some.is_empty() {
                        break;
                    }
                    seen.receive(connection, &some);
                },
                Step::Send(bytes) => wire.send(bytes).await?,
                Step::Pause(pause) => tokio::time::sleep(*pause).await,
                Step::Finish => wire.finish().await?,
                Step::Reset => {
                    wire.reset();
                    return Ok(());
                }
                Step::Stall => std::future::pending().await,
            }
        }
        Ok(())
    }
}
