//! What `interflow top` asks of the instance.

use interflow_types::{Direction, FlowId};
use serde_json::Value;

use super::hold_rule::{HoldRule, HoldTarget};

/// What the instance is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopCommand {
    List {
        query: String,
        generation: u64,
        before: Option<FlowId>,
    },
    Subscribe {
        query: String,
        generation: u64,
    },
    Pause(bool),
    Check(String),
    Load(FlowId),
    LoadBody {
        id: FlowId,
        side: Direction,
        hex: bool,
    },
    CopyAsCurl(FlowId),
    Replay(FlowId),
    Decide {
        id: String,
        action: &'static str,
    },
    /// A decision with changes.
    Change {
        id: String,
        decision: Value,
    },
    AddHold(HoldTarget),
    RemoveHold(Box<HoldRule>),
}
