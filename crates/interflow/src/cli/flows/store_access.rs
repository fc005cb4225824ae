//! Write access to the store: through the running instance, or directly if none is running.

use std::io::{self, Read};

use interflow_archive::{self, ArchiveFormat, ImportError};
use interflow_conversations::assembly::MessageHash;
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_query::Query;
use interflow_store::{FlowAnnotation, RecordStore, StoreError};
use interflow_types::FlowId;
use serde_json::json;

use crate::CliError;
use crate::components::record_store;
use crate::instance::config::InterflowConfig;

pub enum StoreAccess {
    Instance(InstanceApi),
    Here(RecordStore),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// New flows.
    pub imported: u64,
    /// Flows that already existed.
    pub present: u64,
    /// Number of skipped entries.
    pub skipped: u64,
    /// Reasons, up to a limit.
    pub reasons: Vec<String>,
}

impl StoreAccess {
    pub fn open(config: &InterflowConfig, home: &DataDir) -> Result<Self, CliError> {
        if let Some(api) = InstanceApi::for_instance(home)? {
            return Ok(Self::Instance(api));
        }
        home.create()?;
        match record_store::open(config, home) {
            Ok(store) => Ok(Self::Here(store)),
            Err(e @ StoreError::Busy(_)) => Err(CliError::Failed(format!(
                "{e} (an instance without an admin port, such as `interflow exec`, may be the one)"
            ))),
            Err(e) => Err(e.into()),
        }
    }

    /// Deletes the selected flows; returns their number.
    pub fn prune(&self, query: &Query) -> Result<u64, CliError> {
        match self {
            Self::Here(store) => Ok(store.prune(query)?),
            Self::Instance(api) => {
                let input = json!({"query": query.to_string(), "all": query.is_all()});
                Ok(api.post("/flows/prune", &input)?["pruned"].as_u64().unwrap_or_default())
            }
        }
    }

    pub fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<(), CliError> {
        match self {
            Self::Here(store) => Ok(store.annotate(id, change)?),
            Self::Instance(api) => {
                let input =
                    json!({"add_tags": change.add_tags, "remove_tags": change.remove_tags, "comment": change.comment});
                api.patch(&format!("/flows/{id}"), &input).map(drop)
            }
        }
    }

    /// Changes the tags and the comment of a conversation, or of one of its messages.
    pub fn annotate_conversation(
        &self,
        id: &str,
        message: Option<MessageHash>,
        change: FlowAnnotation,
    ) -> Result<(), CliError> {
        match self {
            Self::Here(store) => Ok(store.annotate_conversation(id, message.map(|k| k.0), change)?),
            Self::Instance(api) => {
                let input = json!({
                    "message": message, "add_tags": change.add_tags, "remove_tags": change.remove_tags,
                    "comment": change.comment,
                });
                api.patch(&format!("/conversations/{id}"), &input).map(drop)
            }
        }
    }

    /// Imports the flows of a file, of this format or else by detection.
    pub fn import(&self, file: impl Read, format: Option<ArchiveFormat>) -> Result<ImportCounts, CliError> {
        match self {
            Self::Here(store) => import_locally(store, file, format),
            Self::Instance(api) => {
                let query = format.map(|f| format!("?format={}", f.name())).unwrap_or_default();
                let done = api.upload(&format!("/import{query}"), file)?;
                let count = |name: &str| done[name].as_u64().unwrap_or_default();
                let reasons = done["reasons"].as_array().into_iter().flatten();
                Ok(ImportCounts {
                    imported: count("imported"),
                    present: count("present"),
                    skipped: count("skipped"),
                    reasons: reasons.filter_map(|r| r.as_str().map(str::to_owned)).collect(),
                })
            }
        }
    }
}

fn import_locally(
    store: &RecordStore,
    file: impl Read,
    format: Option<ArchiveFormat>,
) -> Result<ImportCounts, CliError> {
    let mut done = ImportCounts::default();
    let report = interflow_archive::import(format, file, &mut |flow| {
        let new = store.insert(flow).map_err(io::Error::other)?;
        *(if new { &mut done.imported } else { &mut done.present }) += 1;
        Ok(())
    });
    let report = report.map_err(|e: ImportError| CliError::Failed(e.to_string()))?;
    store.flush()?;
    Ok(ImportCounts { skipped: report.skips, reasons: report.skipped, ..done })
}
