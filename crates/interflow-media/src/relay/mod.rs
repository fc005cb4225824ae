//! Fetching from origins: redirects, headers, bodies that go on after a drop, shared work.

pub mod address;
pub mod ahead;
pub mod disk;
pub mod fetch;
pub mod fields;
mod flight;
pub mod hosts;
pub mod pieces;
mod reader;
pub mod resume;
pub mod shared;
pub mod streams;
pub mod transform;

pub use address::{Address, Base};
pub use disk::Disk;
pub use fetch::{Ask, Fetch, Fetched};
pub use shared::{Keep, Shared, Work};
pub use streams::{ActiveStream, Streams};
