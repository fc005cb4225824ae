//! The rows of the table: the newest flows of the query in the order in which they began, and the selected one.

use interflow_store::{FlowState, FlowSummary};
use interflow_types::FlowId;

/// Rows in memory. Beyond it, the oldest are dropped, and no older ones are loaded.
pub const MAX_ROWS: usize = 10_000;

#[derive(Default)]
pub struct FlowList {
    /// In ascending order of ids, which is that of their beginnings.
    rows: Vec<FlowSummary>,
    selected: Option<FlowId>,
    /// Whether the selection stays on the newest row.
    following: bool,
    /// The first visible row.
    top: usize,
    /// Whether there are older flows than the first row.
    pub has_older: bool,
}

impl FlowList {
    pub fn new() -> Self {
        Self { following: true, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub const fn is_following(&self) -> bool {
        self.following
    }

    pub fn oldest(&self) -> Option<FlowId> {
        self.rows.first().map(|f| f.id)
    }

    pub fn selected(&self) -> Option<&FlowSummary> {
        self.rows.get(self.selected_index()?)
    }

    pub fn selected_index(&self) -> Option<usize> {
        let id = self.selected?;
        // A row that was dropped is replaced by the next one.
        Some(self.rows.partition_point(|f| f.id < id).min(self.rows.len().checked_sub(1)?))
    }

    /// Adds flows, and replaces those that are there.
    pub fn merge(&mut self, flows: Vec<FlowSummary>) {
        for flow in flows {
            match self.rows.binary_search_by_key(&flow.id, |f| f.id) {
                // A page may have been read before an event that came first: a flow that ended does not open again.
                Ok(at) if flow.state == FlowState::Open && self.rows[at].state != FlowState::Open => {}
                Ok(at) => self.rows[at] = flow,
                Err(at) => {
                    // Nearly always at the end.
                    self.rows.insert(at, flow);
                    if at < self.top {
                        self.top += 1;
                    }
                }
            }
        }
        let excess = self.rows.len().saturating_sub(MAX_ROWS);
        if excess > 0 {
            self.rows.drain(..excess);
            self.top = self.top.saturating_sub(excess);
            self.has_older = true;
        }
        if self.following || self.selected.is_none() {
            self.selected = self.rows.last().map(|f| f.id);
        }
    }

    /// Drops the rows before a flow, unless that is known: then nothing is missing between it and them.
    pub fn drop_behind_gap(&mut self, first: FlowId) {
        if let Err(at) = self.rows.binary_search_by_key(&first, |f| f.id)
            && at > 0
        {
            self.rows.drain(..at);
            self.top = 0;
            self.has_older = true;
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Moves the selection. From the newest row on, it follows new ones.
    pub fn move_by(&mut self, rows: isize) {
        let Some(at) = self.selected_index() else { return };
        self.select(at.saturating_add_signed(rows));
    }

    pub fn select(&mut self, index: usize) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let index = index.min(last);
        self.selected = Some(self.rows[index].id);
        self.following = index == last;
    }

    /// The visible rows for this height, scrolled so that the selection is among them, and the first one's index.
    pub fn window(&mut self, height: usize) -> (usize, &[FlowSummary]) {
        let at = self.selected_index().unwrap_or_default();
        let highest = self.rows.len().saturating_sub(height);
        self.top = self.top.max((at + 1).saturating_sub(height)).min(at).min(highest);
        (self.top, &self.rows[self.top..(self.top + height).min(self.rows.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_store::FlowRecord;
    use interflow_types::{EntryKind, Scheme, Timestamp};

    fn flow(second: u64, state: FlowState) -> FlowSummary {
        let at = Timestamp::from_micros(1_700_000_000_000_000 + second * 1_000_000);
        let mut row =
            FlowRecord::new(FlowId::new(at), at, EntryKind::Absolute, Scheme::Http, "a.test:80".parse().unwrap());
        row.state = state;
        row.summary(at)
    }

    fn list(n: u64) -> FlowList {
        let mut list = FlowList::new();
        list.merge((0..n).map(|s| flow(s, FlowState::Complete)).collect());
        list
    }

    #[test]
    fn selection_follows_the_newest_row_until_it_is_moved() {
        let mut list = list(3);
        list.merge(vec![flow(9, FlowState::Open)]);
        assert_eq!((list.selected_index(), list.is_following()), (Some(3), true));
        list.move_by(-2);
        let chosen = list.selected().unwrap().id;
        list.merge(vec![flow(10, FlowState::Open), flow(0, FlowState::Complete)]);
        assert_eq!((list.selected().unwrap().id, list.is_following()), (chosen, false));
        list.select(usize::MAX);
        assert!(list.is_following());
    }

    #[test]
    fn ended_flow_is_not_opened_again_by_an_older_state() {
        let mut list = FlowList::new();
        let ended = flow(1, FlowState::Complete);
        list.merge(vec![FlowSummary { state: FlowState::Open, ..ended.clone() }]);
        list.merge(vec![ended.clone()]);
        list.merge(vec![FlowSummary { state: FlowState::Open, ..ended }]);
        assert_eq!((list.len(), list.selected().unwrap().state), (1, FlowState::Complete));
    }

    #[test]
    fn rows_are_bounded_and_the_oldest_dropped() {
        let mut list = list(MAX_ROWS as u64 + 5);
        assert_eq!((list.len(), list.has_older), (MAX_ROWS, true));
        list.select(0);
        list.merge(vec![flow(1_000_000, FlowState::Open)]);
        assert_eq!(list.selected_index(), Some(0), "the dropped row's place is taken by the next");
    }

    #[test]
    fn rows_behind_a_gap_are_dropped() {
        let mut list = list(5);
        let known = list.rows[3].id;
        list.drop_behind_gap(known);
        assert_eq!((list.len(), list.has_older), (5, false), "nothing is missing");
        list.drop_behind_gap(flow(9, FlowState::Open).id);
        assert_eq!((list.len(), list.has_older), (0, true));
    }

    #[test]
    fn window_keeps_the_selection_visible() {
        let mut list = list(100);
        assert_eq!(list.window(10).0, 90);
        list.move_by(-20);
        assert_eq!(list.window(10).0, 79);
        list.move_by(5);
        assert_eq!(list.window(10).0, 79, "no scrolling without need");
        assert_eq!(list.window(200).0, 0);
    }
}
