//! Fetching from origins: redirects, header filtering, resumable bodies, shared fetches and caching.

pub mod address;
pub mod body_parts;
mod cookie_jar;
pub mod disk_cache;
pub mod fetch;
pub mod header_filter;
pub mod host_concurrency;
pub mod prefetch;
mod reader;
pub mod resume;
pub mod segment_cache;
mod single_flight;
pub mod streams;
pub mod ts_unwrap;
pub mod ttl_cache;

pub use address::{BaseUrl, MediaAddress};
pub use cookie_jar::CookieJar;
pub use disk_cache::DiskCache;
pub use fetch::{FetchRequest, FetchedResponse, MediaFetcher};
pub use segment_cache::{CachePolicy, ResponseTransform, SegmentCache};
pub use streams::{ActiveStream, StreamRegistry, StreamsView};
