//! A bounded cache of values that take long to build, because files are read or TLS profiles compiled for them: each
//! is built once, on a blocking thread, so that the worker's other connections go on meanwhile.

use std::hash::Hash;
use std::sync::Arc;

use hashlink::LruCache;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Values by key; the least recently used one is evicted. The lock is held only to find a slot, never while a value
/// is built.
pub(crate) struct BuildCache<K, V> {
    slots: Mutex<LruCache<K, Arc<OnceCell<V>>>>,
}

impl<K: Eq + Hash, V: Clone + Send + 'static> BuildCache<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self { slots: Mutex::new(LruCache::new(capacity)) }
    }

    /// Returns the value of `key`. The first caller builds it, and concurrent callers wait for that build. An error
    /// is not cached: the next caller builds again.
    pub async fn get_or_build(
        &self,
        key: K,
        build: impl FnOnce() -> Result<V, String> + Send + 'static,
    ) -> Result<V, String> {
        // The map's lock is released at the end of this statement: only the slot's own cell is awaited.
        let slot = Arc::clone(self.slots.lock().entry(key).or_insert_with(Arc::default));
        let built = slot.get_or_try_init(|| async {
            // A panic in `build` arrives here as a join error and is reported like any other build error.
            tokio::task::spawn_blocking(build).await.unwrap_or_else(|e| Err(format!("it could not be built: {e}")))
        });
        built.await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_worker_goes_on_while_a_value_is_built_and_builds_it_once() {
        let cache = Arc::new(BuildCache::new(4));
        let (go, wait) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let cache = cache.clone();
            async move {
                let build = move || wait.recv().map(|()| 1).map_err(|e| e.to_string());
                cache.get_or_build("slow", build).await
            }
        });
        let second = tokio::spawn({
            let cache = cache.clone();
            async move { cache.get_or_build("slow", || Err("built twice".to_owned())).await }
        });
        // This test has one thread: a build on it would wait for ever.
        tokio::task::yield_now().await;
        assert_eq!(cache.get_or_build("other", || Ok(2)).await, Ok(2));
        go.send(()).unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(1)));
    }

    #[tokio::test]
    async fn failures_are_not_kept_and_what_is_used_outlives_what_is_not() {
        let cache = BuildCache::new(4);
        assert_eq!(cache.get_or_build(0, || Err("no".to_owned())).await, Err("no".to_owned()));
        assert_eq!(cache.get_or_build(0, || Ok(7)).await, Ok(7));
        for i in 1..100 {
            cache.get_or_build(i, move || Ok(i)).await.unwrap();
            assert_eq!(cache.get_or_build(0, || Ok(8)).await, Ok(7), "after {i} others");
        }
        assert_eq!(cache.slots.lock().len(), 4);
        assert_eq!(cache.get_or_build(1, || Ok(9)).await, Ok(9), "it was evicted");
    }
}
