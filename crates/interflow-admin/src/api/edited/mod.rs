//! What clients edit: files of rules, policies, keys, approvals and settings, each changed as
//! [`EditedFile`](interflow_files::EditedFile) promises, and what is read beside them.

pub(crate) mod approvals;
pub(crate) mod edits;
pub(crate) mod limits;
pub(crate) mod policies;
pub(crate) mod privacy;
pub(crate) mod proposals;
pub(crate) mod rules;
pub(crate) mod settings;
pub(crate) mod shared_settings;
pub(crate) mod spend;
pub(crate) mod teams;
