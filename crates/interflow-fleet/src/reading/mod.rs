//! Lists, searches, live views and checks of the shared flows.

pub(crate) mod bodies;
pub(crate) mod live;
pub(crate) mod overview;
pub(crate) mod overview_models;
pub(crate) mod running;
pub(crate) mod select;
pub(crate) mod verify;
