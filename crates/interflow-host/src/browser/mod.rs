//! Browsers: opens a URL in that of the desktop, and starts one behind the proxy with a profile of its own.

mod certificate_db;
mod chromium;
mod desktop;
mod find;
mod firefox;
mod launch;
mod profile;
mod relay;

pub use desktop::open;
pub use find::{BrowserFamily, FoundBrowser, find, installed};
pub use launch::{BrowserLaunch, has_display, run_browser};
