//! The closed loop over HTTP/2: one connection, several streams at a time.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::task::{JoinSet, spawn_local};

use crate::Result;
use crate::load::connect::Io;
use crate::load::verify::Verifier;
use crate::load::{PATIENCE, Thread};

/// Keeps `streams` requests open on one connection until the run is over; a lost connection is opened again.
pub(super) async fn closed(state: Rc<Thread>, streams: usize) {
    while !state.over() {
        let lost = match connection(&state).await {
            Ok(send) => {
                let mut tasks = JoinSet::new();
                (0..streams).for_each(|_| {
                    tasks.spawn_local(stream(state.clone(), send.clone()));
                });
                drop(send);
                while tasks.join_next().await.is_some() {}
                continue;
            }
            Err(e) => e.to_string(),
        };
        state.count(|c| c.error(lost));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn connection(state: &Thread) -> Result<SendRequest<Bytes>> {
    let io: Box<dyn Io> = state.open(&state.job.prepared[0]).await?;
    let (send, connection) = h2::client::Builder::new()
        .initial_window_size(4 << 20)
        .initial_connection_window_size(64 << 20)
        .max_concurrent_reset_streams(1000)
        .handshake(io)
        .await?;
    spawn_local(connection);
    Ok(send)
}

/// Sends requests one after the other; ends with the connection.
async fn stream(state: Rc<Thread>, send: SendRequest<Bytes>) {
    while !state.over() {
        let failed = match tokio::time::timeout(PATIENCE, exchange(&state, &send)).await {
            Ok(Ok(())) => continue,
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        state.count(|c| c.error(failed));
        return;
    }
}

async fn exchange(state: &Thread, send: &SendRequest<Bytes>) -> Result<()> {
    let prepared = state.next();
    let began = Instant::now();
    let mut request = http::Request::builder().uri(&prepared.url);
    if !prepared.body.is_empty() {
        request = request.method("POST");
    }
    for (name, value) in &state.job.spec.headers {
        request = request.header(name, value);
    }
    let (response, mut upload) =
        send.clone().ready().await?.send_request(request.body(())?, prepared.body.is_empty())?;
    if !prepared.body.is_empty() {
        upload.send_data(prepared.body.clone(), true)?;
    }
    let response = response.await?;
    let first_byte = Instant::now();
    if response.status() != http::StatusCode::OK {
        return Err(io::Error::other(format!("status {}", response.status())).into());
    }
    let mut verifier = Verifier::new(&prepared.expected);
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        verifier.take(&data)?;
    }
    verifier.finish()?;
    state.done(began, first_byte, prepared, &verifier.delays);
    Ok(())
}
