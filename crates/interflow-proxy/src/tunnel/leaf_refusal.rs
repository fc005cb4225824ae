//! Error messages for clients that refused Interflow's certificate: the reason and the remedy.

use interflow_net::tls::ClientTlsFailure;
use interflow_types::units::HumanDuration;
use interflow_types::{Error, ErrorKind};

use crate::tunnel::pinning_bypass::LeafRefusal;

/// What shows that the client refused the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalEvidence {
    /// An alert, or a handshake that it did not complete.
    Handshake,
    /// It completed the handshake and left without a request. A connection that was opened in advance, or to see
    /// whether the host answers, ends the same way, so this never ends the inspection of later ones.
    Silence,
}

/// Explains why the client probably refused the leaf, and what happens next. The text follows a semicolon in the
/// error and the log.
pub(crate) fn explain(
    refusal: LeafRefusal,
    of_exec: bool,
    protected: Option<&str>,
    evidence: RefusalEvidence,
    pass: HumanDuration,
) -> String {
    match refusal {
        LeafRefusal::Untrusting if of_exec => {
            "it does not trust Interflow's CA, though `interflow exec` started it: it does not read the variables that name \
             the CA, so name the CA in its own settings"
                .to_owned()
        }
        LeafRefusal::Untrusting => {
            "it does not trust Interflow's CA: install the CA (`interflow ca install`), start the program by `interflow \
             exec`, or exclude the host (intercept.exclude)"
                .to_owned()
        }
        LeafRefusal::TookItBefore => {
            "a program with the same TLS fingerprint accepted it before: this may be another one, which does not trust \
             Interflow's CA"
                .to_owned()
        }
        LeafRefusal::Pins { bypassed: true } => format!(
            "it trusts Interflow's CA for other hosts, so it pins this one: for {pass} its TLS to this host is passed through \
             uninspected (`interflow ca retry` ends that)"
        ),
        LeafRefusal::Pins { bypassed: false } => match protected {
            Some(by) => format!(
                "it trusts Interflow's CA for other hosts, so it pins this one. It is not passed through uninspected, since \
                 this host is protected ({by}); exclude it by intercept.never to let it pass"
            ),
            None if evidence == RefusalEvidence::Silence => {
                "it trusts Interflow's CA for other hosts, so it pins this one, or opened a connection that it did not \
                 need. If it pins the host, exclude it (intercept.exclude)"
                    .to_owned()
            }
            None => "it trusts Interflow's CA for other hosts, so it probably pins this one".to_owned(),
        },
    }
}

pub(crate) fn error(failure: ClientTlsFailure, why: &str) -> Error {
    let how = match failure {
        ClientTlsFailure::RefusedLeaf(alert) => {
            format!("the client refused Interflow's certificate (alert {alert}); {why}")
        }
        _ => format!("the client closed the connection right after Interflow's certificate; probably {why}"),
    };
    Error::new(ErrorKind::ClientTls, how).with_source(failure)
}
