//! Who may go where: users, access rules, and the guard over resolved addresses.

mod guard;
mod login_queue;
mod names;
mod passes;
mod rules;
mod users;
mod web_pages;

pub use guard::Guard;
pub(crate) use login_queue::LoginQueue;
pub use names::HostGlobs;
pub(crate) use passes::Passes;
pub use rules::{AccessRules, Asked};
pub use users::{Credentials, LoginRefused, Users, UsersError};
pub(crate) use web_pages::WebPagePolicy;
