//! Who sends a request to the admin side, and what they may do: roles, rights, and the tokens of people and services.

pub(crate) mod caller;
pub(crate) mod enforce;
pub mod shared;
pub mod token_lifetimes;
pub mod tokens;

use interflow_types::schema::JsonSchema;
use interflow_types::{Timestamp, labelled_enum};
use serde::{Deserialize, Serialize};

use crate::auth::person_sessions::PersonSession;

labelled_enum! {
    /// What somebody may do. A role is a set of these; bodies are a right of their own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Right {
        /// See flows without contents, figures, rules and the state of the instance.
        View "view",
        /// Read bodies, messages and conversations, and export flows.
        ReadBodies "read_bodies",
        /// Decide about pending requests, tag and comment, import, send requests.
        Operate "operate",
        /// Change settings, policies, keys, secrets and tokens; delete recordings; read the audit trail.
        Administer "administer",
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    pub const VIEW: Self = Self::of(Right::View);
    pub const READ_BODIES: Self = Self::of(Right::ReadBodies);
    pub const OPERATE: Self = Self::of(Right::Operate);
    pub const ADMINISTER: Self = Self::of(Right::Administer);
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self::VIEW.and(Self::READ_BODIES).and(Self::OPERATE).and(Self::ADMINISTER);

    const fn of(right: Right) -> Self {
        Self(1 << right as u8)
    }

    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Those of `needed` that are missing.
    pub fn missing(self, needed: Self) -> Vec<Right> {
        Self(needed.0 & !self.0).list()
    }

    pub fn list(self) -> Vec<Right> {
        Right::ALL.into_iter().filter(|right| self.contains(Self::of(*right))).collect()
    }
}

labelled_enum! {
    /// The role of a person or a token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Role {
        /// Sees flows without contents.
        Viewer "viewer",
        /// Also decides about pending requests, tags, imports and sends requests.
        Operator "operator",
        /// May do everything.
        Admin "admin",
    }
}

impl Role {
    pub const fn rights(self) -> Rights {
        match self {
            Self::Viewer => Rights::VIEW,
            Self::Operator => Rights::VIEW.and(Rights::OPERATE),
            Self::Admin => Rights::ALL,
        }
    }

    /// The rights of the role, with those to read bodies if they were granted in addition.
    pub const fn rights_with(self, read_bodies: bool) -> Rights {
        let rights = self.rights();
        if read_bodies { rights.and(Rights::READ_BODIES) } else { rights }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Viewer, Self::Operator, Self::Admin];
        let role = all.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| format!("`{text}` is not a role: use viewer, operator or admin"))
    }
}

/// What somebody was recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IdentityKind {
    /// The token in `admin.token`, or a browser session that began with it.
    AdminToken,
    /// A person who logged in at the issuer.
    Person,
    /// A token that a person made for programs of their own.
    PersonalToken,
    /// A token of a program.
    ServiceToken,
}

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub kind: IdentityKind,
    /// As it is shown: a person's name or address, or a token's name.
    pub name: String,
    /// The person, as the issuer names them (`sub`). A personal token has that of its person.
    pub subject: Option<String>,
    /// The id of the token.
    pub token: Option<String>,
    pub role: Role,
    pub rights: Rights,
    /// When a person's session ends.
    pub until: Option<Timestamp>,
    /// The id of the browser session, if it is one.
    pub session: Option<String>,
}

impl Identity {
    pub fn new(kind: IdentityKind, name: String, role: Role, rights: Rights) -> Self {
        Self { kind, name, subject: None, token: None, role, rights, until: None, session: None }
    }

    pub fn of_person(person: &PersonSession, role: Role, rights: Rights) -> Self {
        let subject = Some(person.subject.clone());
        Self { subject, ..Self::new(IdentityKind::Person, person.name.clone(), role, rights) }
    }

    pub fn admin_token() -> Self {
        Self::new(IdentityKind::AdminToken, "admin token".to_owned(), Role::Admin, Rights::ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_a_right_of_their_own_that_only_admins_have_by_role() {
        for (role, read_bodies, rights) in [
            (Role::Viewer, false, vec![Right::View]),
            (Role::Viewer, true, vec![Right::View, Right::ReadBodies]),
            (Role::Operator, false, vec![Right::View, Right::Operate]),
            (Role::Admin, false, Right::ALL.to_vec()),
        ] {
            assert_eq!(role.rights_with(read_bodies).list(), rights, "{role:?}");
        }
        let needed = Rights::OPERATE.and(Rights::READ_BODIES);
        assert_eq!(Role::Operator.rights().missing(needed), [Right::ReadBodies]);
    }
}
