//! Who may go where: users, access rules, and the guard over resolved addresses.

mod guard;
mod names;
mod rules;
mod users;

pub use guard::Guard;
pub use names::HostGlobs;
pub use rules::{AccessRules, Asked};
pub use users::{Credentials, Users, UsersError};
