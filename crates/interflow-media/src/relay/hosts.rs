//! How many streams run at once from one host. Playlists, manifests and keys never wait here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_flow::{Authority, Body, BodyStream, Error, Frame, Kind, Result};
use parking_lot::Mutex;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most hosts that are remembered.
const MOST: usize = 4096;

/// The places for streams, per host.
pub struct Hosts {
    each: usize,
    wait: Duration,
    places: Mutex<HashMap<Authority, Arc<Semaphore>>>,
}

/// A stream's place; the next one's when it is dropped.
pub struct Place(Option<OwnedSemaphorePermit>);

impl Hosts {
    /// So many per host, 0 for any number; who waits longer than `wait` is told to come back.
    pub fn new(each: u32, wait: Duration) -> Self {
        Self { each: each as usize, wait, places: Mutex::default() }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`Kind::PoolTimeout`] when none became free in time.
    pub async fn enter(&self, host: &Authority) -> Result<Place> {
        if self.each == 0 {
            return Ok(Place(None));
        }
        let places = self.places(host);
        match tokio::time::timeout(self.wait, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place(Some(permit))),
            _ => Err(Error::new(
                Kind::PoolTimeout,
                format!("{} streams from {host} are running already (media.streams_per_host)", self.each),
            )),
        }
    }

    fn places(&self, host: &Authority) -> Arc<Semaphore> {
        let mut places = self.places.lock();
        if places.len() >= MOST {
            places.retain(|_, p| p.available_permits() < self.each);
        }
        Arc::clone(places.entry(host.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

impl Place {
    /// Keeps the place until the body ends.
    pub fn hold(self, body: Body) -> Body {
        match self.0 {
            None => body,
            Some(permit) => Body::stream(Held { body, _permit: permit }),
        }
    }
}

struct Held {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl BodyStream for Held {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        self.body.poll_frame(cx)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_becomes_free_with_its_stream() {
        let hosts = Hosts::new(1, Duration::from_millis(20));
        let (a, b) = ("a:80".parse().unwrap(), "b:80".parse().unwrap());
        let first = hosts.enter(&a).await.unwrap();
        assert!(hosts.enter(&b).await.is_ok());
        assert_eq!(hosts.enter(&a).await.err().map(|e| e.kind()), Some(Kind::PoolTimeout));
        drop(first.hold(Body::Empty));
        assert!(hosts.enter(&a).await.is_ok());
    }

    #[tokio::test]
    async fn without_a_cap_nobody_waits() {
        let hosts = Hosts::new(0, Duration::ZERO);
        let a = "a:80".parse().unwrap();
        let _all = [hosts.enter(&a).await.unwrap(), hosts.enter(&a).await.unwrap()];
    }
}
