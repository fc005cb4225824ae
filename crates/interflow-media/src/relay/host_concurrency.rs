//! Limits concurrent streams per host. Playlists, manifests and keys are not limited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::{Authority, Body, BodyFrame, BodyStream, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of hosts tracked; hosts without active streams are forgotten first.
const MAX_HOSTS: usize = 4096;

/// Stream permits per host: an origin that limits connections per account is not asked for more than it gives.
/// Waiting is fair, first come first served.
pub struct HostConcurrency {
    each: usize,
    wait: Duration,
    places: Mutex<HashMap<Authority, Arc<Semaphore>>>,
}

/// A stream's permit, released when dropped.
pub struct HostPermit(Option<OwnedSemaphorePermit>);

impl HostConcurrency {
    /// `each` streams per host, 0 for unlimited; after waiting longer than `wait` a request fails.
    pub fn new(each: u32, wait: Duration) -> Self {
        Self { each: each as usize, wait, places: Mutex::default() }
    }

    /// Waits for a permit. Cancel-safe.
    ///
    /// # Errors
    /// [`ErrorKind::PoolTimeout`] if none became available in time.
    pub async fn acquire(&self, host: &Authority) -> Result<HostPermit> {
        if self.each == 0 {
            return Ok(HostPermit(None));
        }
        let places = self.semaphore(host);
        match tokio::time::timeout(self.wait, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(HostPermit(Some(permit))),
            _ => Err(Error::new(
                ErrorKind::PoolTimeout,
                format!("{} streams from {host} are running already (media.streams_per_host)", self.each),
            )),
        }
    }

    fn semaphore(&self, host: &Authority) -> Arc<Semaphore> {
        let mut places = self.places.lock();
        if places.len() >= MAX_HOSTS {
            // A semaphore with all permits free is the same as a new one.
            places.retain(|_, p| p.available_permits() < self.each);
        }
        Arc::clone(places.entry(host.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

impl HostPermit {
    /// Holds the permit until the body ends or is dropped.
    pub fn attach_to(self, body: Body) -> Body {
        if let Some(permit) = self.0 { Body::stream(PermitBody { body, _permit: permit }) } else { body }
    }
}

struct PermitBody {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl BodyStream for PermitBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
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
    async fn concurrency_slot_is_released_with_its_stream() {
        let hosts = HostConcurrency::new(1, Duration::from_millis(20));
        let (a, b) = ("a:80".parse().unwrap(), "b:80".parse().unwrap());
        let first = hosts.acquire(&a).await.unwrap();
        assert!(hosts.acquire(&b).await.is_ok());
        assert_eq!(hosts.acquire(&a).await.err().map(|e| e.kind()), Some(ErrorKind::PoolTimeout));
        drop(first.attach_to(Body::Empty));
        assert!(hosts.acquire(&a).await.is_ok());
    }

    #[tokio::test]
    async fn without_a_limit_no_stream_waits() {
        let hosts = HostConcurrency::new(0, Duration::ZERO);
        let a = "a:80".parse().unwrap();
        let _all = [hosts.acquire(&a).await.unwrap(), hosts.acquire(&a).await.unwrap()];
    }
}
