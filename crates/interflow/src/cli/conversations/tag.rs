//! `interflow conversations tag`.

use interflow_conversations::assembly::MessageHash;
use interflow_host::data_dir::DataDir;
use serde_json::json;

use super::{ConversationTagArgs, find};
use crate::cli::flows::open_for_reading;
use crate::cli::operations::{OperationId, on_recording};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

/// Changes tags and comment.
pub fn tag(args: &ConversationTagArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let mut change = args.change.annotation("conversations tag ID regression")?;
    let key = |text: &String| {
        u128::from_str_radix(text, 16).map(MessageHash).map_err(|_| {
            CliError::Usage(format!(
                "`{text}` is not the key of a message: `conversations show ID --format json` has them"
            ))
        })
    };
    let message = args.message.as_ref().map(key).transpose()?;
    let store = open_for_reading(config, home)?;
    let id = find(&*store, &args.id)?;
    if let Some(key) = message
        && !store.nodes(&id, false)?.iter().any(|n| n.key == key.0)
    {
        return Err(CliError::Failed(format!("the conversation {id} has no message with this key")));
    }
    drop(store);
    change["message"] = json!(message);
    let annotate = OperationId::AnnotateConversation.call().path(id).body(change);
    on_recording(config, home)?.call(&annotate).map(drop)
}
