//! CPU time on Linux, for measurements: unlike the time on a clock, it does not depend on other load.

use std::path::{Path, PathBuf};

/// CPU time of this thread in nanoseconds.
pub fn of_thread() -> u64 {
    read(Path::new("/proc/thread-self/schedstat"))
}

/// CPU time in nanoseconds of the threads of a process (its number, or `self`) whose names begin like this.
pub fn of_threads(process: &str, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let of = |task: PathBuf| {
        let comm = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        comm.starts_with(name).then(|| read(&task.join("schedstat")))
    };
    tasks.flatten().filter_map(|task| of(task.path())).sum()
}

fn read(schedstat: &Path) -> u64 {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default()
}
