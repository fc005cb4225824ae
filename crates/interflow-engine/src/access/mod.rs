//! Who may go where: users, access rules, and the guard over resolved addresses.

mod acl;
mod address_filter;
mod ephemeral_credentials;
mod host_globs;
mod login_queue;
mod users;
mod web_pages;

pub use acl::{AccessRequest, AccessRules};
pub use address_filter::PrivateAddressFilter;
pub(crate) use ephemeral_credentials::EphemeralCredentials;
pub use host_globs::HostGlobs;
pub(crate) use login_queue::LoginQueue;
pub use users::{BasicCredentials, LoginQueueFull, UserDatabase, UsersError};
pub(crate) use web_pages::WebPagePolicy;
