//! What keeps the store sound and within its bounds: checks, recovery, retention, disk space.

pub(crate) mod age_clock;
pub(crate) mod checkpoint;
pub mod damage;
pub(crate) mod disk_reserve;
pub(crate) mod disk_space;
pub(crate) mod garbage;
pub(crate) mod garbage_collector;
pub(crate) mod quarantine;
pub(crate) mod recover;
pub(crate) mod retention;
pub(crate) mod size_shares;
pub(crate) mod verify;
