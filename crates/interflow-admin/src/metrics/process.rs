//! Metrics of the process, under the names that all Prometheus clients use. Without `/proc` there is only the start time.

use std::time::Duration;

use interflow_codec::prometheus::MetricsPage;
use interflow_types::Timestamp;

use super::table;

/// Ticks per second in `/proc/PID/stat`: the kernel's `USER_HZ`, which is 100 on every architecture that Rust's Linux
/// targets run on.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn write(page: &mut MetricsPage, uptime: Duration) {
    let started = Timestamp::now().micros().saturating_sub(uptime.as_micros() as u64);
    // Whole seconds, so that the value is the same in each scrape.
    page.value(&table::PROCESS_START_TIME, started / 1_000_000);
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    if let Some(seconds) = read("stat").as_deref().and_then(cpu_seconds) {
        page.value(&table::PROCESS_CPU, seconds);
    }
    if let Some(status) = read("status") {
        for (field, family, unit) in [
            ("VmRSS:", &table::PROCESS_RESIDENT, 1024),
            ("VmSize:", &table::PROCESS_VIRTUAL, 1024),
            ("Threads:", &table::PROCESS_THREADS, 1),
        ] {
            if let Some(n) = first_number(&status, field) {
                page.value(family, n * unit);
            }
        }
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One of them is that of this directory.
        page.value(&table::PROCESS_OPEN_FDS, open.count().saturating_sub(1));
    }
    if let Some(max) = read("limits").as_deref().and_then(|limits| first_number(limits, "Max open files")) {
        page.value(&table::PROCESS_MAX_FDS, max);
    }
}

/// User and system time. The second field, the program's name, may hold blanks and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS_PER_SECOND)
}

fn first_number(text: &str, field: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(field))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_by_field() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 100 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (cut"), None);
        assert_eq!(first_number("VmPeak:\t 9 kB\nVmRSS:\t    12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(first_number("Max open files            1024    4096    files\n", "Max open files"), Some(1024));
        assert_eq!(first_number("Max open files            unlimited\n", "Max open files"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_of_them_are_known_on_linux() {
        let mut page = MetricsPage::default();
        write(&mut page, Duration::from_secs(10));
        let page = page.into_text();
        for name in
            ["start_time_seconds", "cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "threads"]
        {
            assert!(page.lines().any(|l| l.starts_with(&format!("process_{name} "))), "{name} in\n{page}");
        }
    }
}
