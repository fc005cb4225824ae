//! Counts and values on Redis servers, for the limits and the response cache.

mod redis_client;
mod redis_counters;

use interflow_limits::{CounterStore, RedisConnector, RedisOptions, RedisServer, RedisValues};

pub use redis_client::RedisClient;
use redis_counters::RedisCounterStore;

/// The Redis client of the fleet.
pub struct RedisConnections;

impl RedisConnector for RedisConnections {
    fn counters(&self, options: RedisOptions) -> Result<Box<dyn CounterStore>, String> {
        Ok(Box::new(RedisCounterStore::new(options)?))
    }

    fn values(&self, server: &RedisServer, name: &'static str) -> Result<Box<dyn RedisValues>, String> {
        Ok(Box::new(RedisClient::new(server, name)?))
    }
}
