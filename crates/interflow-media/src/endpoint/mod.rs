//! The media endpoints on the gateway port: access control, parameters, and responses.

mod access;
mod child_urls;
mod dash;
mod dash_links;
mod decrypt;
mod diagnostics;
mod epg;
mod error;
mod file;
mod hls;
mod links;
mod live_timeline;
mod origin_time;
mod params;
mod playlist;
mod request;
mod router;
mod state;
mod stream;
mod url_rewriter;
mod xtream;

pub use access::AuthorizedRequest;
pub use child_urls::ChildUrls;
pub use links::{IssuedLink, LinkRequest, UnknownName};
pub use params::MediaParams;
pub use router::{MediaMount, MediaService};
pub use state::MediaSetup;
