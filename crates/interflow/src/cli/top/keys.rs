//! The keys of `interflow top`.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use interflow_types::data_file;
use std::sync::LazyLock;

use super::app::{Screen, TopApp};
use super::command::TopCommand;
use super::hold_rule::HoldTarget;
use super::pane::PaneTab;
use super::query_input::{InputStep, QueryInput};

/// The keys, for the help screen and the documentation.
pub static KEYS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| data_file::records(include_str!("../../../data/keys_of_top.txt")).map(<(_, _)>::from).collect());

impl TopApp {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<TopCommand> {
        if self.input.is_some() {
            return self.on_input_key(key);
        }
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => self.quit = true,
            // Keys that only move; nothing else happens by one that was meant for something else.
            KeyCode::Char('d' | 'u') if control && self.screen == Screen::Flows => return self.on_flow_key(key),
            KeyCode::Char('d' | 'u') if control => self.pending.scroll_by(self.row_step(key).unwrap_or_default()),
            KeyCode::Char(_) if control => {}
            KeyCode::Char('q') => self.quit = true,
            KeyCode::Char('?') => self.toggle(Screen::Help),
            KeyCode::Char('h') => self.toggle(Screen::Pending),
            KeyCode::Char('/') => {
                self.screen = Screen::Flows;
                self.input = Some(QueryInput::new(&self.query));
            }
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                let pause = TopCommand::Pause(self.paused);
                // The newest page fills what the instance could not keep back.
                return if self.paused { vec![pause] } else { vec![pause, self.list_command(None)] };
            }
            KeyCode::Esc if self.screen == Screen::Help => self.screen = Screen::Flows,
            _ => {
                return match self.screen {
                    Screen::Help => Vec::new(),
                    Screen::Pending => self.on_pending_key(key),
                    Screen::Flows => self.on_flow_key(key),
                };
            }
        }
        Vec::new()
    }

    fn toggle(&mut self, screen: Screen) {
        self.screen = if self.screen == screen { Screen::Flows } else { screen };
    }

    fn on_input_key(&mut self, key: KeyEvent) -> Vec<TopCommand> {
        let Some(input) = &mut self.input else { return Vec::new() };
        match input.on_key(key) {
            InputStep::Moved => Vec::new(),
            InputStep::Changed => vec![TopCommand::Check(input.text.clone())],
            InputStep::Cancel => {
                self.input = None;
                Vec::new()
            }
            // An invalid query stays to be corrected.
            InputStep::Apply if input.error.is_some() => Vec::new(),
            InputStep::Apply => {
                let query = input.text.trim().to_owned();
                self.input = None;
                self.pane = None;
                self.set_query(query)
            }
        }
    }

    fn on_pending_key(&mut self, key: KeyEvent) -> Vec<TopCommand> {
        let page = self.page_height as isize;
        match key.code {
            KeyCode::Esc => self.screen = Screen::Flows,
            KeyCode::Char('j') | KeyCode::Down => self.pending.move_by(1),
            KeyCode::Char('k') | KeyCode::Up => self.pending.move_by(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.pending.scroll_by(page),
            KeyCode::PageUp => self.pending.scroll_by(-page),
            KeyCode::Char('e') => match self.pending.editable() {
                Ok(edit) => self.edit = Some(edit),
                Err(why) => self.notice = Some((why.into(), true)),
            },
            KeyCode::Char(action @ ('a' | 'c' | 'd' | 'x')) => match self.pending.decision(action) {
                Ok(command) => return vec![command],
                Err(why) => self.notice = Some((why.into(), true)),
            },
            _ => {}
        }
        Vec::new()
    }

    fn on_flow_key(&mut self, key: KeyEvent) -> Vec<TopCommand> {
        let selected = self.list.selected().map(|f| f.id);
        let command = match key.code {
            KeyCode::Char('y') => selected.map(TopCommand::CopyAsCurl),
            KeyCode::Char('r') => selected.map(TopCommand::Replay),
            KeyCode::Char('B') => self.hold_command(),
            KeyCode::Enter if self.pane.is_none() => return self.open_pane(),
            _ if self.pane.is_some() => return self.on_pane_key(key),
            _ => {
                if let Some(rows) = self.row_step(key) {
                    self.list.move_by(rows);
                    return self.load_older();
                }
                return Vec::new();
            }
        };
        command.into_iter().collect()
    }

    /// Adds a rule for requests like the selected one, or removes it if it was added last.
    fn hold_command(&mut self) -> Option<TopCommand> {
        let target = HoldTarget::from_flow(self.list.selected()?);
        if target.is_none() {
            self.notice = Some(("a tunnel has no path to hold".into(), true));
        }
        let target = target?;
        let same = self.hold_rule.as_ref().filter(|rule| rule.target == target).cloned();
        Some(same.map_or(TopCommand::AddHold(target), |rule| TopCommand::RemoveHold(Box::new(rule))))
    }

    /// How many rows, or lines, a key moves.
    fn row_step(&self, key: KeyEvent) -> Option<isize> {
        let page = self.page_height.saturating_sub(1).max(1) as isize;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        Some(match key.code {
            KeyCode::Char('d') if control => page / 2,
            KeyCode::Char('u') if control => -page / 2,
            KeyCode::Char('j') | KeyCode::Down => 1,
            KeyCode::Char('k') | KeyCode::Up => -1,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::PageUp => -page,
            // Far beyond either end.
            KeyCode::Char('g') | KeyCode::Home => -(isize::MAX / 2),
            KeyCode::Char('G') | KeyCode::End => isize::MAX / 2,
            _ => return None,
        })
    }

    fn on_pane_key(&mut self, key: KeyEvent) -> Vec<TopCommand> {
        let step = self.row_step(key);
        let Some(pane) = &mut self.pane else { return Vec::new() };
        match key.code {
            KeyCode::Esc => self.pane = None,
            KeyCode::Tab | KeyCode::Right => pane.select(pane.tab.step(1)),
            KeyCode::BackTab | KeyCode::Left => pane.select(pane.tab.step(PaneTab::ALL.len() - 1)),
            KeyCode::Char(c @ '1'..='4') => pane.select(PaneTab::ALL[c as usize - '1' as usize]),
            KeyCode::Char('b') => {
                let (id, hex) = (pane.id, pane.toggle_hex());
                return pane.sides().map(|side| TopCommand::LoadBody { id, side, hex }).collect();
            }
            KeyCode::Char('J' | 'K') => {
                self.list.move_by(if key.code == KeyCode::Char('J') { 1 } else { -1 });
                return [self.open_pane(), self.load_older()].concat();
            }
            _ => pane.scroll_by(step.unwrap_or_default()),
        }
        Vec::new()
    }
}
