//! Requests and notifications about tasks.

use interflow_types::labelled_enum;

labelled_enum! {
    /// What a client does with a call that goes on: without a session (MCP 2026-07-28, extension tasks), and with one (MCP
    /// 2025-11-25, tasks).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum TaskMethod {
        Get "tasks/get",
        Update "tasks/update",
        Cancel "tasks/cancel",
        Result "tasks/result",
    }
}

/// The tasks that the client began, of a version with sessions.
pub(crate) const TASK_LIST: &str = "tasks/list";
/// How a task is, without and with a session.
pub(crate) const TASK_CHANGED: &str = "notifications/tasks";
pub(crate) const TASK_STATUS: &str = "notifications/tasks/status";

impl TaskMethod {
    pub fn from_name(name: &str, is_stateless: bool) -> Option<Self> {
        let other = if is_stateless { Self::Result } else { Self::Update };
        Self::ALL.into_iter().find(|method| method.as_str() == name && *method != other)
    }
}
