//! Name resolution with a cache.
