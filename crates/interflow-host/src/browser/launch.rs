//! Starts a browser behind the proxy, with a profile that is removed at its end.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use interflow_net::ca::CertificateAuthority;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::find::{BrowserFamily, FoundBrowser};
use super::profile::BrowserProfile;
use super::relay::CredentialRelay;
use super::{chromium, firefox};
use crate::data_dir::DataDir;
use crate::exec::{ProxyLogin, exit_code, not_started, remove_secrets};
use crate::{CliError, Result};

/// How long a browser that was asked to end may take before it is killed.
#[cfg(unix)]
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the end of its messages is kept, in bytes.
const MAX_MESSAGES: usize = 8 << 10;

pub struct BrowserLaunch<'a> {
    pub browser: &'a FoundBrowser,
    pub url: &'a str,
    /// Print nothing while it runs.
    pub quiet: bool,
    /// Further arguments.
    pub args: &'a [String],
    /// End the browser when standard input is closed, which is when the process that started this one has ended.
    pub ends_with_stdin: bool,
}

/// Runs the browser behind this proxy until it ends, or until this process is asked to end; returns its exit code. Its
/// processes are ended and its profile is removed.
///
/// # Errors
/// There is no display, the profile cannot be written, or the browser cannot be started.
pub async fn run_browser(
    launch: &BrowserLaunch<'_>,
    home: &DataDir,
    proxy: SocketAddr,
    login: &ProxyLogin,
) -> Result<u8> {
    let browser = launch.browser;
    require_display(launch.args)?;
    let ca = CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string())?;
    let profile = BrowserProfile::create(home, browser)?;
    let relay = CredentialRelay::start(proxy, login)
        .await
        .map_err(|e| format!("no port can be opened for the browser: {e}"))?;
    let mut arguments = match browser.family {
        BrowserFamily::Chromium => chromium::arguments(profile.path(), relay.address, ca.spki_sha256()),
        BrowserFamily::Firefox => {
            firefox::prepare(profile.path(), relay.address, &ca)?;
            firefox::arguments(profile.path())
        }
    };
    // Behind ours, so that they win.
    arguments.extend(launch.args.iter().cloned());
    arguments.push(launch.url.to_owned());
    let mut ending = EndRequest::listen(launch.ends_with_stdin)?;
    let mut process = BrowserProcess::start(browser, &arguments)?;
    if !launch.quiet {
        crate::errln!("interflow: {} is running; close it or press Ctrl-C to end it", browser.path.display());
    }
    let status = tokio::select! {
        status = process.child.wait() => Some(status.map_err(|e| format!("{} was lost: {e}", browser.name))?),
        () = ending.recv() => None,
    };
    let messages = process.end(status.is_none()).await;
    drop(profile);
    Ok(status.map_or(0, |status| report_failure(status, &messages)))
}

/// Prints what the browser wrote if it failed; returns its exit code.
fn report_failure(status: ExitStatus, messages: &str) -> u8 {
    let code = exit_code(status);
    if code != 0 {
        // Browsers write much that is of no interest; the cause is at the end.
        let lines: Vec<&str> = messages.lines().filter(|l| !l.trim().is_empty()).collect();
        for line in &lines[lines.len().saturating_sub(5)..] {
            crate::errln!("{line}");
        }
        let remedy = chromium::remedy(messages).map(|r| format!(": {r}")).unwrap_or_default();
        crate::errln!("interflow: the browser ended with {code}{remedy}");
    }
    code
}

/// Whether a window can be opened: on Linux, if the variables of a display are set.
pub fn has_display() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(is_set)
}

fn require_display(args: &[String]) -> Result<()> {
    let headless = args.iter().any(|a| a.trim_start_matches('-').starts_with("headless"));
    if headless || has_display() {
        return Ok(());
    }
    Err(CliError::Failed(
        "a browser needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set: run this in a desktop session, or \
         without a window: `interflow browser URL -- --headless`"
            .into(),
    ))
}

/// The browser and the processes that it starts.
struct BrowserProcess {
    child: Child,
    messages: tokio::task::JoinHandle<String>,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl BrowserProcess {
    fn start(browser: &FoundBrowser, arguments: &[String]) -> Result<Self> {
        let mut command = Command::new(&browser.path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::piped()).kill_on_drop(true);
        remove_secrets(command.as_std_mut());
        if browser.family == BrowserFamily::Firefox {
            // Without it, Firefox ignores the preference that keeps it from fetching its settings.
            command.env("MOZ_REMOTE_SETTINGS_DEVTOOLS", "1");
        }
        // A group of its own: it ends as a whole, and Ctrl-C reaches it once only.
        #[cfg(unix)]
        command.process_group(0);
        let program = browser.path.display().to_string();
        let mut child = command.spawn().map_err(|e| not_started(&program, &e))?;
        #[cfg(unix)]
        let group = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let messages = tokio::spawn(last_messages(child.stderr.take()));
        Ok(Self {
            child,
            messages,
            #[cfg(unix)]
            group,
        })
    }

    /// Ends all processes; returns the last messages. `running`: the browser itself has not ended yet.
    async fn end(mut self, running: bool) -> String {
        #[cfg(unix)]
        {
            use rustix::process::{Signal, kill_process_group};
            if let Some(group) = self.group {
                if running {
                    let _ = kill_process_group(group, Signal::TERM);
                    let _ = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await;
                }
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        if running {
            let _ = self.child.start_kill();
            let _ = self.child.wait().await;
        }
        // A process that left the group may still hold the pipe.
        let messages = tokio::time::timeout(Duration::from_millis(500), self.messages).await;
        messages.ok().and_then(Result::ok).unwrap_or_default()
    }
}

async fn last_messages(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut tail = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        tail.extend_from_slice(&buffer[..n]);
        tail.drain(..tail.len().saturating_sub(MAX_MESSAGES));
    }
    String::from_utf8_lossy(&tail).into_owned()
}

/// The end of this process, as signals or its standard input request it.
struct EndRequest {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 3],
    stdin: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl EndRequest {
    fn listen(with_stdin: bool) -> Result<Self, String> {
        #[cfg(unix)]
        let signals = {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).map_err(|e| format!("signals cannot be received: {e}"));
            [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?]
        };
        Ok(Self {
            #[cfg(unix)]
            signals,
            stdin: with_stdin.then(end_of_stdin),
        })
    }

    async fn recv(&mut self) {
        let stdin =
            async { if let Some(end) = &mut self.stdin { drop(end.await) } else { std::future::pending().await } };
        #[cfg(unix)]
        {
            let [int, term, hup] = &mut self.signals;
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
                _ = hup.recv() => {}
                () = stdin => {}
            }
        }
        #[cfg(not(unix))]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = stdin => {}
        }
    }
}

/// By a thread: the runtime would wait for a pending read at its end.
fn end_of_stdin() -> tokio::sync::oneshot::Receiver<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        let _ = ended.send(());
    });
    end
}
