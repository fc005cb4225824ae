//! `interflow flows tail`: prints flows as they complete, from the running instance's event socket, or else by polling
//! the store.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_query::Query;
use interflow_store::{FlowState, ListOptions, ListOrder, StoreError};
use interflow_types::{FlowId, Timestamp};
use tokio::time::sleep;

use super::table::FlowTable;
use super::{TailArgs, TailFormat, list, open};
use crate::cli::instance::event_socket::{EventSocket, SocketEvent};
use crate::cli::output::ignore_broken_pipe;
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

/// Polling interval of the store.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of newest flows per poll.
const MAX_RECENT: usize = 500;

/// Prints flows until the output is closed.
pub fn tail(args: &TailArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let query = open::query(&args.select.query)?;
    let runtime = crate::runtime()?;
    let table = FlowTable::streaming(false);
    let mut follower =
        FlowFollower { query, form: args.format, table, config, home, seen: BTreeSet::new(), began: Timestamp::now() };
    match runtime.block_on(follower.follow(args.limit)) {
        Err(TailEnd::Enough) => Ok(()),
        Err(TailEnd::Failed(failure)) => Err(failure),
        Ok(never) => match never {},
    }
}

enum TailEnd {
    /// The output was closed.
    Enough,
    Failed(CliError),
}

impl<T: Into<CliError>> From<T> for TailEnd {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

enum NeverReturns {}

struct FlowFollower<'a> {
    query: Query,
    form: TailFormat,
    table: FlowTable,
    config: &'a InterflowConfig,
    home: &'a DataDir,
    /// Recently printed flows.
    seen: BTreeSet<FlowId>,
    /// Flows that completed earlier are ignored, except for the initial ones.
    began: Timestamp,
}

impl FlowFollower<'_> {
    async fn follow(&mut self, first: usize) -> Result<NeverReturns, TailEnd> {
        if self.form == TailFormat::Table {
            self.print(|table, out| table.heading(out))?;
        }
        self.poll_store(Some(first))?;
        loop {
            if let Some(api) = InstanceApi::unprobed(self.home)?
                && let Some(mut socket) = EventSocket::connect(&api, &self.query.to_string(), 0).await
            {
                // Flows that completed while the socket was being opened.
                self.poll_store(None)?;
                while let Some(ids) = next_finished_flows(&mut socket).await {
                    self.show_all(&ids)?;
                }
                interflow_host::errln!("interflow: the instance has gone; waiting for the next one");
            }
            self.poll_store(None)?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Prints the completed flows among these IDs.
    fn show_all(&mut self, ids: &[FlowId]) -> Result<(), TailEnd> {
        let Some(store) = self.store()? else { return Ok(()) };
        for id in ids {
            match store.get(*id) {
                Ok(row) if interflow_store::flow_matches(&*store, &row, &self.query) => self.show(row)?,
                // It was selected by an earlier state, or is gone.
                Ok(_) | Err(StoreError::NotFound(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Prints flows completed since the last poll, or the newest ones initially.
    fn poll_store(&mut self, first: Option<usize>) -> Result<(), TailEnd> {
        let Some(store) = self.store()? else { return Ok(()) };
        let limit = first.unwrap_or(MAX_RECENT);
        let options = ListOptions { query: self.query.clone(), order: ListOrder::Newest, after: None, limit };
        let rows = store.list(&options)?;
        for row in rows.into_iter().rev() {
            let ended = row.started.micros() + row.duration().unwrap_or_default();
            if first.is_some() || ended >= self.began.micros() {
                self.show(row)?;
            }
        }
        Ok(())
    }

    fn show(&mut self, row: interflow_store::FlowRecord) -> Result<(), TailEnd> {
        if row.state == FlowState::Open || !self.seen.insert(row.id) {
            return Ok(());
        }
        while self.seen.len() > MAX_RECENT * 4 {
            self.seen.pop_first();
        }
        let form = self.form;
        self.print(|table, out| match form {
            TailFormat::Table => table.line(out, &row.summary(Timestamp::now())),
            TailFormat::Jsonl => list::json_line(out, &row),
        })
    }

    fn print(&self, write: impl FnOnce(&FlowTable, &mut dyn Write) -> std::io::Result<()>) -> Result<(), TailEnd> {
        let mut out = interflow_host::terminal::stdout();
        match write(&self.table, &mut out).and_then(|()| out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(TailEnd::Enough),
            done => ignore_broken_pipe(done).map_err(TailEnd::Failed),
        }
    }

    /// The store, once it exists.
    fn store(&self) -> Result<Option<RecordStore>, TailEnd> {
        match open::open_for_reading(self.config, self.home) {
            Ok(store) => Ok(Some(store)),
            Err(_) if !self.home.join(&self.config.record.dir).exists() => Ok(None),
            Err(e) => Err(TailEnd::Failed(e)),
        }
    }
}

/// Flow IDs of the next batch; `None` if the socket was closed.
async fn next_finished_flows(socket: &mut EventSocket) -> Option<Vec<FlowId>> {
    loop {
        match socket.next().await? {
            SocketEvent::Flows { flows, .. } => return Some(flows.iter().map(|f| f.id).collect()),
            SocketEvent::Lag => {
                interflow_host::errln!("interflow: too many flows at once; `flows list` shows those left out");
            }
            SocketEvent::Other => {}
        }
    }
}
