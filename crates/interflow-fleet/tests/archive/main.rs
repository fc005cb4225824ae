//! The archive of the record, of an embedded store and of a shared one.

mod hourly;
mod shared_hourly;

use interflow_archive::FlowWithBodies;
use interflow_store::{BodyRecord, FlowRecord, FlowState, RequestRecord, ResponseRecord};
use interflow_types::{EntryKind, FlowId, Scheme, Timestamp};

/// 2026-11-20T10:00:00.123456Z
const STARTED: u64 = 1_795_168_800_123_456;

/// A flow with a 200 response.
fn exchange(method: &str, path: &str, fields: &[(&str, &str)], request: &[u8], response: &[u8]) -> FlowWithBodies {
    let started = Timestamp::from_micros(STARTED);
    let authority = "api.example.com:443".parse().unwrap();
    let mut row = FlowRecord::new(FlowId::new(started), started, EntryKind::Connect, Scheme::Https, authority);
    row.state = FlowState::Complete;
    row.request = Some(RequestRecord {
        method: method.into(),
        path: path.into(),
        version: "HTTP/1.1".into(),
        headers: fields.iter().copied().collect(),
        body: BodyRecord::whole(request.len() as u64),
        ..RequestRecord::default()
    });
    row.response = Some(ResponseRecord {
        status: 200,
        version: "HTTP/1.1".into(),
        body: BodyRecord::whole(response.len() as u64),
        ..ResponseRecord::default()
    });
    FlowWithBodies {
        request_body: request.to_vec().into(),
        response_body: response.to_vec().into(),
        ..FlowWithBodies::new(row)
    }
}
