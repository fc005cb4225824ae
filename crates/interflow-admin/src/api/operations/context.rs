//! What operations work on: a running instance, or what a command has opened while none runs.

use std::sync::Arc;

use interflow_limits::{PriceList, SpendError, SpendQuery, SpendReport};
use interflow_store::{FlowStore, StoreError};

use crate::error::{ApiError, Result};
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::identity::tokens::ApiTokens;
use crate::records::Records;
use crate::state::SharedState;

/// Builds all conversations anew, and returns the number of exchanges.
pub type RebuildFn = Box<dyn Fn() -> Result<u64, StoreError> + Send + Sync>;
/// Reports spending.
pub type SpendReportFn = Box<dyn Fn(&SpendQuery) -> Result<SpendReport, SpendError> + Send + Sync>;

/// What a command has opened. Operations on anything else fail.
#[derive(Default)]
pub struct OfflineDeps {
    pub store: Option<Arc<dyn FlowStore>>,
    pub rebuild: Option<RebuildFn>,
    pub tokens: Option<ApiTokens>,
    pub spend: Option<SpendReportFn>,
    pub prices: Arc<PriceList>,
}

pub(crate) struct OfflineContext {
    pub records: Records,
    pub rebuild: Option<RebuildFn>,
    pub spend: Option<SpendReportFn>,
    pub token_lifetimes: TokenLifetimes,
    pub prices: Arc<PriceList>,
}

impl OfflineContext {
    pub fn rebuild(&self) -> Result<u64> {
        let rebuild = self.rebuild.as_ref().ok_or_else(|| ApiError::internal("the conversations are not open"))?;
        Ok(rebuild()?)
    }

    pub fn spend(&self, query: &SpendQuery) -> Result<SpendReport, SpendError> {
        let report = self.spend.as_ref().ok_or_else(|| SpendError::File("the ledger is not open".to_owned()))?;
        report(query)
    }
}

#[derive(Clone)]
pub(crate) enum OperationContext {
    Instance(SharedState),
    Offline(Arc<OfflineContext>),
}

impl OperationContext {
    /// # Errors
    /// No instance runs.
    pub fn instance(&self) -> Result<&SharedState> {
        match self {
            Self::Instance(state) => Ok(state),
            Self::Offline(_) => Err(ApiError::internal("this needs a running instance")),
        }
    }

    pub fn records(&self) -> &Records {
        match self {
            Self::Instance(state) => &state.records,
            Self::Offline(opened) => &opened.records,
        }
    }

    pub fn prices(&self) -> Arc<PriceList> {
        match self {
            Self::Instance(state) => state.limits.as_ref().map(|deps| deps.limits.prices()).unwrap_or_default(),
            Self::Offline(opened) => Arc::clone(&opened.prices),
        }
    }

    pub fn token_lifetimes(&self) -> TokenLifetimes {
        match self {
            Self::Instance(state) => state.token_lifetimes,
            Self::Offline(opened) => opened.token_lifetimes,
        }
    }
}
