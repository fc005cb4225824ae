//! How long API tokens may live.

use std::time::Duration;

use interflow_types::Timestamp;
use interflow_types::units::HumanDuration;

use super::tokens::TokenKind;
use crate::AdminConfig;

/// The longest lives of tokens, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct TokenLifetimes {
    personal: Duration,
    /// `None` if a service's token need not expire.
    service: Option<Duration>,
}

impl TokenLifetimes {
    pub fn new(config: &AdminConfig) -> Self {
        Self { personal: config.personal_token_lifetime.0, service: config.service_token_lifetime.map(|life| life.0) }
    }

    /// # Errors
    /// The token would live longer than one of its kind may.
    pub fn check(self, kind: TokenKind, expires: Option<Timestamp>) -> Result<(), String> {
        let (what, key, longest) = match kind {
            TokenKind::Personal => ("personal", "personal_token_lifetime", Some(self.personal)),
            TokenKind::Service => ("service", "service_token_lifetime", self.service),
        };
        let Some(longest) = longest else { return Ok(()) };
        // `90d` became a time a moment before this.
        let latest = Timestamp::now().after(longest).micros().saturating_add(1_000_000);
        if expires.is_some_and(|at| at.micros() <= latest) {
            return Ok(());
        }
        let longest = HumanDuration(longest);
        Err(format!(
            "a {what} token expires after {longest} at the latest (admin.{key}); give it an expiry, such as 30d"
        ))
    }
}
