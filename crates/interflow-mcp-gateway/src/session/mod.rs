//! Sessions of clients, and what each remembers.

pub(crate) mod call_outcome;
pub(crate) mod client_questions;
pub(crate) mod client_session;
pub(crate) mod listed_names;
pub(crate) mod request_state;
pub(crate) mod resource_owners;
pub(crate) mod running_requests;
pub(crate) mod server_requests;
pub(crate) mod session_table;
pub(crate) mod standing_events;
pub(crate) mod subscriptions;
pub(crate) mod wait_clock;
pub(crate) mod waiting_calls;
