//! Whom connections to origins are to be taken for: what the configuration wishes by host, what stages wish, and what a
//! client showed of itself.

use std::collections::HashMap;
use std::sync::Arc;

use interflow_codec::ClientHello;
use interflow_codec::fingerprint::{ConnectionFingerprint, FingerprintTarget, PROFILES};
use interflow_net::tls::{TlsProfile, TlsProfileOptions};
use interflow_types::{Error, Host, Result};
use parking_lot::Mutex;

use crate::compiled::ConfigError;
use crate::config::FingerprintRule;
use crate::downstream::access::HostGlobs;

/// Profiles kept under fingerprints of their own. Their number is that of rules; more are made as they are needed, and
/// share no connections.
const MAX_PROFILES: usize = 1024;

/// A wish by its name; `none` is the wish for our own fingerprint.
///
/// # Errors
/// As [`FingerprintTarget`] is read.
pub(crate) fn parse(text: &str) -> Result<Option<FingerprintTarget>, String> {
    if text.trim().eq_ignore_ascii_case("none") { Ok(None) } else { text.parse().map(Some) }
}

/// Whether this build can send the fingerprint of a rule.
///
/// # Errors
/// A wish that is none, or that cannot be fulfilled, with the remedy.
pub fn check_fingerprint(text: &str) -> Result<(), String> {
    let fingerprint = match parse(text)? {
        None => return Ok(()),
        // Whether fingerprints can be sent at all is seen with any of them.
        Some(FingerprintTarget::Mirror) => {
            PROFILES.first().map(interflow_codec::fingerprint::FingerprintProfile::fingerprint)
        }
        Some(FingerprintTarget::Profile(profile)) => Some(profile.fingerprint()),
        Some(FingerprintTarget::Ja3(tls, _)) => {
            Some(ConnectionFingerprint { tls: *tls, ..ConnectionFingerprint::default() })
        }
    };
    let base = TlsProfile::new(TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() });
    let base = base.map_err(|e| e.to_string())?;
    let leniently = text.trim().eq_ignore_ascii_case("mirror");
    fingerprint
        .map_or(Ok(()), |f| base.with_fingerprint(text.trim(), f, leniently).map(drop))
        .map_err(|e| e.message().to_owned())
}

/// The wishes of the configuration, and the profiles made for any wish.
pub(crate) struct FingerprintRules {
    rules: Vec<(HostGlobs, Option<FingerprintTarget>)>,
    made: Mutex<HashMap<(u64, String), Arc<TlsProfile>>>,
}

impl FingerprintRules {
    pub fn new(rules: &[FingerprintRule]) -> Result<Self, ConfigError> {
        let one = |(i, rule): (usize, &FingerprintRule)| {
            let at = |key: &str| {
                let place = format!("upstream.fingerprint[{i}]{key}");
                move |what| ConfigError { place, what }
            };
            let like = parse(&rule.like).map_err(at(".as"))?;
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
                    Some(FingerprintTarget::Mirror) => {
                        let any =
                            PROFILES.iter().take(1).map(|p| base.with_fingerprint("mirror", p.fingerprint(), true));
                        any.collect::<Result<Vec<_>>>().map_err(wrong).map(drop)?;
                    }
                    Some(like) => self.impersonate(base, like).map_err(wrong).map(drop)?,
                }
            }
        }
        Ok(())
    }

    fn rule_for(&self, host: &Host) -> Option<&FingerprintTarget> {
        self.rules.iter().find(|(globs, _)| globs.matches(host)).and_then(|(_, like)| like.as_ref())
    }

    /// Whether each client's own fingerprint goes on to this host.
    pub fn mirrors(&self, host: &Host) -> bool {
        self.rule_for(host) == Some(&FingerprintTarget::Mirror)
    }

    /// The profile under the fingerprint that the configuration wishes for this host.
    pub fn profile_for(&self, host: &Host, base: Arc<TlsProfile>) -> Arc<TlsProfile> {
        match self.rule_for(host) {
            None | Some(FingerprintTarget::Mirror) => base,
            Some(like) => self.impersonate(&base, like).unwrap_or_else(|error| {
                tracing::error!(%error, %host, "a fingerprint that could be made before cannot be made now");
                base
            }),
        }
    }

    /// The profile under this fingerprint.
    ///
    /// # Errors
    /// What of it cannot be sent, or that this build sends none.
    pub fn impersonate(&self, base: &Arc<TlsProfile>, like: &FingerprintTarget) -> Result<Arc<TlsProfile>> {
        let key = (base.id(), like.to_string());
        if let Some(made) = self.made.lock().get(&key) {
            return Ok(Arc::clone(made));
        }
        let fingerprint = match like {
            FingerprintTarget::Mirror => return Ok(Arc::clone(base)),
            FingerprintTarget::Profile(profile) => profile.fingerprint(),
            FingerprintTarget::Ja3(tls, _) => {
                ConnectionFingerprint { tls: (**tls).clone(), ..ConnectionFingerprint::default() }
            }
        };
        let profile = base.with_fingerprint(&key.1, fingerprint, false)?;
        let mut made = self.made.lock();
        if made.len() < MAX_PROFILES {
            made.insert(key, Arc::clone(&profile));
        }
        Ok(profile)
    }
}

/// How a client greeted us, and the profiles made after it. Connections made under them are this client's alone, as its
/// own would be.
#[derive(Default)]
pub(crate) struct ClientFingerprint {
    hello: Option<Arc<ClientHello>>,
    mirrored: Mutex<Vec<(u64, Arc<TlsProfile>)>>,
}

impl ClientFingerprint {
    pub fn new(hello: Option<Arc<ClientHello>>) -> Self {
        Self { hello, mirrored: Mutex::default() }
    }

    /// The profile under this client's own fingerprint; as it is where the client showed none.
    ///
    /// # Errors
    /// That this build sends no fingerprints but its own.
    pub fn mirror_profile(&self, base: Arc<TlsProfile>, opening: Option<&str>) -> Result<Arc<TlsProfile>> {
        let Some(hello) = &self.hello else { return Ok(base) };
        let mut mirrored = self.mirrored.lock();
        if let Some((_, profile)) = mirrored.iter().find(|(id, _)| *id == base.id()) {
            return Ok(Arc::clone(profile));
        }
        let profile = base.with_fingerprint("mirror", ConnectionFingerprint::from_client(hello, opening), true)?;
        mirrored.push((base.id(), Arc::clone(&profile)));
        Ok(profile)
    }
}
