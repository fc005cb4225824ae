//! Changes of a message that come from outside the rules.

use bytes::Bytes;

/// Changes made by a person, a service or a script. `None` leaves a part as it is.
#[derive(Debug, Default)]
pub(crate) struct ExternalChanges {
    pub method: Option<String>,
    pub url: Option<String>,
    pub status: Option<u16>,
    /// Fields with all their new values; an empty list removes the field.
    pub fields: Vec<(String, Vec<Vec<u8>>)>,
    pub body: Option<Bytes>,
}
