//! `interflow top`: the flows of the running instance in the terminal, as they happen. A client of its admin API.

mod app;
mod client;
mod command;
mod draw;
mod edit;
mod flow_list;
mod hold_rule;
mod key_reader;
mod keys;
mod pane;
mod pending;
mod query_input;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod wrap;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_archive::text::clean_lines;
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use jiff::tz::TimeZone;
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::app::{TopApp, TopEvent};
use self::client::TopClient;
use self::key_reader::KeyReader;
use self::terminal::TerminalSession;
use super::flows::{QueryArgs, open};
use super::output::print;
use crate::{CliError, Result};

/// Events that may wait for the screen.
const MAX_WAITING: usize = 256;
/// How long events are gathered before the screen is drawn again.
const FRAME: Duration = Duration::from_millis(30);
/// Interval at which clocks and the size of the terminal are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Threads for requests to the instance; further ones wait.
const MAX_REQUESTS: usize = 8;
/// Bytes of text that terminals take for their clipboard.
const MAX_CLIPBOARD: usize = 50_000;

#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    select: QueryArgs,
}

/// Shows the flows until the operator quits.
pub fn run(args: &TopArgs, home: &DataDir) -> Result<()> {
    let query = open::query(&args.select.query).map(|_| args.select.query.join(" "))?;
    require_terminal()?;
    // An instance that goes later is waited for; without one at the start, the operator probably means another.
    InstanceApi::require(home)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_REQUESTS)
        .build()
        .map_err(|e| format!("the runtime could not be started: {e}"))?;
    let mut app = TopApp::new(query);
    let session = TerminalSession::enter().map_err(terminal_failed)?;
    let shown = runtime.block_on(show(&mut app, &session, Arc::new(home.clone())));
    drop(session);
    // Requests under way are not waited for.
    runtime.shutdown_background();
    for command in &app.copied {
        print(&format!("{}\n", clean_lines(command.trim_end())));
    }
    shown.map_err(terminal_failed)
}

fn require_terminal() -> Result<()> {
    let why = if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        "standard input and output are not a terminal"
    } else if std::env::var_os("TERM").is_some_and(|t| t == "dumb") {
        "the terminal (TERM=dumb) has no cursor that can be moved"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!(
        "{why}: `interflow flows tail` prints flows as they complete, `interflow pending list` what waits for a decision"
    )))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn terminal_failed(error: io::Error) -> CliError {
    CliError::Failed(format!("the terminal failed: {error}"))
}

async fn show(app: &mut TopApp, session: &TerminalSession, home: Arc<DataDir>) -> io::Result<()> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let (zone, mut screen) = (TimeZone::system(), session.screen(colour)?);
    let (sink, mut events) = mpsc::channel(MAX_WAITING);
    let keys = KeyReader::start(sink.clone());
    tokio::spawn(watch_signals(sink.clone()));
    let client = TopClient::start(&home, app.query.clone(), app.generation, sink);
    while !app.quit {
        screen.draw(|frame| draw::draw(frame, app, &zone))?;
        if let Some(text) = app.clipboard.take() {
            copy(&text)?;
        }
        let event = tokio::select! {
            event = events.recv() => event.unwrap_or(TopEvent::Quit),
            () = sleep(TICK) => TopEvent::Redraw,
        };
        if !matches!(event, TopEvent::Key(_) | TopEvent::Quit) {
            sleep(FRAME).await;
        }
        let more = std::iter::from_fn(|| events.try_recv().ok()).take(MAX_WAITING);
        for event in std::iter::once(event).chain(more) {
            app.update(event).into_iter().for_each(|command| client.run(command));
        }
        if let Some(request) = app.edit.take() {
            // What is typed from here on is the editor's.
            keys.pause().await;
            session.suspend();
            let edited = request.run(&home).await;
            session.resume()?;
            keys.resume();
            screen.clear()?;
            match edited {
                Ok(Some(command)) => client.run(command),
                Ok(None) => app.notice = Some(("nothing was changed: it still waits".into(), false)),
                Err(why) => app.notice = Some((why, true)),
            }
        }
    }
    Ok(())
}

/// Signals that would end the process end the screen first, which gives the terminal back.
async fn watch_signals(events: mpsc::Sender<TopEvent>) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
        for mut signal in kinds.into_iter().filter_map(|kind| signal(kind).ok()) {
            let events = events.clone();
            tokio::spawn(async move {
                signal.recv().await;
                let _ = events.send(TopEvent::Quit).await;
            });
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_ok() {
        let _ = events.send(TopEvent::Quit).await;
    }
}

/// Asks the terminal to copy a text (OSC 52), which those without that ignore.
fn copy(text: &str) -> io::Result<()> {
    if text.len() > MAX_CLIPBOARD {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    write!(out, "\u{1b}]52;c;{}\u{7}", STANDARD.encode(text.trim_end()))?;
    out.flush()
}
