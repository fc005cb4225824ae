//! Checks whether the runtimes on this machine trust the CA: each connects to a local TLS server with a leaf certificate,
//! and the server records whether a request arrives.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use interflow_net::ca::CertificateAuthority;
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, accept_tls};
use interflow_types::Host;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::{DoctorFinding, FindingState, finding};

/// Timeout for starting a runtime and one request; Java compiles its source first.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Grace period for the server after the runtime has exited.
const CLOSE_GRACE: Duration = Duration::from_millis(200);

/// A runtime and the command that fetches a URL with it.
#[derive(Deserialize)]
struct RuntimeProbe {
    name: &'static str,
    program: &'static str,
    /// `{url}` and `{dir}` are replaced by the URL and a directory that contains [`JAVA`].
    args: Vec<&'static str>,
    remedy: &'static str,
}

const JAVA: &str = "public class Fetch { public static void main(String[] a) throws Exception { \
                    new java.net.URL(a[0]).openConnection(java.net.Proxy.NO_PROXY).getInputStream().close(); } }";

static RUNTIMES: LazyLock<Vec<RuntimeProbe>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/runtimes.json")).expect("a test reads the file of runtimes")
});

/// What the test server observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// The runtime completed TLS and sent a request: it trusts the CA.
    Request,
    /// The runtime connected but rejected the certificate.
    Refusal,
    /// The runtime did not connect.
    Nothing,
}

/// Tests all installed runtimes concurrently.
pub(super) fn probe_runtimes(ca: &CertificateAuthority, home: &Path) -> Vec<DoctorFinding> {
    let dir = home.join(format!("doctor-{}", std::process::id()));
    let java = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(dir.join("Fetch.java"), JAVA));
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcomes = match (java, built) {
        (Ok(()), Ok(runtime)) => runtime.block_on(async {
            let dir = &dir;
            let probes = RUNTIMES.iter().map(|runtime| async move { (runtime, probe(runtime, ca, dir).await) });
            futures_util::future::join_all(probes).await
        }),
        _ => Vec::new(),
    };
    let _ = std::fs::remove_dir_all(&dir);
    outcomes.into_iter().filter_map(|(runtime, seen)| finding_for(runtime, seen?)).collect()
}

fn finding_for(runtime: &RuntimeProbe, seen: ProbeOutcome) -> Option<DoctorFinding> {
    match seen {
        ProbeOutcome::Request => Some(finding(runtime.name, FindingState::Good, "trusts the CA")),
        ProbeOutcome::Refusal => {
            let text = format!("does not trust the CA: {}; `interflow exec` for one command", runtime.remedy);
            Some(finding(runtime.name, FindingState::Notice, text))
        }
        // Skip libraries that are not installed.
        ProbeOutcome::Nothing if runtime.name != runtime.program => None,
        ProbeOutcome::Nothing => {
            let text = format!("could not be tested; {}", runtime.remedy);
            Some(finding(runtime.name, FindingState::Notice, text))
        }
    }
}

/// `None` if the program is not installed.
async fn probe(runtime: &RuntimeProbe, ca: &CertificateAuthority, dir: &Path) -> Option<ProbeOutcome> {
    let listener = TcpListener::bind("127.0.0.1:0").await.ok()?;
    let addr = listener.local_addr().ok()?;
    let fill = |arg: &&str| arg.replace("{url}", &format!("https://{addr}/")).replace("{dir}", &dir.to_string_lossy());
    let mut command = Command::new(runtime.program);
    command.args(runtime.args.iter().map(fill)).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Connect directly: a proxy would present its own certificate.
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.env("GIT_TERMINAL_PROMPT", "0");
    let mut child = command.spawn().ok()?;
    let serve = serve(listener, ca, Host::Ip(addr.ip()));
    tokio::pin!(serve);
    let outcome = tokio::time::timeout(PROBE_TIMEOUT, async {
        tokio::select! {
            outcome = &mut serve => return outcome,
            _ = child.wait() => {}
        }
        // The request may arrive a moment after the process has ended.
        tokio::time::timeout(CLOSE_GRACE, &mut serve).await.unwrap_or(ProbeOutcome::Nothing)
    });
    Some(outcome.await.unwrap_or(ProbeOutcome::Nothing))
}

async fn serve(listener: TcpListener, ca: &CertificateAuthority, host: Host) -> ProbeOutcome {
    let tls = Arc::clone(&ca.server_tls(&host, Alpn::Http1));
    let Ok((tcp, _)) = listener.accept().await else { return ProbeOutcome::Nothing };
    let Ok((mut io, _)) = accept_tls(IoStream::from(tcp), &tls, PROBE_TIMEOUT).await else {
        return ProbeOutcome::Refusal;
    };
    // In TLS 1.3 a client may reject the certificate after the server has finished the handshake, so only a request
    // proves trust.
    let mut start = [0; 4];
    if io.read_exact(&mut start).await.is_err() {
        return ProbeOutcome::Refusal;
    }
    let _ = io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let _ = io.shutdown().await;
    ProbeOutcome::Request
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn curl(args: &'static [&'static str]) -> RuntimeProbe {
        RuntimeProbe { name: "curl", program: "curl", args: args.to_vec(), remedy: "" }
    }

    #[tokio::test]
    async fn client_is_probed_as_trusting_or_refusing_the_ca() {
        if std::process::Command::new("curl").arg("-V").output().is_err() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open_or_create(dir.path()).unwrap();
        let with_ca = curl(&["-q", "-s", "--cacert", "{dir}/ca.pem", "{url}"]);
        assert_eq!(probe(&with_ca, &ca, dir.path()).await, Some(ProbeOutcome::Request));
        let without_ca = curl(&["-q", "-s", "--cacert", "/dev/null", "--capath", "/dev/null", "{url}"]);
        assert_ne!(probe(&without_ca, &ca, dir.path()).await, Some(ProbeOutcome::Request));
        let refuses = curl(&["-q", "-s", "--cacert", "{dir}/other/ca.pem", "{url}"]);
        CertificateAuthority::open_or_create(&dir.path().join("other")).unwrap();
        assert_eq!(probe(&refuses, &ca, dir.path()).await, Some(ProbeOutcome::Refusal));
    }

    #[tokio::test]
    async fn missing_runtime_and_runtime_without_a_request_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open_or_create(dir.path()).unwrap();
        let missing = RuntimeProbe { name: "x", program: "interflow-no-such-program", args: Vec::new(), remedy: "" };
        assert_eq!(probe(&missing, &ca, dir.path()).await, None);
        let silent = RuntimeProbe { name: "true", program: "true", args: Vec::new(), remedy: "" };
        assert_eq!(probe(&silent, &ca, dir.path()).await, Some(ProbeOutcome::Nothing));
    }

    #[test]
    fn a_runtime_that_refuses_gets_a_remedy() {
        for runtime in RUNTIMES.iter() {
            let finding = finding_for(runtime, ProbeOutcome::Refusal).unwrap();
            assert!(
                finding.state == FindingState::Notice && finding.text.contains("`interflow ca "),
                "{}",
                finding.text
            );
        }
        assert!(
            finding_for(&RUNTIMES[4], ProbeOutcome::Nothing).is_none()
                && finding_for(&RUNTIMES[0], ProbeOutcome::Nothing).is_some()
        );
    }
}
