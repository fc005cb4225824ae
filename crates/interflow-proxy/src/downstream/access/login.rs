//! What a client proved about itself, kept with everything that outlives the request that carried the credentials:
//! kept-alive connections, tunnels, WebSockets. It is asked again whether it still holds.

use std::sync::Arc;

use super::UserDatabase;
use super::ephemeral_credentials::EphemeralCredential;

/// Who a client is, and why it is believed.
#[derive(Clone)]
pub(crate) enum Login {
    /// This listener does not ask for credentials. A client's certificate may name it.
    NotAsked(Option<Arc<str>>),
    /// No users are configured, and the client gave no name.
    Anonymous,
    /// A name that was not verified (`auth.accept_unverified_names`).
    Claimed(Arc<str>),
    /// The credentials of a program started by `interflow exec`.
    Exec { user: Arc<str>, credential: Arc<EphemeralCredential> },
    /// A password, with the entry of the users file that it matched.
    Password { user: Arc<str>, entry: Arc<str> },
}

impl Login {
    pub fn user(&self) -> Option<Arc<str>> {
        match self {
            Self::NotAsked(name) => name.clone(),
            Self::Anonymous => None,
            Self::Claimed(user) | Self::Exec { user, .. } | Self::Password { user, .. } => {
                Some(Arc::clone(user)).filter(|user| !user.is_empty())
            }
        }
    }

    /// The client was started by `interflow exec`.
    pub fn is_exec(&self) -> bool {
        matches!(self, Self::Exec { .. })
    }

    /// Whether it can end before its connection does, and what was authenticated by it must end with it.
    pub fn is_revocable(&self) -> bool {
        matches!(self, Self::Claimed(_) | Self::Exec { .. } | Self::Password { .. })
    }

    /// Whether it holds under this configuration: the user and the password are still those of the users file, the
    /// program's `interflow exec` still runs, and nothing stricter is required by now.
    pub fn is_valid(&self, users: Option<&UserDatabase>, accepts_names: bool) -> bool {
        match self {
            Self::NotAsked(_) => true,
            Self::Anonymous => users.is_none(),
            Self::Claimed(_) => users.is_none() && accepts_names,
            Self::Exec { credential, .. } => credential.is_valid(),
            Self::Password { user, entry } => users.and_then(|users| users.entry(user)).is_some_and(|now| now == entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_holds_as_long_as_what_it_was_proved_by() {
        let users = |text: &str| UserDatabase::parse(text, "users").unwrap();
        let (old, new) = (bcrypt::hash("a", 4).unwrap(), bcrypt::hash("b", 4).unwrap());
        let before = users(&format!("ann:{old}\nbob:{old}"));
        let login = |name: &str| Login::Password { user: name.into(), entry: before.entry(name).unwrap().clone() };
        let after = users(&format!("ann:{new}\ncarl:{old}\n"));
        let same = users(&format!("bob:{old}\nann:{old}"));
        let cases = [
            (login("ann"), Some(&same), false, true),
            (login("ann"), Some(&after), false, false),
            (login("bob"), Some(&after), false, false),
            (login("bob"), None, true, false),
            (Login::Claimed("ann".into()), None, true, true),
            (Login::Claimed("ann".into()), None, false, false),
            (Login::Claimed("ann".into()), Some(&same), true, false),
            (Login::Anonymous, None, false, true),
            (Login::Anonymous, Some(&same), false, false),
            (Login::NotAsked(None), Some(&same), false, true),
        ];
        for (i, (login, now, accepts_names, valid)) in cases.into_iter().enumerate() {
            assert_eq!(login.is_valid(now, accepts_names), valid, "case {i}");
        }
    }
}
