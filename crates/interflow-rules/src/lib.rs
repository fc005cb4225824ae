//! Filters, actions and rule files.
