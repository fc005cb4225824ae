//! Desktop notifications for pending requests: who wants to reach which host; never a path, a header field or a body.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::{Approvals, PendingRequest};

/// How long requests are batched before a notification.
const BATCH_DELAY: Duration = Duration::from_millis(300);
/// Minimum interval between notifications. Requests in between are shown together.
const MIN_INTERVAL: Duration = Duration::from_secs(3);
/// Timeout of the notification command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of the text, in characters.
const MAX_TEXT_CHARS: usize = 160;

/// Watches pending requests and notifies the desktop, until it is dropped.
pub async fn watch(approvals: Arc<Approvals>) {
    let mut announced: BTreeSet<u64> = BTreeSet::new();
    let mut version = 0;
    loop {
        // Returns at once if something has changed since the last round.
        approvals.waiting.changed_since(version).await;
        // Requests that arrive together share one notification.
        sleep(BATCH_DELAY).await;
        version = approvals.waiting.version();
        let held = approvals.waiting.list();
        let new: Vec<&PendingRequest> = held.iter().filter(|h| !announced.contains(&h.id)).collect();
        if !new.is_empty() && approvals.settings.load().notify {
            announced.extend(new.iter().map(|h| h.id));
            let outcome = timeout(COMMAND_TIMEOUT, show_notification("Interflow asks", &notification_text(&new))).await;
            if let Err(e) = outcome.unwrap_or_else(|e| Err(e.into())) {
                tracing::debug!("cannot show a desktop notification: {e}");
            }
            sleep(MIN_INTERVAL).await;
        }
        // Ids are never reused, so decided ones need not be remembered.
        announced.retain(|id| held.iter().any(|h| h.id == *id));
    }
}

fn notification_text(new: &[&PendingRequest]) -> String {
    let Some(first) = new.first() else { return String::new() };
    let q = &first.question;
    let who = [&q.user, &q.container, &q.process].into_iter().flatten().next().unwrap_or(&q.client);
    let more = if new.len() > 1 { format!(", and {} more", new.len() - 1) } else { String::new() };
    let line = format!("{who} wants to reach {}:{}{more}", q.host, q.port);
    line.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}

/// Runs the desktop's notification command. Texts are passed as arguments or variables, so that nothing in them is
/// executed.
async fn show_notification(title: &str, text: &str) -> std::io::Result<()> {
    let mut command = if cfg!(target_os = "macos") {
        let mut c = Command::new("osascript");
        c.args(["-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)"]);
        // The script is constant; title and text are its arguments.
        c.args(["-e", "end run", title, text]);
        c
    } else if cfg!(windows) {
        let mut c = Command::new("powershell");
        c.args(["-NoProfile", "-NonInteractive", "-Command", WINDOWS]);
        c.env("INTERFLOW_TITLE", title).env("INTERFLOW_TEXT", text);
        c
    } else {
        let mut c = Command::new("notify-send");
        c.args(["--app-name=Interflow", "--urgency=critical", "--expire-time=20000", "--", title, text]);
        c
    };
    let status =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).status().await?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("{status}"))) }
}

const WINDOWS: &str = "Add-Type -AssemblyName System.Windows.Forms; $n = New-Object System.Windows.Forms.NotifyIcon; \
    $n.Icon = [System.Drawing.SystemIcons]::Information; $n.Visible = $true; \
    $n.ShowBalloonTip(10000, $env:INTERFLOW_TITLE, $env:INTERFLOW_TEXT, 'Info'); Start-Sleep -Seconds 3; $n.Dispose()";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PendingQuestion;
    use interflow_types::Timestamp;

    #[test]
    fn notification_contains_only_client_and_host() {
        let held = |id, user: Option<&str>| PendingRequest {
            id,
            question: PendingQuestion {
                user: user.map(str::to_owned),
                process: Some("curl\n".into()),
                container: None,
                client: "127.0.0.1".into(),
                sessions: vec!["s".into()],
                host: "api.test".into(),
                port: 443,
                method: Some("GET".into()),
                path: Some("/bot-secret-token".into()),
                ..PendingQuestion::default()
            },
            waiting: 1,
            flows: Vec::new(),
            since: Timestamp::default(),
            until: Timestamp::default(),
            asked: None,
        };
        assert_eq!(notification_text(&[&held(1, None)]), "curl wants to reach api.test:443");
        let line = notification_text(&[&held(1, Some("claude")), &held(2, None), &held(3, None)]);
        assert_eq!(line, "claude wants to reach api.test:443, and 2 more");
    }
}
