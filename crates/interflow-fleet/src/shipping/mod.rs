//! The way of finished flows from the embedded store into the database and the object storage.

pub(crate) mod insert;
pub(crate) mod insert_error;
pub(crate) mod objects;
pub(crate) mod pieces;
pub(crate) mod running_publisher;
pub(crate) mod shipper;
pub(crate) mod spooled_flow;
