//! What rules read of a flow, what they keep with it, what they write of it, and what they decide about it.

pub(crate) mod exec_run;
pub(crate) mod external_changes;
pub(crate) mod fixture;
pub(crate) mod flow_state;
pub(crate) mod json_answers;
pub(crate) mod render;
pub(crate) mod verdict;
pub(crate) mod view;
