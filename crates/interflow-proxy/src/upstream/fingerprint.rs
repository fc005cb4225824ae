//! Selects the TLS and HTTP/2 fingerprint of an upstream connection: from the configuration, from a stage, or
//! mirrored from the client.

use std::sync::Arc;

use hashlink::LruCache;
use interflow_codec::ClientHello;
use interflow_codec::fingerprint::{ConnectionFingerprint, FingerprintTarget, PROFILES};
use interflow_net::tls::{TlsProfile, TlsProfileOptions};
use interflow_types::{Authority, Error, ErrorKind, HostPatterns, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::config::{ConfigError, FingerprintRule};

/// Bound on cached profiles with an impersonated fingerprint; the least recently used ones go, and with them the
/// connections that they made.
const MAX_PROFILES: usize = 1024;

/// Parses a fingerprint target. `none` stands for Interflow's own fingerprint and yields `None`.
///
/// # Errors
/// As for parsing [`FingerprintTarget`].
pub(crate) fn parse(text: &str) -> Result<Option<FingerprintTarget>, String> {
    if text.trim().eq_ignore_ascii_case("none") { Ok(None) } else { text.parse().map(Some) }
}

/// Checks that this build can send the fingerprint of a rule.
///
/// # Errors
/// The target is invalid or cannot be sent; names the remedy.
pub fn check_fingerprint(text: &str) -> Result<(), String> {
    let fingerprint = match parse(text)? {
        None => return Ok(()),
        // Any fingerprint tells whether this build supports impersonation.
        Some(FingerprintTarget::Mirror) => PROFILES.first().map(|profile| profile.fingerprint()),
        Some(like) => fingerprint_of(&like),
    };
    // Without the platform's roots, because nothing is connected.
    let base = TlsProfile::new(TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() });
    let base = base.map_err(|e| e.to_string())?;
    // A mirrored fingerprint is the client's: what this build cannot send of it is left out.
    let leniently = text.trim().eq_ignore_ascii_case("mirror");
    fingerprint
        .map_or(Ok(()), |f| base.with_fingerprint(text.trim(), f, leniently).map(drop))
        .map_err(|e| e.message().to_owned())
}

/// The configured targets by host, and the profiles built so far.
pub(crate) struct FingerprintRules {
    rules: Vec<(HostPatterns, Option<FingerprintTarget>)>,
    made: Mutex<LruCache<(u64, String), Arc<TlsProfile>>>,
}

impl FingerprintRules {
    pub fn new(rules: &[FingerprintRule]) -> Result<Self, ConfigError> {
        let one = |(i, rule): (usize, &FingerprintRule)| {
            let at = |key: &str| {
                let key_path = format!("upstream.fingerprint[{i}]{key}");
                move |what| ConfigError { place: key_path, what }
            };
            // Parsed here, so that a typing error is reported with its index.
            let like = parse(&rule.profile).map_err(at(".profile"))?;
            Ok((HostPatterns::parse(&rule.hosts).map_err(|e| e.to_string()).map_err(at(".hosts"))?, like))
        };
        let rules = rules.iter().enumerate().map(one).collect::<Result<_, ConfigError>>()?;
        Ok(Self { rules, made: Mutex::new(LruCache::new(MAX_PROFILES)) })
    }

    /// Builds the configured profiles in advance, so that unsupported ones are reported at start.
    pub fn prepare<'a>(&self, bases: impl Iterator<Item = &'a Arc<TlsProfile>>) -> Result<(), ConfigError> {
        for base in bases {
            for (i, (_, like)) in self.rules.iter().enumerate() {
                let wrong =
                    |e: Error| ConfigError { place: format!("upstream.fingerprint[{i}].profile"), what: e.to_string() };
                match like {
                    None => {}
                    // Any fingerprint tells whether this build supports impersonation.
                    Some(FingerprintTarget::Mirror) => {
                        let any = PROFILES.first().map(|p| base.with_fingerprint("mirror", p.fingerprint(), true));
                        any.transpose().map_err(wrong)?;
                    }
                    Some(like) => self.impersonate_now(base, like).map_err(wrong).map(drop)?,
                }
            }
        }
        Ok(())
    }

    fn rule_for(&self, to: &Authority) -> Option<&FingerprintTarget> {
        self.rules.iter().find(|(hosts, _)| hosts.matches(&to.host, to.port)).and_then(|(_, like)| like.as_ref())
    }

    /// Whether the client's own fingerprint is mirrored to this host.
    pub fn mirrors(&self, to: &Authority) -> bool {
        self.rule_for(to) == Some(&FingerprintTarget::Mirror)
    }

    /// The profile with the fingerprint configured for this host.
    pub fn profile_for(&self, to: &Authority, base: Arc<TlsProfile>) -> Arc<TlsProfile> {
        match self.rule_for(to) {
            None | Some(FingerprintTarget::Mirror) => base,
            // Built at start, so that this is a look into the cache.
            Some(like) => or_base(self.impersonate_now(&base, like), to, base),
        }
    }

    /// As [`profile_for`](Self::profile_for), with the trust or client certificate of a stage, for which the profile
    /// may have to be built.
    pub async fn profile_for_override(&self, to: &Authority, base: Arc<TlsProfile>) -> Arc<TlsProfile> {
        match self.rule_for(to) {
            None | Some(FingerprintTarget::Mirror) => base,
            Some(like) => or_base(self.impersonate(&base, like).await, to, base),
        }
    }

    /// The profile with this fingerprint, built off the worker.
    ///
    /// # Errors
    /// It cannot be sent, or this build does not support impersonation.
    pub async fn impersonate(&self, base: &Arc<TlsProfile>, like: &FingerprintTarget) -> Result<Arc<TlsProfile>> {
        let key = (base.id(), like.to_string());
        if let Some(made) = self.made.lock().get(&key) {
            return Ok(Arc::clone(made));
        }
        let Some(fingerprint) = fingerprint_of(like) else { return Ok(Arc::clone(base)) };
        let profile = build_off_worker(base, key.1.clone(), fingerprint, false).await?;
        // Two connections may build the same profile at once; the later one is kept.
        self.made.lock().insert(key, Arc::clone(&profile));
        Ok(profile)
    }

    fn impersonate_now(&self, base: &Arc<TlsProfile>, like: &FingerprintTarget) -> Result<Arc<TlsProfile>> {
        let key = (base.id(), like.to_string());
        if let Some(made) = self.made.lock().get(&key) {
            return Ok(Arc::clone(made));
        }
        let Some(fingerprint) = fingerprint_of(like) else { return Ok(Arc::clone(base)) };
        let profile = base.with_fingerprint(&key.1, fingerprint, false)?;
        self.made.lock().insert(key, Arc::clone(&profile));
        Ok(profile)
    }
}

fn or_base(made: Result<Arc<TlsProfile>>, to: &Authority, base: Arc<TlsProfile>) -> Arc<TlsProfile> {
    made.unwrap_or_else(|error| {
        tracing::error!(%error, host = %to.host, "a fingerprint profile that was built at start can no longer be built");
        base
    })
}

/// The fingerprint of a target; `None` if it is the client's.
fn fingerprint_of(like: &FingerprintTarget) -> Option<ConnectionFingerprint> {
    match like {
        FingerprintTarget::Mirror => None,
        FingerprintTarget::Profile(profile) => Some(profile.fingerprint()),
        FingerprintTarget::Ja3(tls, _) => {
            Some(ConnectionFingerprint { tls: (**tls).clone(), ..ConnectionFingerprint::default() })
        }
    }
}

/// How many threads build profiles at once, in the whole process: each takes milliseconds of a processor.
const MAX_BUILDERS: usize = 4;

static BUILDERS: Semaphore = Semaphore::const_new(MAX_BUILDERS);

/// Builds a profile away from the worker, which serves other connections meanwhile.
async fn build_off_worker(
    base: &Arc<TlsProfile>,
    name: String,
    fingerprint: ConnectionFingerprint,
    leniently: bool,
) -> Result<Arc<TlsProfile>> {
    let failed = |e| Error::new(ErrorKind::Internal, "a fingerprint profile could not be built").with_source(e);
    let base = Arc::clone(base);
    let slot = BUILDERS.acquire().await.map_err(|e| failed(e.to_string()))?;
    let build = move || {
        let _slot = slot;
        base.with_fingerprint(&name, fingerprint, leniently)
    };
    tokio::task::spawn_blocking(build).await.map_err(|e| failed(e.to_string()))?
}

/// A client's fingerprint, and the profiles that mirror it, by the profile they are based on. Connections made with
/// them are not shared with other clients.
#[derive(Default)]
pub(crate) struct ClientFingerprint {
    hello: Option<Arc<ClientHello>>,
    mirrored: tokio::sync::Mutex<Vec<(u64, Arc<TlsProfile>)>>,
}

impl ClientFingerprint {
    pub fn new(hello: Option<Arc<ClientHello>>) -> Self {
        Self { hello, mirrored: tokio::sync::Mutex::default() }
    }

    /// The profile that mirrors this client's fingerprint; `base` if it is unknown.
    ///
    /// # Errors
    /// This build does not support impersonation.
    pub async fn mirror_profile(&self, base: Arc<TlsProfile>, opening: Option<&str>) -> Result<Arc<TlsProfile>> {
        let Some(hello) = &self.hello else { return Ok(base) };
        // Held while a profile is compiled: the requests of one client would otherwise each build it.
        let mut mirrored = self.mirrored.lock().await;
        if let Some((_, profile)) = mirrored.iter().find(|(id, _)| *id == base.id()) {
            return Ok(Arc::clone(profile));
        }
        let fingerprint = ConnectionFingerprint::from_client(hello, opening);
        let profile = build_off_worker(&base, "mirror".to_owned(), fingerprint, true).await?;
        mirrored.push((base.id(), Arc::clone(&profile)));
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_worker_goes_on_while_profiles_are_built() {
        let base =
            TlsProfile::new(TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() }).unwrap();
        let rules = FingerprintRules::new(&[]).unwrap();
        let like = FingerprintTarget::Profile(PROFILES.first().unwrap());
        // As if as many others were being built as may be at once.
        let taken = BUILDERS.acquire_many(MAX_BUILDERS as u32).await.unwrap();
        let mut building = std::pin::pin!(rules.impersonate(&base, &like));
        assert!(building.as_mut().now_or_never().is_none(), "it is built on the worker");
        drop(taken);
        // A build without impersonation says so.
        let built = building.await;
        assert!(built.as_ref().map_or_else(|e| e.to_string().contains("impersonat"), |p| p.fingerprint().is_some()));
    }
}
