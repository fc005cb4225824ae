//! Access control: users, access rules, and the filter over resolved addresses.

mod acl;
mod address_filter;
mod ephemeral_credentials;
mod login;
mod login_queue;
mod users;
mod web_pages;

pub use acl::{AccessRequest, AccessRules};
pub use address_filter::{PrivateAddressFilter, UnresolvedNames};
pub(crate) use ephemeral_credentials::EphemeralCredentials;
pub(crate) use login::Login;
pub use login_queue::LoginQueueFull;
pub use users::{BasicCredentials, UserDatabase, UsersError};
pub(crate) use web_pages::WebPagePolicy;
