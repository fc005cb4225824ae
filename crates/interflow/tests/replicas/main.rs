//! Replicas of the program with one PostgreSQL: their recording, what they hold, spend and allow, and their settings.
//!
//! Needs PostgreSQL, which `make test` installs where it can. Without it these tests print a note and return.
#![cfg(unix)]

mod accounts;
mod archive;
mod faults;
mod identity;
mod mcp;
mod pending;
mod replica;
mod running;
mod settings;
mod spend;
mod store;
