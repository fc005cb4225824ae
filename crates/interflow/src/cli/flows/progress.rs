//! A progress bar for operations longer than a second, on terminals only.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar that appears after one second.
pub struct ProgressDisplay {
    what: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl ProgressDisplay {
    pub fn new(what: &'static str) -> Self {
        Self { what, started: Instant::now(), bar: None }
    }

    /// Reports progress; `of` is 0 if the total is unknown.
    pub fn update(&mut self, done: u64, of: u64) {
        if self.bar.is_none() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar = Some(bar(self.what, of));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(of.max(done));
            bar.set_position(done);
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// indicatif draws on stderr, and only if it is a terminal.
fn bar(what: &'static str, of: u64) -> ProgressBar {
    let template = if of > 0 { "{msg} {wide_bar} {pos}/{len} {eta}" } else { "{msg} {spinner} {pos}" };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(of).with_style(style).with_message(what)
}
