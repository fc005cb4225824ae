//! Limits: how many connections there may be and how fast they come; how many requests, tokens and dollars LLM traffic may
//! take, counted in memory or together with other processes through Redis; and the virtual keys that clients show.
#![forbid(unsafe_code)]

mod config;
mod connections;
mod keys;
mod ledger;
mod limits;
mod prices;
mod rate;
mod rules;
mod saved;
mod usage;

pub use config::{Failure, KeysConfig, QuotaConfig, RuleConfig, SharedConfig};
pub use connections::{ConnectionLimits, Connections, Permit, Refused};
pub use keys::{
    Asked, KeyFileError, KeyRefused, KeyRing, KeyState, KeyStore, NewKey, OutOfScope, PREFIX, Scope, Secret,
    VirtualKey, add, check_hash, hash_of, moment, revoke,
};
pub use ledger::{
    Ask, Counter, Counters, Ledger, LedgerError, Level, MemoryLedger, Period, Reading, RedisLedger, RedisOptions,
    Refusal, SharedLedger, SharedState,
};
pub use limits::{Estimate, Grant, Limits, LimitsError, NotNow, Prepared, secret};
pub use prices::{Price, Prices, PricesAsOf, Tokens};
pub use rate::TokenBucket;
pub use rules::{Per, Quota, Rate, RateError, Rules, Subject, Use};
pub use saved::Saved;
pub use usage::{Sums, UsageBook, UsageRow};
