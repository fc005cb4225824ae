//! Sums up flows: by bucket, in total, by name, and those that stand out.

use std::collections::HashMap;

use super::columns::{self, FlowColumns, TextNumbers};
use super::histogram::DurationHistogram;
use super::selection::RowSet;
use super::tally::Tally;
use crate::error::Result;
use crate::overview::{FlowFigures, MAX_BUCKETS, Overview, OverviewOptions, StatusFigures};

/// Entries of each list.
const TOP: usize = 10;
/// Hosts that have a series of their own.
const TOP_SERIES: usize = 5;
/// Distinct status codes that are told apart: all that a server may send.
const MAX_STATUSES: usize = 1000;

/// Totals of a span of time.
#[derive(Default)]
struct Period {
    figures: FlowFigures,
    durations: Option<Box<DurationHistogram>>,
}

impl Period {
    fn add(&mut self, flow: &FlowColumns) {
        let f = &mut self.figures;
        f.requests += 1;
        match (flow.has_failed, flow.status) {
            (true, _) => f.failed += 1,
            (false, 500..) => f.server_errors += 1,
            (false, 400..) => f.client_errors += 1,
            _ => {}
        }
        f.sent = f.sent.saturating_add(flow.sent);
        f.received = f.received.saturating_add(flow.received);
        if let Some(micros) = flow.duration.filter(|_| flow.is_http) {
            self.durations.get_or_insert_default().add(micros);
        }
    }

    fn finish(mut self) -> FlowFigures {
        if let Some(durations) = &self.durations {
            [self.figures.p50, self.figures.p95, self.figures.p99] =
                [0.5, 0.95, 0.99].map(|share| durations.percentile(share));
        }
        self.figures
    }
}

/// The flows with the largest values, by their row numbers.
#[derive(Default)]
struct Largest(Vec<(u64, i64)>);

impl Largest {
    fn add(&mut self, value: u64, seq: i64) {
        // The newer of two equals comes first, so that the list does not depend on the order of adding.
        let new = (value, seq);
        if value == 0 || (self.0.len() == TOP && self.0.last().is_some_and(|least| new <= *least)) {
            return;
        }
        self.0.insert(self.0.partition_point(|other| *other > new), new);
        self.0.truncate(TOP);
    }

    fn seqs(&self) -> Vec<i64> {
        self.0.iter().map(|(_, seq)| *seq).collect()
    }
}

/// The spans of time that are summed up, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub step: u64,
    /// Where the span before begins, if it is compared; `from` otherwise.
    pub compared_from: u64,
}

impl Span {
    /// The span of an overview that begins at `from`.
    pub fn new(from: u64, options: &OverviewOptions) -> Self {
        let to = options.to.max(from.saturating_add(1));
        // More buckets than allowed would make their number a matter of the data's age.
        let least = (to - from).div_ceil(MAX_BUCKETS as u64);
        let wanted = options.step.unwrap_or_else(|| (to - from).div_ceil(options.buckets.max(1) as u64));
        let step = wanted.max(least);
        // Nothing precedes the oldest flow.
        let compare = options.compare && options.from.is_some();
        let compared_from = if compare { from.saturating_sub(to - from) } else { from };
        Self { from, to, step, compared_from }
    }

    pub fn buckets(&self) -> usize {
        (self.to - self.from).div_ceil(self.step) as usize
    }

    /// The bucket of a point in time within the span.
    pub fn bucket(&self, at: u64) -> usize {
        (at.saturating_sub(self.from) / self.step) as usize
    }
}

pub struct Accumulator {
    span: Span,
    buckets: Vec<Period>,
    total: Period,
    previous: Period,
    hosts: Tally,
    users: Tally,
    processes: Tally,
    errors: Tally,
    statuses: HashMap<u16, u64>,
    slowest: Largest,
    largest: Largest,
    /// The numbers of the current block's texts in the four tallies, looked up once per block.
    numbers: Vec<[u32; 4]>,
}

/// No number yet.
const UNKNOWN: u32 = u32::MAX;

impl Accumulator {
    pub fn new(span: Span) -> Self {
        let n = span.buckets();
        Self {
            span,
            buckets: (0..n).map(|_| Period::default()).collect(),
            total: Period::default(),
            previous: Period::default(),
            hosts: Tally::new(n),
            users: Tally::new(0),
            processes: Tally::new(0),
            errors: Tally::new(0),
            statuses: HashMap::new(),
            slowest: Largest::default(),
            largest: Largest::default(),
            numbers: Vec::new(),
        }
    }

    /// Adds the flows of a block that are in the spans of time, and among the wanted rows if these are given.
    pub(crate) fn add_block(&mut self, block: i64, data: &[u8], wanted: Option<&RowSet>) -> Result<()> {
        let (texts, flows) = columns::open(block, data)?;
        self.numbers.clear();
        self.numbers.resize(texts.len(), [UNKNOWN; 4]);
        flows.for_each(|flow| {
            if wanted.is_none_or(|rows| rows.has(flow.seq)) {
                self.add(flow, &texts);
            }
        })
    }

    /// Adds flows that are in the spans of time.
    pub fn add_flows(&mut self, flows: &[FlowColumns], texts: &TextNumbers) {
        let texts = texts.texts();
        self.numbers.clear();
        self.numbers.resize(texts.len(), [UNKNOWN; 4]);
        flows.iter().for_each(|flow| self.add(flow, &texts));
    }

    fn add(&mut self, flow: &FlowColumns, texts: &[&str]) {
        let Span { from, to, compared_from, .. } = self.span;
        if flow.started >= to || flow.started < compared_from {
            return;
        }
        if flow.started < from {
            self.previous.add(flow);
            return;
        }
        let bucket = self.span.bucket(flow.started);
        self.total.add(flow);
        if let Some(period) = self.buckets.get_mut(bucket) {
            period.add(flow);
        }
        let is_error = flow.has_failed || flow.status >= 400;
        let bytes = flow.sent.saturating_add(flow.received);
        let tallies = [&mut self.hosts, &mut self.users, &mut self.processes, &mut self.errors];
        for (i, (tally, text)) in tallies.into_iter().zip([flow.host, flow.user, flow.process, flow.error]).enumerate()
        {
            // Text 0 is none.
            let Some(at) = (text as usize).checked_sub(1) else { continue };
            let (Some(name), Some(numbers)) = (texts.get(at), self.numbers.get_mut(at)) else { continue };
            if numbers[i] == UNKNOWN {
                numbers[i] = tally.number(name);
            }
            tally.add(numbers[i], bucket, is_error, bytes);
        }
        if flow.status > 0 && (self.statuses.len() < MAX_STATUSES || self.statuses.contains_key(&flow.status)) {
            *self.statuses.entry(flow.status).or_default() += 1;
        }
        if let Some(micros) = flow.duration.filter(|_| flow.is_http) {
            self.slowest.add(micros, flow.seq);
        }
        self.largest.add(bytes, flow.seq);
    }

    /// The rows of the flows that stand out: the slowest and the largest.
    pub fn outstanding(&self) -> [Vec<i64>; 2] {
        [self.slowest.seqs(), self.largest.seqs()]
    }

    /// The figures of flows; those of models and of single flows are left to the caller. Also returns the figures of
    /// the span before.
    pub fn finish(self) -> (Overview, FlowFigures) {
        let mut overview = Overview {
            from: self.span.from,
            to: self.span.to,
            step: self.span.step,
            totals: self.total.finish(),
            hosts: self.hosts.top(TOP),
            host_series: self.hosts.top_series(TOP_SERIES),
            users: self.users.top(TOP),
            processes: self.processes.top(TOP),
            errors: self.errors.top(TOP),
            statuses: self.statuses.into_iter().map(|(status, requests)| StatusFigures { status, requests }).collect(),
            ..Overview::default()
        };
        overview.statuses.sort_by(|a, b| b.requests.cmp(&a.requests).then(a.status.cmp(&b.status)));
        overview.statuses.truncate(TOP);
        let series = &mut overview.series;
        for figures in self.buckets.into_iter().map(Period::finish) {
            series.requests.push(figures.requests);
            series.client_errors.push(figures.client_errors);
            series.server_errors.push(figures.server_errors);
            series.failed.push(figures.failed);
            series.sent.push(figures.sent);
            series.received.push(figures.received);
            series.p50.push(figures.p50);
            series.p95.push(figures.p95);
            series.p99.push(figures.p99);
        }
        (overview, self.previous.finish())
    }
}
