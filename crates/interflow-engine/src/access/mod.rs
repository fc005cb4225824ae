//! Who may go where: users, access rules, and the guard over resolved addresses.

mod guard;
mod names;
mod passes;
mod rules;
mod users;

pub use guard::Guard;
pub use names::HostGlobs;
pub(crate) use passes::Passes;
pub use rules::{AccessRules, Asked};
pub use users::{Credentials, Users, UsersError};
