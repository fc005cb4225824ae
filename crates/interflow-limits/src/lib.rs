//! Connection limits and rates; quotas on requests, tokens and dollars of LLM traffic, counted in memory or shared
//! between processes through Redis; and virtual keys.
#![forbid(unsafe_code)]

mod admission;
mod alerts;
mod budget_file;
mod config;
mod connections;
mod counter_store;
mod keys;
mod models;
mod prices;
mod redis;
mod redis_durability;
mod reservation;
mod rules;
mod spend;
mod tags;
mod token_bucket;
mod usage;

pub use admission::{
    AdmissionRejection, LimiterDeps, LimitsError, PreparedLimits, UsageEstimate, UsageLimiter, UsageReservation,
    redis_server,
};
pub use alerts::{AlertSender, AlertStats};
pub use budget_file::BudgetFile;
pub use config::{
    AlertsConfig, CatalogConfig, KeysConfig, QuotaConfig, RuleConfig, SharedFailureMode, SharedQuotaConfig,
    UnpricedModels,
};
pub use connections::{ClientConnectionPermit, ConnectionLimiter, ConnectionLimits, ConnectionRejection};
pub use counter_store::{
    BudgetPeriod, CounterFuture, CounterLimit, CounterRejection, CounterRequest, CounterSnapshot, CounterStore,
    CounterStoreError, CounterTable, CounterValue, MemoryCounterStore, SharedCounterStore, SharedStoreStatus, Spent,
    TakeResult,
};
pub use keys::{
    GroupChange, GroupLevel, KEY_PREFIX, KeyChange, KeyFileError, KeyGroup, KeyRejection, KeyScope, KeyState, KeyStore,
    MCP_SEPARATOR, NewVirtualKey, PlaintextKey, ScopeRequest, ScopeViolation, VirtualKey, VirtualKeyRing, add_key,
    check_mcp_name, hash_key, holds_key, parse_timestamp, revoke_key,
};
pub use keys::{KeyContext, KeyedEndpoint, any_matches, covers_model, matches_model};
pub use models::{ModelListing, ModelView};
pub use prices::{CallCharge, PriceList, PriceListDates};
pub use redis::{NoRedis, RedisConnector, RedisOptions, RedisServer, RedisValues};
pub use redis_durability::budget_losses;
pub use rules::{
    CountBy, MCP_PROVIDER, NAMED_PROVIDERS, Quota, QuotaRules, RateError, RateLimit, RequestAttributes, ServedModel,
    UsageAmount, UsageBounds, names_provider,
};
pub use spend::{SpendBy, SpendDatabase, SpendError, SpendLedger, SpendQuery, SpendReport};
pub use tags::{SHADOW_TAG, TAGS_HEADER, TagSet, parse_tags};
pub use token_bucket::TokenBucket;
pub use usage::{DeploymentUsage, UsageRow, UsageSums, UsageTotals, format_dollars};
