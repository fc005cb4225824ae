//! A token, or another value that expires: fetched when it is needed, by one fetch for all callers, and kept until shortly
//! before it expires. Failures are remembered for a while, so that an issuer that is down is not asked by each caller.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// For how long values and failures are kept.
#[derive(Clone, Copy, Debug)]
pub struct TokenPolicy {
    /// The lifetime of a value whose issuer names none.
    pub default_lifetime: Duration,
    /// The longest lifetime, whatever the issuer says.
    pub max_lifetime: Duration,
    /// A value is renewed so long before it expires: a request takes time, and clocks differ. At most half of its life.
    pub margin: Duration,
    /// How long a failure is returned without a new attempt.
    pub failure_ttl: Duration,
    /// The same if there is an earlier value, with which callers may go on.
    pub renewal_failure_ttl: Duration,
}

/// What a fetch returns.
#[derive(Clone, Debug)]
pub struct FetchedToken<T> {
    pub value: T,
    /// How long it is valid; `None` if the issuer does not say.
    pub lifetime: Option<Duration>,
}

/// # Cancellation
/// A caller may be dropped at any time: the others go on with the fetch. If all of them are dropped, so is the fetch, and
/// the next caller begins another.
pub struct CachedToken<T, E = String> {
    policy: TokenPolicy,
    state: Arc<Mutex<TokenState<T, E>>>,
}

/// Clones share the value.
impl<T, E> Clone for CachedToken<T, E> {
    fn clone(&self) -> Self {
        Self { policy: self.policy, state: Arc::clone(&self.state) }
    }
}

type Fetch<T, E> = BoxFuture<'static, Result<T, E>>;

struct TokenState<T, E> {
    /// The latest value, however old.
    token: Option<Token<T>>,
    /// The latest failure, with the time until which it is returned.
    failure: Option<(E, Instant)>,
    /// The fetch in progress, as long as a caller waits for it.
    fetch: Option<WeakShared<Fetch<T, E>>>,
}

struct Token<T> {
    value: T,
    renew_at: Instant,
    expires_at: Instant,
}

impl<T, E> CachedToken<T, E>
where
    T: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    pub fn new(policy: TokenPolicy) -> Self {
        Self { policy, state: Arc::new(Mutex::new(TokenState { token: None, failure: None, fetch: None })) }
    }

    /// The value, fetched if there is none that is valid for a while. The fetch has to end by itself. While it fails, a value
    /// that has not expired yet is returned.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get<F>(&self, fetch: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<FetchedToken<T>, E>> + Send + 'static,
    {
        let fetch = {
            let mut state = self.state.lock();
            let now = Instant::now();
            if let Some(token) = state.token.as_ref().filter(|token| token.renew_at > now) {
                return Ok(token.value.clone());
            }
            if let Some(error) = state.remembered_failure(now) {
                return state.unexpired(now).ok_or(error);
            }
            self.join(&mut state, fetch)
        };
        let fetched = fetch.await;
        fetched.or_else(|error| self.state.lock().unexpired(Instant::now()).ok_or(error))
    }

    /// A newer value than the one that is kept, which stays if the fetch fails.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn renew<F>(&self, fetch: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<FetchedToken<T>, E>> + Send + 'static,
    {
        let fetch = {
            let mut state = self.state.lock();
            if let Some(error) = state.remembered_failure(Instant::now()) {
                return Err(error);
            }
            self.join(&mut state, fetch)
        };
        fetch.await
    }

    /// The latest value, however old.
    pub fn latest(&self) -> Option<T> {
        self.state.lock().token.as_ref().map(|token| token.value.clone())
    }

    /// Forgets a value that turned out to be of no use, unless another one took its place.
    pub fn discard(&self, refused: &T)
    where
        T: PartialEq,
    {
        self.state.lock().token.take_if(|token| token.value == *refused);
    }

    /// The fetch in progress, or a new one.
    fn join<F>(&self, state: &mut TokenState<T, E>, fetch: impl FnOnce() -> F) -> Shared<Fetch<T, E>>
    where
        F: Future<Output = Result<FetchedToken<T>, E>> + Send + 'static,
    {
        if let Some(fetch) = state.fetch.as_ref().and_then(WeakShared::upgrade) {
            return fetch;
        }
        let (policy, owner, fetched) = (self.policy, Arc::downgrade(&self.state), fetch());
        let recorded = async move {
            let fetched = fetched.await;
            // Recorded by the fetch, whichever caller drives it.
            if let Some(state) = owner.upgrade() {
                state.lock().record(&policy, &fetched);
            }
            fetched.map(|token| token.value)
        };
        let fetch = recorded.boxed().shared();
        state.fetch = fetch.downgrade();
        fetch
    }
}

impl<T: Clone, E: Clone> TokenState<T, E> {
    fn remembered_failure(&self, now: Instant) -> Option<E> {
        self.failure.as_ref().filter(|(_, until)| *until > now).map(|(error, _)| error.clone())
    }

    fn unexpired(&self, now: Instant) -> Option<T> {
        self.token.as_ref().filter(|token| token.expires_at > now).map(|token| token.value.clone())
    }

    fn record(&mut self, policy: &TokenPolicy, fetched: &Result<FetchedToken<T>, E>) {
        let now = Instant::now();
        self.fetch = None;
        self.failure = None;
        match fetched {
            Ok(FetchedToken { value, lifetime }) => {
                let lifetime = lifetime.unwrap_or(policy.default_lifetime).min(policy.max_lifetime);
                let renew_at = now + lifetime.saturating_sub(policy.margin.min(lifetime / 2));
                self.token = Some(Token { value: value.clone(), renew_at, expires_at: now + lifetime });
            }
            Err(error) => {
                let ttl = if self.token.is_some() { policy.renewal_failure_ttl } else { policy.failure_ttl };
                self.failure = Some((error.clone(), now + ttl));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use futures_util::future::join_all;

    use super::*;

    const POLICY: TokenPolicy = TokenPolicy {
        default_lifetime: Duration::from_secs(300),
        max_lifetime: Duration::from_secs(86_400),
        margin: Duration::from_secs(30),
        failure_ttl: Duration::from_secs(1),
        renewal_failure_ttl: Duration::from_secs(10),
    };

    /// An issuer that takes a second, and counts.
    #[derive(Clone, Default)]
    struct Issuer(Arc<AtomicU32>);

    impl Issuer {
        fn fetch(
            &self,
            lifetime: Option<Duration>,
            fails: bool,
        ) -> impl Future<Output = Result<FetchedToken<u32>, String>> + Send + use<> {
            let count = Arc::clone(&self.0);
            async move {
                let value = count.fetch_add(1, Relaxed) + 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
                if fails { Err(format!("down {value}")) } else { Ok(FetchedToken { value, lifetime }) }
            }
        }

        fn fetches(&self) -> u32 {
            self.0.load(Relaxed)
        }
    }

    fn hour() -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }

    #[tokio::test(start_paused = true)]
    async fn all_callers_share_one_fetch() {
        let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
        let all = join_all((0..50).map(|_| token.get(|| issuer.fetch(hour(), false)))).await;
        assert!(all.iter().all(|value| *value == Ok(1)));
        assert_eq!((token.get(|| issuer.fetch(hour(), false)).await, issuer.fetches()), (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_a_bounded_time() {
        let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
        let begun = Instant::now();
        let all = join_all((0..50).map(|_| token.get(|| issuer.fetch(hour(), true)))).await;
        assert!(all.iter().all(|value| value.as_ref().is_err_and(|e| e == "down 1")));
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "nobody waited for an attempt of another");
        assert!(token.get(|| issuer.fetch(hour(), false)).await.is_err());
        tokio::time::advance(POLICY.failure_ttl).await;
        assert_eq!((token.get(|| issuer.fetch(hour(), false)).await, issuer.fetches()), (Ok(2), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn lifetimes_are_bounded() {
        for (lifetime, valid) in [
            (None, POLICY.default_lifetime - POLICY.margin),
            (Some(Duration::from_secs(u64::MAX)), POLICY.max_lifetime - POLICY.margin),
            (Some(Duration::from_secs(100)), Duration::from_secs(70)),
            // Half of its life.
            (Some(Duration::from_secs(20)), Duration::from_secs(10)),
            (Some(Duration::ZERO), Duration::ZERO),
        ] {
            let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
            assert_eq!(token.get(|| issuer.fetch(lifetime, false)).await, Ok(1));
            if let Some(before) = valid.checked_sub(Duration::from_secs(1)) {
                tokio::time::advance(before).await;
                assert_eq!(token.get(|| issuer.fetch(lifetime, false)).await, Ok(1), "{lifetime:?}");
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert_eq!(token.get(|| issuer.fetch(lifetime, false)).await, Ok(2), "{lifetime:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_cancelled_leaves_the_fetch_to_the_others() {
        let (token, issuer) = (Arc::new(CachedToken::new(POLICY)), Issuer::default());
        let call = || {
            let (token, issuer) = (Arc::clone(&token), issuer.clone());
            tokio::spawn(async move { token.get(|| issuer.fetch(hour(), false)).await })
        };
        let (first, second) = (call(), call());
        tokio::time::sleep(Duration::from_millis(500)).await;
        first.abort();
        assert_eq!((second.await.unwrap(), issuer.fetches()), (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_without_callers_is_dropped() {
        let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
        let half = Duration::from_millis(500);
        assert!(tokio::time::timeout(half, token.get(|| issuer.fetch(hour(), false))).await.is_err());
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_used_until_it_expires_while_it_cannot_be_renewed() {
        let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(1));
        tokio::time::advance(Duration::from_secs(3600) - POLICY.margin).await;
        assert_eq!(token.get(|| issuer.fetch(hour(), true)).await, Ok(1), "it has not expired");
        assert_eq!((token.get(|| issuer.fetch(hour(), true)).await, issuer.fetches()), (Ok(1), 2), "not asked again");
        tokio::time::advance(POLICY.margin).await;
        assert_eq!(token.get(|| issuer.fetch(hour(), true)).await, Err("down 3".to_owned()));
        assert_eq!(token.latest(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_refused_is_fetched_anew_once() {
        let (token, issuer) = (CachedToken::new(POLICY), Issuer::default());
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(1));
        token.discard(&1);
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(2));
        token.discard(&1);
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(2), "another one took its place");
        assert_eq!(token.renew(|| issuer.fetch(hour(), true)).await, Err("down 3".to_owned()));
        assert_eq!(token.get(|| issuer.fetch(hour(), false)).await, Ok(2), "a renewal that fails changes nothing");
    }
}
