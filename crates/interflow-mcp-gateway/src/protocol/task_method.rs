//! Requests and notifications about tasks.

/// What a client does with a call that goes on: without a session (MCP 2026-07-28, extension tasks), and with one (MCP
/// 2025-11-25, tasks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskMethod {
    Get,
    Update,
    Cancel,
    Result,
}

/// The tasks that the client began, of a version with sessions.
pub(crate) const TASK_LIST: &str = "tasks/list";
/// How a task is, without and with a session.
pub(crate) const TASK_CHANGED: &str = "notifications/tasks";
pub(crate) const TASK_STATUS: &str = "notifications/tasks/status";

impl TaskMethod {
    const STATELESS: [Self; 3] = [Self::Get, Self::Update, Self::Cancel];
    const OF_SESSIONS: [Self; 3] = [Self::Get, Self::Result, Self::Cancel];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "tasks/get",
            Self::Update => "tasks/update",
            Self::Cancel => "tasks/cancel",
            Self::Result => "tasks/result",
        }
    }

    pub fn from_name(name: &str, is_stateless: bool) -> Option<Self> {
        let all = if is_stateless { Self::STATELESS } else { Self::OF_SESSIONS };
        all.into_iter().find(|method| method.name() == name)
    }
}
