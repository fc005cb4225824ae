//! Why a login at the issuer failed: what the person sees, and what the log says.

use axum::http::StatusCode;

pub(crate) type Result<T, E = LoginError> = std::result::Result<T, E>;

/// A failed login, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginError {
    pub status: StatusCode,
    pub message: String,
    pub remedy: String,
}

impl LoginError {
    /// The configuration of this instance does not fit the issuer.
    pub fn config(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into(), remedy: remedy.into() }
    }

    /// The issuer is down, or what it sent is not accepted.
    pub fn issuer(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, message: message.into(), remedy: remedy.into() }
    }

    /// The browser came back with something that does not belong to its login.
    pub fn request(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), remedy: remedy.into() }
    }

    /// The person may not enter.
    pub fn forbidden(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, message: message.into(), remedy: remedy.into() }
    }
}

impl std::fmt::Display for LoginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.message, self.remedy)
    }
}
