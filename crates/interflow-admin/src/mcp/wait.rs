//! `wait_for_flow`: a call that is answered once a flow has come, or after a time.

use std::time::Duration;

use interflow_store::FlowStore;
use interflow_types::Timestamp;
use serde_json::Value;

use super::arguments::{moment, number};
use super::{flow_tools, tool_result, tools};

const NAME: &str = "wait_for_flow";
/// Interval at which the store is looked at.
pub const WAIT_POLL: Duration = Duration::from_millis(250);
/// Default and longest wait, in seconds. Clients give up on calls that take much longer.
const DEFAULT_WAIT: u64 = 30;
const MAX_WAIT: u64 = 60;

pub struct WaitCall {
    id: Value,
    arguments: Value,
    /// Flows that ended before are not meant.
    began: Timestamp,
    pub timeout: Duration,
}

/// Parses a call of `wait_for_flow`, or returns what is wrong with it; `None` for every other message.
pub fn wait_call(message: &Value) -> Option<Result<WaitCall, Value>> {
    let params = &message["params"];
    if message["method"] != "tools/call" || params["name"] != NAME {
        return None;
    }
    let id = message.get("id").filter(|id| !id.is_null())?.clone();
    let arguments = params["arguments"].clone();
    let began = tools::find(NAME)?.0.check_arguments(&arguments).and_then(|()| moment(&arguments, "since"));
    Some(match began {
        Ok(began) => Ok(WaitCall {
            id,
            timeout: Duration::from_secs(number(&arguments, "timeout", DEFAULT_WAIT, MAX_WAIT) as u64),
            arguments,
            began: began.unwrap_or_else(Timestamp::now),
        }),
        Err(why) => Err(tool_result(&id, Err(why))),
    })
}

impl WaitCall {
    /// The response, if a flow has come, or the query is wrong. May block on the disk.
    pub fn poll(&self, store: &dyn FlowStore) -> Option<Value> {
        match flow_tools::newest_match(store, &self.arguments, self.began) {
            Ok(None) => None,
            Ok(Some(line)) => Some(tool_result(&self.id, Ok(line))),
            Err(why) => Some(tool_result(&self.id, Err(why))),
        }
    }

    /// The response when no flow has come in time.
    pub fn timed_out(&self) -> Value {
        let seconds = self.timeout.as_secs();
        tool_result(&self.id, Ok(format!("no flow of this query ended within {seconds} s; call again to wait on")))
    }
}
