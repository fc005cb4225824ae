//! The endpoints on the gateway port: who may ask, what for, and the answer.

mod access;
mod children;
mod dash;
mod decrypt;
mod file;
mod guide;
mod hls;
mod links;
mod mount;
mod params;
mod playlist;
mod reply;
mod small;
mod stream;
mod timeline;
mod xtream;

pub use access::Asked;
pub use children::Children;
pub use links::{LinkWish, Linked, Unknown};
pub use mount::{Media, MediaDoor, Setup};
pub use params::Params;
