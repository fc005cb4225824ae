//! Whom connections to origins are to be taken for: what the configuration wishes by host, what stages wish, and what a
//! client showed of itself.

use std::collections::HashMap;
use std::sync::Arc;

use interflow_flow::{Error, Host, Result};
use interflow_net::tls::{TlsProfile, TlsProfileOptions};
use interflow_wire::ClientHello;
use interflow_wire::fingerprint::{Fingerprint, Likeness, PROFILES};
use parking_lot::Mutex;

use crate::access::HostGlobs;
use crate::config::FingerprintRule;
use crate::settings::ConfigError;

/// Profiles kept under fingerprints of their own. Their number is that of rules; more are made as they are needed, and
/// share no connections.
const MOST: usize = 1024;

/// A wish by its name; `none` is the wish for our own fingerprint.
///
/// # Errors
/// As [`Likeness`] is read.
pub(crate) fn wish(text: &str) -> Result<Option<Likeness>, String> {
    if text.trim().eq_ignore_ascii_case("none") { Ok(None) } else { text.parse().map(Some) }
}

/// Whether this build can send the fingerprint of a rule.
///
/// # Errors
/// A wish that is none, or that cannot be fulfilled, with the remedy.
pub fn check_fingerprint(text: &str) -> Result<(), String> {
    let fingerprint = match wish(text)? {
        None => return Ok(()),
        // Whether fingerprints can be sent at all is seen with any of them.
        Some(Likeness::Mirror) => PROFILES.first().map(interflow_wire::fingerprint::Profile::fingerprint),
        Some(Likeness::Profile(profile)) => Some(profile.fingerprint()),
        Some(Likeness::Ja3(tls, _)) => Some(Fingerprint { tls: *tls, ..Fingerprint::default() }),
    };
    let base = TlsProfile::new(TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() });
    let base = base.map_err(|e| e.to_string())?;
    let leniently = text.trim().eq_ignore_ascii_case("mirror");
    fingerprint
        .map_or(Ok(()), |f| base.disguised(text.trim(), f, leniently).map(drop))
        .map_err(|e| e.message().to_owned())
}

/// The wishes of the configuration, and the profiles made for any wish.
pub(crate) struct Likenesses {
    rules: Vec<(HostGlobs, Option<Likeness>)>,
    made: Mutex<HashMap<(u64, String), Arc<TlsProfile>>>,
}

impl Likenesses {
    pub fn new(rules: &[FingerprintRule]) -> Result<Self, ConfigError> {
        let one = |(i, rule): (usize, &FingerprintRule)| {
            let at = |key: &str| {
                let place = format!("upstream.fingerprint[{i}]{key}");
                move |what| ConfigError { place, what }
            };
            let like = wish(&rule.like).map_err(at(".as"))?;
            Ok((HostGlobs::new(&rule.hosts).map_err(at(".hosts"))?, like))
        };
        let rules = rules.iter().enumerate().map(one).collect::<Result<_, ConfigError>>()?;
        Ok(Self { rules, made: Mutex::default() })
    }

    /// Makes what the configuration wishes for each of these profiles, so that what cannot be had is known at once.
    pub fn prepare<'a>(&self, bases: impl Iterator<Item = &'a Arc<TlsProfile>>) -> Result<(), ConfigError> {
        for base in bases {
            for (i, (_, like)) in self.rules.iter().enumerate() {
                let wrong =
                    |e: Error| ConfigError { place: format!("upstream.fingerprint[{i}].as"), what: e.to_string() };
                match like {
                    None => {}
                    // Whether fingerprints can be sent at all is seen with any of them.
                    Some(Likeness::Mirror) => {
                        let any = PROFILES.iter().take(1).map(|p| base.disguised("mirror", p.fingerprint(), true));
                        any.collect::<Result<Vec<_>>>().map_err(wrong).map(drop)?;
                    }
                    Some(like) => self.disguise(base, like).map_err(wrong).map(drop)?,
                }
            }
        }
        Ok(())
    }

    fn of(&self, host: &Host) -> Option<&Likeness> {
        self.rules.iter().find(|(globs, _)| globs.matches(host)).and_then(|(_, like)| like.as_ref())
    }

    /// Whether each client's own fingerprint goes on to this host.
    pub fn mirrors(&self, host: &Host) -> bool {
        self.of(host) == Some(&Likeness::Mirror)
    }

    /// The profile under the fingerprint that the configuration wishes for this host.
    pub fn dressed(&self, host: &Host, base: Arc<TlsProfile>) -> Arc<TlsProfile> {
        match self.of(host) {
            None | Some(Likeness::Mirror) => base,
            Some(like) => self.disguise(&base, like).unwrap_or_else(|error| {
                tracing::error!(%error, %host, "a fingerprint that could be made before cannot be made now");
                base
            }),
        }
    }

    /// The profile under this fingerprint.
    ///
    /// # Errors
    /// What of it cannot be sent, or that this build sends none.
    pub fn disguise(&self, base: &Arc<TlsProfile>, like: &Likeness) -> Result<Arc<TlsProfile>> {
        let key = (base.id(), like.to_string());
        if let Some(made) = self.made.lock().get(&key) {
            return Ok(Arc::clone(made));
        }
        let fingerprint = match like {
            Likeness::Mirror => return Ok(Arc::clone(base)),
            Likeness::Profile(profile) => profile.fingerprint(),
            Likeness::Ja3(tls, _) => Fingerprint { tls: (**tls).clone(), ..Fingerprint::default() },
        };
        let profile = base.disguised(&key.1, fingerprint, false)?;
        let mut made = self.made.lock();
        if made.len() < MOST {
            made.insert(key, Arc::clone(&profile));
        }
        Ok(profile)
    }
}

/// How a client greeted us, and the profiles made after it. Connections made under them are this client's alone, as its
/// own would be.
#[derive(Default)]
pub(crate) struct Seen {
    hello: Option<Arc<ClientHello>>,
    mirrored: Mutex<Vec<(u64, Arc<TlsProfile>)>>,
}

impl Seen {
    pub fn new(hello: Option<Arc<ClientHello>>) -> Self {
        Self { hello, mirrored: Mutex::default() }
    }

    /// The profile under this client's own fingerprint; as it is where the client showed none.
    ///
    /// # Errors
    /// That this build sends no fingerprints but its own.
    pub fn mirrored(&self, base: Arc<TlsProfile>, opening: Option<&str>) -> Result<Arc<TlsProfile>> {
        let Some(hello) = &self.hello else { return Ok(base) };
        let mut mirrored = self.mirrored.lock();
        if let Some((_, profile)) = mirrored.iter().find(|(id, _)| *id == base.id()) {
            return Ok(Arc::clone(profile));
        }
        let profile = base.disguised("mirror", Fingerprint::of(hello, opening), true)?;
        mirrored.push((base.id(), Arc::clone(&profile)));
        Ok(profile)
    }
}
