//! Processes under measurement: started, watched through `/proc`, and ended by their own ids.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::Result;

/// A running process and its descendants; ended when dropped.
pub struct Running {
    child: Child,
    /// From its start until it accepted connections.
    ready: Duration,
}

/// Memory of a process tree in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Sum of the resident set sizes.
    pub rss: u64,
    /// Sum of the proportional set sizes: pages shared by several processes count once.
    pub pss: u64,
    /// Sum of the peaks of the resident set sizes since [`Running::forget_peak`].
    pub peak: u64,
}

impl Running {
    /// Starts a command in a process group of its own, its output going to `log`, and waits until `ready` accepts connections.
    ///
    /// # Errors
    /// When it cannot be started, ends, or does not listen within 180 s; the message holds the end of its log.
    pub fn start(name: &str, mut command: Command, log: &Path, ready: SocketAddr) -> Result<Self> {
        if TcpStream::connect(ready).is_ok() {
            return Err(format!("{name}: somebody else listens on {ready} already").into());
        }
        let out = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let child = command.spawn().map_err(|e| format!("{name}: {command:?}: {e}"))?;
        let begun = Instant::now();
        let mut running = Self { child, ready: Duration::ZERO };
        let until = begun + Duration::from_secs(180);
        while TcpStream::connect(ready).is_err() {
            let ended = running.child.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                let text = fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(12).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!("{name} does not listen on {ready} ({ended:?}):\n{}", tail.join("\n")).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        running.ready = begun.elapsed();
        Ok(running)
    }

    /// From its start until it accepted connections.
    pub const fn ready(&self) -> Duration {
        self.ready
    }

    /// Bytes of the program's file.
    pub fn program_size(&self) -> Option<u64> {
        Some(fs::metadata(format!("/proc/{}/exe", self.child.id())).ok()?.len())
    }

    /// The process and its descendants.
    pub fn tree(&self) -> Vec<u32> {
        tree(self.child.id())
    }

    /// CPU time of the tree so far, ended descendants included.
    pub fn cpu(&self) -> Duration {
        tree_cpu(self.child.id())
    }

    /// What of [`cpu`](Self::cpu) was outside the kernel.
    pub fn user_cpu(&self) -> Duration {
        tree_sum(self.child.id(), |s| s.user)
    }

    /// Memory of the tree now.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for pid in self.tree() {
            memory.rss += kib(&format!("/proc/{pid}/status"), "VmRSS:");
            memory.peak += kib(&format!("/proc/{pid}/status"), "VmHWM:");
            memory.pss += kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
        }
        memory
    }

    /// Begins a new peak of the resident set size.
    pub fn forget_peak(&self) {
        for pid in self.tree() {
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    /// Open file descriptors of the tree.
    pub fn descriptors(&self) -> usize {
        self.tree().iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok()).map(Iterator::count).sum()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Running {
    /// Sends SIGHUP, on which nginx replaces its workers; the former ones close idle connections.
    pub fn reload(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::HUP);
        }
    }

    /// Asks it to end, and waits so long before it is made to.
    pub fn end(mut self, patience: Duration) {
        self.terminate(patience);
    }

    fn terminate(&mut self, patience: Duration) {
        let tree = self.tree();
        let Some(group) = Pid::from_raw(self.child.id().cast_signed()) else { return };
        let _ = kill_process_group(group, Signal::TERM);
        let until = Instant::now() + patience;
        while self.alive() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        for pid in tree.into_iter().skip(1).filter(|p| Stat::of(*p).is_some_and(|s| s.parent == 1)) {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.terminate(Duration::from_secs(5));
    }
}

/// CPU time of this process so far.
pub fn own_cpu() -> Result<Duration> {
    Ok(Stat::of(std::process::id()).ok_or("no /proc/self/stat")?.cpu)
}

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// CPU model, cores, kernel and memory in one line.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|l| l.strip_prefix("model name")).map_or("", |l| l.trim_start_matches(['\t', ' ', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = kib("/proc/meminfo", "MemTotal:") / (1 << 20);
    format!("{} x {model}, {memory} GiB, Linux {}", cores(), kernel.trim())
}

struct Stat {
    parent: u32,
    cpu: Duration,
    user: Duration,
}

impl Stat {
    /// Reads `/proc/PID/stat` (proc(5)): times in clock ticks, of which Linux counts 100 per second.
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        // Its own, and that of descendants that ended.
        let user = ticks(11) + ticks(13);
        let cpu = user + ticks(12) + ticks(14);
        let [cpu, user] = [cpu, user].map(|ticks| Duration::from_millis(ticks * 10));
        Some(Self { parent: fields.get(1)?.parse().ok()?, cpu, user })
    }
}

/// A process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all_processes() {
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(pid) = tree.get(at) {
        tree.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    tree
}

/// CPU time of a process and its descendants so far, ended descendants included.
pub fn tree_cpu(root: u32) -> Duration {
    tree_sum(root, |s| s.cpu)
}

fn tree_sum(root: u32, time: fn(&Stat) -> Duration) -> Duration {
    tree(root).into_iter().filter_map(Stat::of).map(|s| time(&s)).sum()
}

fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// A figure in KiB from a file of `Name:  123 kB` lines.
fn kib(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_even_when_the_name_holds_spaces_and_brackets() {
        let stat = Stat::parse("42 (a) b (c)) S 7 42 42 0 -1 4194304 1 0 0 0 10 20 3 4 20 0 1").unwrap();
        assert_eq!((stat.parent, stat.cpu, stat.user), (7, Duration::from_millis(370), Duration::from_millis(130)));
    }

    #[test]
    fn process_tree_is_measured_and_terminated_together() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let free = listener.local_addr().unwrap();
        drop(listener);
        let log = std::env::temp_dir().join(format!("interflow-bench-test-{}", std::process::id()));
        let mut command = Command::new("python3");
        command.args(["-c", "import socket,subprocess,sys,time; s=socket.create_server(('127.0.0.1',int(sys.argv[1]))); subprocess.Popen(['sleep','60']); time.sleep(60)"]);
        command.arg(free.port().to_string());
        let running = Running::start("test", command, &log, free).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while running.tree().len() < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let tree = running.tree();
        assert_eq!(tree.len(), 2);
        assert!(running.memory().rss > 0 && running.descriptors() > 0);
        drop(running);
        let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists() || zombie(*pid);
        let until = Instant::now() + Duration::from_secs(5);
        while !tree.iter().all(gone) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(tree.iter().all(gone));
        fs::remove_file(log).unwrap();
    }

    fn zombie(pid: u32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
    }
}
