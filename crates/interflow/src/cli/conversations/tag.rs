//! `interflow conversations tag`.

use interflow_conversations::assembly::MessageHash;
use interflow_host::data_dir::DataDir;
use interflow_store::{ConversationStore as _, FlowAnnotation};

use super::{ConversationTagArgs, find};
use crate::CliError;
use crate::cli::flows::{StoreAccess, open_for_reading};
use crate::instance::config::InterflowConfig;

/// Changes tags and comment.
pub fn tag(args: &ConversationTagArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    if args.tags.is_empty() && args.comment.is_none() {
        return Err(CliError::Usage(
            "no tags given: `conversations tag ID regression` adds one, --remove removes it, --comment sets the comment"
                .into(),
        ));
    }
    if let Some(bad) = args.tags.iter().find(|t| t.is_empty() || t.contains(char::is_control)) {
        return Err(CliError::Usage(format!("`{}` is not a valid tag", bad.escape_default())));
    }
    let key = |text: &String| {
        u128::from_str_radix(text, 16).map(MessageHash).map_err(|_| {
            CliError::Usage(format!("`{text}` is no message's key: `conversations show ID --format json` has them"))
        })
    };
    let message = args.message.as_ref().map(key).transpose()?;
    let store = open_for_reading(config, home)?;
    let id = find(&store, &args.id)?;
    if let Some(key) = message
        && !store.nodes(&id, false)?.iter().any(|n| n.key == key.0)
    {
        return Err(CliError::Failed(format!("the conversation {id} has no message with this key")));
    }
    drop(store);
    let (add_tags, remove_tags) =
        if args.remove { (Vec::new(), args.tags.clone()) } else { (args.tags.clone(), Vec::new()) };
    let change = FlowAnnotation { add_tags, remove_tags, comment: args.comment.clone() };
    StoreAccess::open(config, home)?.annotate_conversation(&id, message, change)
}
