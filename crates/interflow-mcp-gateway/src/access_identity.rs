//! Whose an access token of a client is, and who says so.

use std::sync::Arc;

use interflow_types::BoxFuture;

/// Subject and scopes of an access token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessIdentity {
    pub subject: String,
    pub scopes: Vec<String>,
}

/// Why an access token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessRefusal {
    /// Why, for the client.
    InvalidToken(String),
    /// It cannot be checked, because the issuer's keys are not there and cannot be fetched: it may be a good one.
    IssuerUnavailable,
}

/// Checks access tokens of one issuer for one audience.
pub trait AccessTokens: Send + Sync {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AccessIdentity, AccessRefusal>>;
}

/// Makes the check for an issuer and an audience.
pub type AccessTokenSource = Box<dyn Fn(&str, &str) -> Result<Arc<dyn AccessTokens>, String> + Send + Sync>;
