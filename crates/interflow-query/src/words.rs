//! The words that tables of flows show in their cells and chips, with what they mean in a query.

use crate::ast::{Expr, TermTest, TextPattern};
use crate::key::{Flag, Key};

/// A word that a cell or a chip shows, and that a query understands as a value.
#[derive(Debug)]
pub struct TableWord {
    /// The key before it.
    pub key: Key,
    pub word: &'static str,
    meaning: WordMeaning,
    pub doc: &'static str,
}

#[derive(Debug)]
enum WordMeaning {
    Flag(Flag),
    Present(Key),
    Text(Key, &'static str),
    SlowerThan(u64),
}

const fn word(key: Key, word: &'static str, meaning: WordMeaning, doc: &'static str) -> TableWord {
    TableWord { key, word, meaning, doc }
}

/// Every such word. Parser, completion and the reference are derived from the table.
pub const TABLE_WORDS: &[TableWord] = &[
    word(Key::Type, "sse", WordMeaning::Flag(Flag::Sse), "the response is an event stream"),
    word(Key::Type, "ws", WordMeaning::Flag(Flag::Websocket), "is a WebSocket"),
    word(Key::Type, "websocket", WordMeaning::Flag(Flag::Websocket), "is a WebSocket"),
    word(Key::Type, "hls", WordMeaning::Text(Key::Type, "mpegurl"), "an HLS playlist"),
    word(Key::Type, "tunnel", WordMeaning::Flag(Flag::Tunnel), "is a tunnel passed through without inspection"),
    word(Key::Method, "TUNNEL", WordMeaning::Flag(Flag::Tunnel), "is a tunnel passed through without inspection"),
    word(Key::Status, "ERR", WordMeaning::Flag(Flag::Error), "failed"),
    word(Key::Status, "CUT", WordMeaning::Flag(Flag::Cut), "was not recorded to its end"),
    word(Key::Is, "llm", WordMeaning::Present(Key::Model), "is an LLM call"),
    word(Key::Is, "ws", WordMeaning::Flag(Flag::Websocket), "is a WebSocket"),
    word(Key::Is, "starred", WordMeaning::Text(Key::Tag, "starred"), "is starred"),
    word(Key::Is, "mcp", WordMeaning::Text(Key::Tag, "mcp"), "is a request to the MCP gateway"),
    word(Key::Is, "rule-matched", WordMeaning::Text(Key::Tag, "rule-matched"), "a rule matched"),
    word(Key::Is, "slow", WordMeaning::SlowerThan(1_000_000), "took more than a second"),
];

impl TableWord {
    /// The condition that it stands for, such as `is:sse`.
    pub fn expr(&self) -> Expr {
        match self.meaning {
            WordMeaning::Flag(flag) => Expr::flag(flag),
            WordMeaning::Present(key) => Expr::term(key, TermTest::Present),
            WordMeaning::Text(key, text) => Expr::term(key, TermTest::Text(TextPattern::Text(text.to_owned()))),
            WordMeaning::SlowerThan(micros) => {
                let more = crate::ast::NumberTest::Compare(crate::ast::CompareOp::Gt, micros);
                Expr::term(Key::Dur, TermTest::Number(more))
            }
        }
    }
}

/// The word of this key, ignoring case.
pub(crate) fn find_word(key: Key, text: &str) -> Option<&'static TableWord> {
    let key = if key == Key::RespType { Key::Type } else { key };
    TABLE_WORDS.iter().find(|w| w.key == key && w.word.eq_ignore_ascii_case(text))
}
