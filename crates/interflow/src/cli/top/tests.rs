//! The screen, drawn from what the API of a running instance answered (`testdata`).

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use interflow_types::Direction;
use jiff::tz::TimeZone;
use ratatui_core::backend::TestBackend;
use ratatui_core::style::Modifier;
use ratatui_core::terminal::Terminal;
use serde_json::{Value, json};

use super::app::{FlowPage, TopApp, TopEvent};
use super::command::TopCommand;
use super::hold_rule::HoldTarget;
use super::keys::KEYS;
use super::pane::BodyText;

const FLOWS: &str = include_str!("testdata/flows.json");
const FLOW: &str = include_str!("testdata/flow.json");
const STATS: &str = include_str!("testdata/stats.json");
const PENDING: &str = include_str!("testdata/pending.json");

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A connected screen with the recorded flows.
fn app() -> TopApp {
    let mut app = TopApp::new(String::new());
    let commands = app.update(TopEvent::Connected);
    assert_eq!(commands, [TopCommand::List { query: String::new(), generation: 1, before: None }]);
    let flows = serde_json::from_value(json(FLOWS)["flows"].take()).unwrap();
    app.update(TopEvent::Listed { generation: 1, older: false, page: Ok(FlowPage { flows, has_older: false }) });
    app.update(TopEvent::Stats(Box::new(json(STATS))));
    app
}

fn press(app: &mut TopApp, keys: &str) -> Vec<TopCommand> {
    let key = |c| match c {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    keys.chars().flat_map(|c| app.update(TopEvent::Key(KeyEvent::new(key(c), KeyModifiers::NONE)))).collect()
}

fn drawn(app: &mut TopApp, width: u16, height: u16) -> Vec<String> {
    let mut screen = Terminal::new(TestBackend::new(width, height)).unwrap();
    screen.draw(|frame| super::draw::draw(frame, app, &TimeZone::UTC)).unwrap();
    let buffer = screen.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

/// The pane of the flow of the test data.
fn opened() -> TopApp {
    let mut app = app();
    let flow: Value = json(FLOW);
    let id = flow["id"].as_str().unwrap().parse().unwrap();
    while app.list.selected().unwrap().id != id {
        app.list.move_by(-1);
    }
    assert_eq!(press(&mut app, "\n"), [TopCommand::Load(id)]);
    let wanted = app.update(TopEvent::Loaded { id, flow: Ok(serde_json::from_value(flow).unwrap()) });
    let body = |side| TopCommand::LoadBody { id, side, hex: false };
    assert_eq!(wanted, [body(Direction::Request), body(Direction::Response)]);
    let text = "{\n  \"order\": 17,\n  \"note\": \"\u{1b}[2J\"\n}".to_owned();
    let body = BodyText { text, truncated: false };
    app.update(TopEvent::Body { id, side: Direction::Response, body: Ok(body) });
    app
}

#[test]
fn table_fits_every_width_and_shows_the_most_telling_columns() {
    for (width, heading) in [
        (20, "STAT HOST AND PATH"),
        (50, "METHOD  HOST AND PATH                STAT     TOOK"),
        (80, "TIME     METHOD  HOST AND PATH                  STAT TYPE          SIZE     TOOK"),
    ] {
        let screen = drawn(&mut app(), width, 24);
        assert_eq!(screen[2], heading, "{width}");
        assert!(screen.iter().any(|l| l.contains("404")), "{screen:#?}");
    }
    let wide = drawn(&mut app(), 200, 24);
    assert!(wide[2].contains("HOST  ") && wide[2].ends_with("MARKS"), "{}", wide[2]);
    assert_eq!(drawn(&mut app(), 12, 3)[0], "too small: 2");
}

#[test]
fn hints_and_help_fit_80_columns_and_the_way_out_is_always_shown() {
    for width in [40, 60, 80] {
        let lines = drawn(&mut app(), width, 24);
        assert!(lines.last().unwrap().trim_end().ends_with("? help  q quit"), "{width}: {lines:?}");
    }
    assert!(KEYS.iter().all(|(keys, meaning)| keys.len() <= 16 && meaning.len() <= 63), "{:?}", *KEYS);
}

#[test]
fn header_shows_the_figures_and_what_needs_attention() {
    let mut app = app();
    let mut later = json(STATS);
    later["engine"]["requests"] = (later["engine"]["requests"].as_u64().unwrap() + 30).into();
    later["uptime"] = (later["uptime"].as_u64().unwrap() + 2_000_000).into();
    app.update(TopEvent::Stats(Box::new(later)));
    let header = drawn(&mut app, 100, 10)[0].clone();
    assert!(header.contains("15.0 req/s") && header.contains(" open") && header.contains(" error"), "{header}");
    app.update(TopEvent::Pending(json(PENDING)["pending"].as_array().unwrap().clone()));
    assert_eq!(press(&mut app, "p"), [TopCommand::Pause(true)]);
    let header = drawn(&mut app, 100, 10)[0].clone();
    assert!(header.ends_with(" 1 held  paused"), "{header}");
    app.update(TopEvent::Gone);
    let header = drawn(&mut app, 30, 10)[0].clone();
    assert!(header.contains("instance gone"), "{header}");
}

#[test]
fn query_is_checked_by_the_instance_and_its_error_shown_under_the_line() {
    let mut app = app();
    assert_eq!(press(&mut app, "/is:x"), ["i", "is", "is:", "is:x"].map(|t| TopCommand::Check(t.into())));
    let error = json!({"message": "column 4: no such state", "remedy": "use is:open", "start": 3, "end": 4});
    app.update(TopEvent::Checked { query: "is:".into(), error: Some(json!({"message": "of an earlier text"})) });
    app.update(TopEvent::Checked { query: "is:x".into(), error: Some(error) });
    let screen = drawn(&mut app, 80, 24);
    assert_eq!((screen[1].as_str(), screen[2].as_str()), ("/ is:x", "column 4: no such state; use is:open"));
    assert_eq!(press(&mut app, "\n"), [], "an invalid query is not applied");
    press(&mut app, "y");
    app.update(TopEvent::Checked { query: "is:xy".into(), error: None });
    let (query, generation) = ("is:xy".to_owned(), 2);
    let list = TopCommand::List { query: query.clone(), generation, before: None };
    assert_eq!(press(&mut app, "\n"), [TopCommand::Subscribe { query, generation }, list]);
    let flows: Vec<_> = serde_json::from_value(json(FLOWS)["flows"].take()).unwrap();
    app.update(TopEvent::Flows { generation: 1, flows });
    assert_eq!(app.list.len(), 0, "flows of the earlier query are not shown");
}

#[test]
fn pane_shows_heads_and_bodies_with_control_characters_escaped() {
    let mut app = opened();
    let overview = drawn(&mut app, 80, 24).join("\n");
    assert!(overview.contains("request    POST HTTP/1.1") && overview.contains("client     127.0.0.1"), "{overview}");
    press(&mut app, "3");
    let response = drawn(&mut app, 80, 24).join("\n");
    for text in ["HTTP/1.1 200", "Content-Type: application/json", "  \"order\": 17,", "\\u{1b}[2J"] {
        assert!(response.contains(text), "{text} in {response}");
    }
    press(&mut app, "4");
    assert!(drawn(&mut app, 80, 24).join("\n").contains("first byte"));
    // Beside the table, below it, and alone.
    for (width, height, table) in [(160, 24, true), (80, 40, true), (80, 24, false)] {
        let screen = drawn(&mut app, width, height).join("\n");
        assert_eq!((screen.contains("METHOD"), screen.contains("Overview")), (table, true), "{screen}");
    }
    press(&mut app, "\u{1b}");
    assert!(app.pane.is_none());
}

#[test]
fn pending_requests_are_shown_and_decided() {
    let mut app = app();
    let pending = json(PENDING)["pending"].as_array().unwrap().clone();
    let id = pending[0]["id"].as_str().unwrap().to_owned();
    app.update(TopEvent::Pending(pending));
    assert_eq!(press(&mut app, "h"), []);
    let screen = drawn(&mut app, 80, 24).join("\n");
    for text in ["1 pending", "1 waiting", "GET http://held.test", "timeout    then it is denied"] {
        assert!(screen.contains(text), "{text} in {screen}");
    }
    let decide = |action| TopCommand::Decide { id: id.clone(), action };
    assert_eq!(press(&mut app, "acd"), [decide("allow"), decide("allow"), decide("deny")]);
    assert_eq!(press(&mut app, "x"), [], "a request is not a message");
    let control = KeyEvent::new(KeyCode::Char('d'), KeyModifiers::CONTROL);
    assert_eq!(app.update(TopEvent::Key(control)), [], "a page down denies nothing");
    let mut other = json(PENDING)["pending"][0].take();
    other["id"] = "approval-99".into();
    app.update(TopEvent::Pending(vec![other]));
    assert_eq!(press(&mut app, "a"), [], "the one that was selected has just gone");
    app.update(TopEvent::Pending(Vec::new()));
    assert_eq!(press(&mut app, "a"), []);
    assert!(drawn(&mut app, 80, 24).join("\n").contains("nothing is pending"));
}

#[test]
fn selected_row_is_marked_without_colours_too() {
    let mut screen = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut app = app();
    screen.draw(|frame| super::draw::draw(frame, &mut app, &TimeZone::UTC)).unwrap();
    let reversed = |y: &u16| screen.backend().buffer()[(10, *y)].modifier.contains(Modifier::REVERSED);
    let rows: Vec<u16> = (3..23).filter(reversed).collect();
    assert_eq!(rows, [2 + app.list.len() as u16], "the newest flow, which is the last row");
}

#[test]
fn older_flows_are_loaded_at_the_top_once() {
    let mut app = app();
    app.list.has_older = true;
    let oldest = app.list.oldest();
    assert_eq!(press(&mut app, "g"), [TopCommand::List { query: String::new(), generation: 1, before: oldest }]);
    assert_eq!(press(&mut app, "gk"), [], "while a page is being loaded");
}

#[test]
fn only_what_a_rule_holds_is_opened_in_the_editor() {
    let mut app = app();
    let mut items = json(PENDING)["pending"].as_array().unwrap().clone();
    app.update(TopEvent::Pending(items.clone()));
    assert_eq!(press(&mut app, "he"), []);
    assert!(app.edit.is_none());
    let screen = drawn(&mut app, 80, 24).join("\n");
    assert!(screen.contains("only what a rule holds can be changed"), "{screen}");
    (items[0]["kind"], items[0]["id"]) = ("rule".into(), "rule-1".into());
    let mut app = self::app();
    app.update(TopEvent::Pending(items));
    assert_eq!(press(&mut app, "he"), []);
    assert_eq!(app.edit.unwrap().0["id"], "rule-1");
}

#[test]
fn requests_like_the_selected_flow_are_held() {
    let mut app = app();
    let commands = press(&mut app, "B");
    let [TopCommand::AddHold(target)] = &commands[..] else { panic!("no rule: {commands:?}") };
    let flow = app.list.selected().unwrap();
    assert_eq!(Some(target), HoldTarget::from_flow(flow).as_ref());
}
