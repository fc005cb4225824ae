//! What the stages of a flow know of its virtual key.

use std::sync::Arc;

use super::VirtualKey;
use crate::tags::TagSet;

/// A flow's key, for later stages and the audit log. Absent if the client used the provider's key.
#[derive(Clone, Debug, Default)]
pub struct KeyContext {
    /// The virtual key that the request carried.
    pub key: Option<Arc<VirtualKey>>,
    /// The request's tags, and those of its key.
    pub tags: Arc<TagSet>,
}

/// Marks a flow to an endpoint that this process serves to holders of virtual keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyedEndpoint {
    /// The name by which the providers of a key's scope allow it; `None` if the client was authenticated otherwise.
    pub provider: Option<&'static str>,
    /// Whether it acts with the operator's credentials, so that requests from other machines need a key by default.
    pub uses_credentials: bool,
}
