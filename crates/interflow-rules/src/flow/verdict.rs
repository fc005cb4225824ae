//! What a rule decides, whatever the phase, and what that means at a phase. A decision that a phase cannot honour is a
//! denial: a rule that was meant to stop something must not let it pass.

use interflow_types::{EarlyExit, Error, ErrorKind, MessageVerdict, RequestVerdict, Response, TunnelVerdict};

/// The decision of a rule's actions.
#[derive(Debug)]
pub(crate) enum RuleVerdict {
    Continue,
    /// Respond with this in the origin's place.
    Answer(Box<Response>),
    Deny(Error),
    /// Decrypt the tunnel's TLS.
    Intercept,
    /// Pass the tunnel through without inspection.
    Tunnel,
    /// Discard the message.
    Drop,
}

impl RuleVerdict {
    /// The decision for a phase that returns a body: `Ok` goes on with it.
    pub fn into_result(self) -> Result<(), EarlyExit> {
        match self {
            Self::Continue => Ok(()),
            Self::Answer(response) => Err(EarlyExit::Answer(response)),
            Self::Deny(error) => Err(EarlyExit::Deny(error)),
            Self::Intercept => Err(EarlyExit::Deny(unsupported("intercept the connection", "a request"))),
            Self::Tunnel => Err(EarlyExit::Deny(unsupported("pass the connection through", "a request"))),
            Self::Drop => Err(EarlyExit::Deny(unsupported("drop a message", "a request"))),
        }
    }
}

impl From<RuleVerdict> for RequestVerdict {
    fn from(verdict: RuleVerdict) -> Self {
        verdict.into_result().into()
    }
}

impl From<RuleVerdict> for TunnelVerdict {
    fn from(verdict: RuleVerdict) -> Self {
        match verdict {
            RuleVerdict::Continue => Self::Continue,
            RuleVerdict::Intercept => Self::Intercept,
            RuleVerdict::Tunnel => Self::Tunnel,
            RuleVerdict::Deny(error) => Self::Deny(error),
            RuleVerdict::Answer(_) => Self::Deny(unsupported("answer", "a tunnel")),
            RuleVerdict::Drop => Self::Deny(unsupported("drop a message", "a tunnel")),
        }
    }
}

impl From<RuleVerdict> for MessageVerdict {
    fn from(verdict: RuleVerdict) -> Self {
        match verdict {
            RuleVerdict::Continue => Self::Continue,
            RuleVerdict::Drop => Self::Drop,
            RuleVerdict::Deny(error) => Self::Deny(error),
            RuleVerdict::Answer(_) => Self::Deny(unsupported("answer", "a message")),
            RuleVerdict::Intercept => Self::Deny(unsupported("intercept the connection", "a message")),
            RuleVerdict::Tunnel => Self::Deny(unsupported("pass the connection through", "a message")),
        }
    }
}

/// The denial in place of a decision that the phase cannot honour.
fn unsupported(what: &str, place: &str) -> Error {
    let text = format!("a rule decided to {what}, which is impossible for {place}: it was denied");
    Error::new(ErrorKind::StageFailed, text)
}

#[cfg(test)]
mod tests {
    use interflow_types::StatusCode;

    use super::*;

    fn answer() -> RuleVerdict {
        RuleVerdict::Answer(Box::new(Response::full(StatusCode::OK, "text/plain", "x")))
    }

    #[test]
    fn verdict_unsupported_in_a_phase_denies() {
        for unsupported in [RuleVerdict::Intercept, RuleVerdict::Tunnel, RuleVerdict::Drop] {
            assert!(matches!(RequestVerdict::from(unsupported), RequestVerdict::Deny(_)));
        }
        for unsupported in [answer(), RuleVerdict::Drop] {
            assert!(matches!(TunnelVerdict::from(unsupported), TunnelVerdict::Deny(_)));
        }
        for unsupported in [answer(), RuleVerdict::Intercept, RuleVerdict::Tunnel] {
            assert!(matches!(MessageVerdict::from(unsupported), MessageVerdict::Deny(_)));
        }
    }

    #[test]
    fn verdict_supported_in_a_phase_is_kept() {
        assert!(matches!(RequestVerdict::from(answer()), RequestVerdict::Answer(_)));
        assert!(matches!(RequestVerdict::from(RuleVerdict::Continue), RequestVerdict::Continue));
        assert!(matches!(TunnelVerdict::from(RuleVerdict::Intercept), TunnelVerdict::Intercept));
        assert!(matches!(TunnelVerdict::from(RuleVerdict::Tunnel), TunnelVerdict::Tunnel));
        assert!(matches!(MessageVerdict::from(RuleVerdict::Drop), MessageVerdict::Drop));
        assert!(matches!(MessageVerdict::from(RuleVerdict::Continue), MessageVerdict::Continue));
    }
}
