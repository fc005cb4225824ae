//! The state of `interflow top`, and how events change it. It draws nothing and sends nothing itself.

use crossterm::event::KeyEvent;
use interflow_store::{FlowRecord, FlowSummary};
use interflow_types::{Direction, FlowId};
use serde_json::Value;

use super::command::TopCommand;
use super::edit::EditRequest;
use super::flow_list::{FlowList, MAX_ROWS};
use super::hold_rule::{self, HoldRule};
use super::pane::{BodyText, FlowPane};
use super::pending::PendingView;
use super::query_input::QueryInput;

/// Copied commands that are printed at the end.
const MAX_COPIED: usize = 20;

pub enum TopEvent {
    Key(KeyEvent),
    /// The terminal has another size, or a clock goes on.
    Redraw,
    Connected,
    Gone,
    Flows {
        generation: u64,
        flows: Vec<FlowSummary>,
    },
    /// The instance left flows out, because this client was too slow.
    Lagged {
        generation: u64,
    },
    /// `GET /stats`
    Stats(Box<Value>),
    /// `GET /pending`
    Pending(Vec<Value>),
    Listed {
        generation: u64,
        /// Whether the page of older flows was asked for, not the newest one.
        older: bool,
        page: Result<FlowPage, String>,
    },
    Checked {
        query: String,
        error: Option<Value>,
    },
    Loaded {
        id: FlowId,
        flow: Result<Box<FlowRecord>, String>,
    },
    Body {
        id: FlowId,
        side: Direction,
        body: Result<BodyText, String>,
    },
    Copied(Result<String, String>),
    /// What a command did, or why it failed.
    Done(Result<String, String>),
    /// A rule was added.
    HoldAdded(Box<HoldRule>),
    /// A rule was taken out again.
    HoldRemoved(String),
    Quit,
}

/// A page of flows, the newest first.
pub struct FlowPage {
    pub flows: Vec<FlowSummary>,
    pub has_older: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Link {
    #[default]
    Connecting,
    Live,
    Gone,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Flows,
    Pending,
    Help,
}

/// Figures of the instance, of the header line.
#[derive(Clone, Default)]
pub struct InstanceFigures {
    pub version: String,
    pub proxy: String,
    pub requests_per_second: Option<f64>,
    pub connections: u64,
    pub errors: u64,
    pub held: u64,
    /// Requests and microseconds since the start, from which the rate comes.
    sample: (u64, u64),
}

#[derive(Default)]
pub struct TopApp {
    pub list: FlowList,
    /// The query, as typed; empty for all flows.
    pub query: String,
    /// Its number, so that flows of an earlier query are told from those of this one.
    pub generation: u64,
    pub input: Option<QueryInput>,
    pub link: Link,
    pub paused: bool,
    pub figures: Option<InstanceFigures>,
    pub pending: PendingView,
    pub screen: Screen,
    pub pane: Option<FlowPane>,
    /// Text of the last line, and whether it is an error.
    pub notice: Option<(String, bool)>,
    /// What was copied, to be printed at the end for terminals that cannot copy.
    pub copied: Vec<String>,
    /// To be copied by the terminal.
    pub clipboard: Option<String>,
    /// To be changed in the operator's editor, which needs the terminal.
    pub edit: Option<EditRequest>,
    /// The rule that was added last.
    pub hold_rule: Option<HoldRule>,
    pub quit: bool,
    /// A page of older flows is being loaded.
    loading_older: bool,
    /// Height of the table in rows, for page keys.
    pub page_height: usize,
}

impl TopApp {
    pub fn new(query: String) -> Self {
        Self { list: FlowList::new(), query, generation: 1, page_height: 1, ..Self::default() }
    }

    /// Takes an event; returns what the instance has to be asked for.
    pub fn update(&mut self, event: TopEvent) -> Vec<TopCommand> {
        match event {
            TopEvent::Key(key) => return self.on_key(key),
            TopEvent::Connected => {
                self.link = Link::Live;
                self.paused = false;
                // What happened while there was no connection.
                return vec![self.list_command(None)];
            }
            TopEvent::Gone => {
                self.link = Link::Gone;
                self.figures = None;
                self.pending.replace(Vec::new());
            }
            TopEvent::Flows { generation, flows } if generation == self.generation => return self.add_flows(flows),
            TopEvent::Lagged { generation } if generation == self.generation => {
                return vec![self.list_command(None)];
            }
            TopEvent::Listed { generation, older, page } if generation == self.generation => self.add_page(older, page),
            TopEvent::Flows { .. } | TopEvent::Lagged { .. } | TopEvent::Listed { .. } | TopEvent::Redraw => {}
            TopEvent::Stats(stats) => self.figures = Some(InstanceFigures::from_stats(&stats, self.figures.as_ref())),
            TopEvent::Pending(items) => self.pending.replace(items),
            TopEvent::Checked { query, error } => {
                if let Some(input) = self.input.as_mut().filter(|i| i.text == query) {
                    input.error = error;
                }
            }
            TopEvent::Loaded { id, flow } => return self.show_loaded(id, flow),
            TopEvent::Body { id, side, body } => {
                if let Some(pane) = self.pane.as_mut().filter(|p| p.id == id) {
                    pane.set_body(side, body);
                }
            }
            TopEvent::Copied(Ok(command)) => {
                self.notice = Some(("copied as curl; printed again when this ends".into(), false));
                if self.copied.len() < MAX_COPIED {
                    self.copied.push(command.clone());
                }
                self.clipboard = Some(command);
            }
            TopEvent::HoldAdded(rule) => {
                self.notice = Some((hold_rule::added(&rule), false));
                self.hold_rule = Some(*rule);
            }
            TopEvent::HoldRemoved(text) => (self.notice, self.hold_rule) = (Some((text, false)), None),
            TopEvent::Done(Ok(text)) => self.notice = Some((text, false)),
            TopEvent::Copied(Err(why)) | TopEvent::Done(Err(why)) => self.notice = Some((why, true)),
            TopEvent::Quit => self.quit = true,
        }
        Vec::new()
    }

    pub fn list_command(&self, before: Option<FlowId>) -> TopCommand {
        TopCommand::List { query: self.query.clone(), generation: self.generation, before }
    }

    /// Selects the flows of another query. The server has found it valid.
    pub fn set_query(&mut self, query: String) -> Vec<TopCommand> {
        self.query = query;
        self.generation += 1;
        self.loading_older = false;
        self.list.clear();
        let subscribe = TopCommand::Subscribe { query: self.query.clone(), generation: self.generation };
        vec![subscribe, self.list_command(None)]
    }

    fn add_flows(&mut self, flows: Vec<FlowSummary>) -> Vec<TopCommand> {
        let open = self.pane.as_ref().map(|p| p.id);
        let changed = flows.iter().any(|f| Some(f.id) == open);
        self.list.merge(flows);
        // The pane shows a flow that goes on as far as it has come.
        open.filter(|_| changed).map(TopCommand::Load).into_iter().collect()
    }

    fn add_page(&mut self, older: bool, page: Result<FlowPage, String>) {
        if older {
            self.loading_older = false;
        }
        match page {
            Ok(page) => {
                // What came without a subscription can be more than a page: rows behind the gap would seem to follow.
                if let Some(oldest) = page.flows.last().filter(|_| !older && page.has_older) {
                    self.list.drop_behind_gap(oldest.id);
                }
                if older || self.list.len() == 0 {
                    self.list.has_older = page.has_older;
                }
                self.list.merge(page.flows);
            }
            Err(why) => self.notice = Some((why, true)),
        }
    }

    /// Loads older flows if the selection has come to the first row.
    pub fn load_older(&mut self) -> Vec<TopCommand> {
        let at_top = self.list.selected_index().is_some_and(|at| at == 0);
        if !at_top || !self.list.has_older || self.loading_older || self.list.len() >= MAX_ROWS {
            return Vec::new();
        }
        self.loading_older = true;
        vec![self.list_command(self.list.oldest())]
    }

    /// Opens the pane of the selected flow, or changes it to that flow.
    pub fn open_pane(&mut self) -> Vec<TopCommand> {
        let Some(flow) = self.list.selected() else { return Vec::new() };
        let tab = self.pane.as_ref().map(|p| p.tab).unwrap_or_default();
        let id = flow.id;
        self.pane = Some(FlowPane::new(id, tab));
        vec![TopCommand::Load(id)]
    }

    fn show_loaded(&mut self, id: FlowId, flow: Result<Box<FlowRecord>, String>) -> Vec<TopCommand> {
        let Some(pane) = self.pane.as_mut().filter(|p| p.id == id) else { return Vec::new() };
        let sides = flow.as_ref().map(|row| pane.bodies_to_load(row)).unwrap_or_default();
        pane.set_flow(flow);
        let hex = pane.hex;
        sides.into_iter().map(|side| TopCommand::LoadBody { id, side, hex }).collect()
    }
}

impl InstanceFigures {
    fn from_stats(stats: &Value, before: Option<&Self>) -> Self {
        let engine = &stats["engine"];
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let sample = (number(&engine["requests"]), number(&stats["uptime"]));
        // Another instance counts from zero.
        let last = before.map(|b| b.sample).filter(|(requests, uptime)| *requests <= sample.0 && *uptime < sample.1);
        let rate = |(requests, uptime): (u64, u64)| (sample.0 - requests) as f64 * 1e6 / (sample.1 - uptime) as f64;
        let errors = engine["errors"].as_array().into_iter().flatten().map(|e| number(&e[1])).sum();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            version: text(&stats["version"]),
            proxy: text(&stats["addresses"]["proxy"][0]),
            requests_per_second: last.map(rate),
            connections: number(&engine["connections_open"]),
            errors,
            held: number(&stats["held"]["approvals"]) + number(&stats["held"]["rules"]),
            sample,
        }
    }
}
