//! The `[admin.oidc]` section of the config: the issuer at which people log in, and the roles of their groups.

use interflow_types::config_sections;
use interflow_types::units::HumanDuration;

use crate::identity::{Rights, Role};

/// A group with this name stands for everybody who can log in at the issuer.
const EVERYBODY: &str = "*";

config_sections! {
    /// Login of people at an OpenID Connect issuer, besides the admin token.
    pub struct OidcConfig {
        /// The issuer, exactly as it names itself, such as `https://login.example.com/realms/main`.
        pub issuer: String,
        /// The name of the issuer on the button of the login page; its host if absent.
        pub name: Option<String>,
        /// The id under which Interflow is registered at the issuer.
        pub client_id: String,
        /// The client's secret: `env:NAME` or `file:PATH`, or the text itself. Absent for a public client, which PKCE protects.
        pub client_secret: Option<String>,
        /// Scopes to ask for; `openid` is added if it is missing.
        pub scopes: Vec<String> = ["openid", "profile", "email"].map(str::to_owned).to_vec(),
        /// The claim that lists a person's groups. Dots lead into objects: `realm_access.roles`.
        pub groups_claim: String = "groups".to_owned(),
        /// Groups by role. A person has the highest role of their groups; without any they are refused.
        pub roles: OidcRoles,
        /// Where the issuer sends browsers back, if a proxy stands in front: `https://interflow.example.com/login/callback`. Its
        /// host is accepted like those of `admin.hosts`. Otherwise the address under which the browser reached the login page.
        pub redirect_url: Option<String>,
        /// How long a person stays logged in. Groups are asked for again at each login.
        pub session_duration: HumanDuration = HumanDuration::from_secs(8 * 3600),
        /// How far the clocks of the issuer and of this machine may differ.
        pub clock_leeway: HumanDuration = HumanDuration::from_secs(60),
        /// How long the issuer may take for a response.
        pub timeout: HumanDuration = HumanDuration::from_secs(10),
    }

    /// Groups of the issuer by role; `"*"` stands for everybody who can log in.
    pub struct OidcRoles {
        /// See flows without contents.
        pub viewer: Vec<String>,
        /// Also decide about pending requests, tag, import and send requests.
        pub operator: Vec<String>,
        /// Do everything.
        pub admin: Vec<String>,
        /// Read bodies and conversations, too: a right of its own, in addition to one of the roles.
        pub read_bodies: Vec<String>,
    }
}

impl OidcRoles {
    /// The role and rights of somebody in these groups; `None` without a role.
    pub(crate) fn for_groups(&self, groups: &[String]) -> Option<(Role, Rights)> {
        let has = |listed: &[String]| listed.iter().any(|l| l == EVERYBODY || groups.contains(l));
        let by_rank = [(Role::Admin, &self.admin), (Role::Operator, &self.operator), (Role::Viewer, &self.viewer)];
        let (role, _) = by_rank.into_iter().find(|(_, listed)| has(listed))?;
        Some((role, role.rights_with(has(&self.read_bodies))))
    }

    /// Those of the groups that matter, which a session keeps.
    pub(crate) fn relevant(&self, groups: &[String]) -> Vec<String> {
        let all = [&self.viewer, &self.operator, &self.admin, &self.read_bodies];
        groups.iter().filter(|g| all.iter().any(|listed| listed.contains(g))).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.viewer.is_empty() && self.operator.is_empty() && self.admin.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_role_of_the_groups_applies_and_bodies_need_their_own_group() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let roles = OidcRoles {
            viewer: list(&["*"]),
            operator: list(&["ops"]),
            admin: list(&["root"]),
            read_bodies: list(&["privacy"]),
        };
        for (groups, role, reads) in [
            (&[][..], Role::Viewer, false),
            (&["privacy"], Role::Viewer, true),
            (&["ops"], Role::Operator, false),
            (&["ops", "root"], Role::Admin, true),
        ] {
            assert_eq!(roles.for_groups(&list(groups)), Some((role, role.rights_with(reads))), "{groups:?}");
        }
        let closed = OidcRoles { viewer: Vec::new(), ..roles };
        assert_eq!(closed.for_groups(&list(&["privacy", "other"])), None);
        assert_eq!(closed.relevant(&list(&["privacy", "other"])), ["privacy"]);
    }
}
