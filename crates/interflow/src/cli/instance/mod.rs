//! Commands that start, control and examine an instance.

pub mod choice;
pub mod control;
pub mod doctor;
pub mod event_socket;
pub mod listen_address;
pub mod open;
pub mod run;
pub mod status;
