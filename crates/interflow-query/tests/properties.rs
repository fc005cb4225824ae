//! Properties of all queries: their text parses back, no text makes the parser panic, and a store's condition
//! together with the residual query selects what the matcher selects.

use interflow_query::key::{FLAGS, KEYS, ValueKind};
use interflow_query::sql::{SqlColumn, SqlColumns, SqlParam};
use interflow_query::{
    CompareOp, Expr, Fact, Flag, Key, MAX_TERMS, NumberTest, Query, QuerySubject, RegexSource, Term, TermTest,
    TextPattern, TimePoint, TimeTest, Tristate,
};
use interflow_types::Direction;
use proptest::prelude::*;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

fn op() -> impl Strategy<Value = CompareOp> {
    prop_oneof![Just(CompareOp::Lt), Just(CompareOp::Le), Just(CompareOp::Eq), Just(CompareOp::Ge), Just(CompareOp::Gt)]
}

/// Texts full of special characters.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,3}",
        "[a-c0-9:/.*~!=<>()\\\\\" é-]{1,6}",
        Just("AND".to_owned()),
        Just("sse".to_owned()),
        Just("a,b".to_owned()),
        Just("status:200".to_owned()),
        Just("::1".to_owned()),
        Just(":80".to_owned()),
        Just("~m".to_owned()),
    ]
}

fn glob() -> impl Strategy<Value = TextPattern> {
    (prop_oneof![Just(String::new()), text()], proptest::collection::vec(text(), 0..2), text()).prop_map(
        |(first, middle, last)| {
            let mut pieces = vec![first];
            pieces.extend(middle);
            pieces.push(last);
            TextPattern::Glob(pieces)
        },
    )
}

fn pattern(globs_only: bool) -> BoxedStrategy<TextPattern> {
    let regex = ("[a-c/ .]{0,4}", any::<bool>()).prop_map(|(s, i)| TextPattern::Regex(RegexSource::new(&s, i)));
    if globs_only {
        return prop_oneof![glob(), regex].boxed();
    }
    prop_oneof![text().prop_map(TextPattern::Text), text().prop_map(TextPattern::Exact), glob(), regex].boxed()
}

fn number() -> impl Strategy<Value = NumberTest> {
    let n = prop_oneof![0..5u64, 395..405u64, Just(1_000_000), Just(1 << 20), any::<u64>()];
    prop_oneof![
        (op(), n.clone()).prop_map(|(op, n)| NumberTest::Compare(op, n)),
        (n.clone(), n).prop_map(|(a, b)| NumberTest::Range(a.min(b), a.max(b))),
    ]
}

fn time() -> impl Strategy<Value = TimeTest> {
    let day = 86_400_000_000u64;
    let point = prop_oneof![
        (1..30_000u64).prop_map(move |d| TimePoint::At { start: d * day, lasts: day }),
        (1..30_000_000u64).prop_map(|m| TimePoint::At { start: m * 60_000_000, lasts: 60_000_000 }),
        (1..1_800_000_000_000_000u64).prop_map(|u| TimePoint::At { start: u, lasts: 1 }),
        (0..10_000_000_000u64).prop_map(TimePoint::Ago),
        (0..2u64).prop_map(TimePoint::Day),
    ];
    prop_oneof![
        (op(), point.clone()).prop_filter_map("read as 'within'", |(op, p)| {
            (op != CompareOp::Eq || !matches!(p, TimePoint::Ago(_))).then_some(TimeTest::Compare(op, p))
        }),
        (point.clone(), point).prop_map(|(a, b)| TimeTest::Range(a, b)),
    ]
}

fn test(kind: ValueKind, word: bool) -> BoxedStrategy<TermTest> {
    let texts = pattern(false).prop_map(TermTest::Text);
    match kind {
        ValueKind::Count | ValueKind::Bytes | ValueKind::Duration => number().prop_map(TermTest::Number).boxed(),
        ValueKind::Status => {
            prop_oneof![number(), (1..9u8).prop_map(NumberTest::Class)].prop_map(TermTest::Number).boxed()
        }
        ValueKind::Time => time().prop_map(TermTest::Time).boxed(),
        ValueKind::Flag => (0..FLAGS.len()).prop_map(|i| TermTest::Flag(FLAGS[i].flag)).boxed(),
        ValueKind::Address => prop_oneof![
            Just(TermTest::Net("10.0.0.0/8".parse().unwrap())),
            Just(TermTest::Net("::1/128".parse().unwrap())),
            Just(TermTest::Present),
            pattern(true).prop_map(TermTest::Text)
        ]
        .boxed(),
        ValueKind::Choice(choices) => prop_oneof![
            (0..choices.len()).prop_map(move |i| TermTest::Text(TextPattern::Text(choices[i].0.to_owned()))),
            pattern(true).prop_map(TermTest::Text)
        ]
        .boxed(),
        _ if word => {
            texts.prop_filter("words are not compared", |t| !matches!(t, TermTest::Text(TextPattern::Exact(_)))).boxed()
        }
        _ => prop_oneof![5 => texts, 1 => Just(TermTest::Present)].boxed(),
    }
}

fn term() -> impl Strategy<Value = Expr> {
    (0..KEYS.len()).prop_flat_map(|i| {
        let key = KEYS[i].key;
        let name = if key.kind() == ValueKind::Header {
            proptest::option::of("[a-c][a-c._-]{0,3}".prop_map(|s| s.to_ascii_lowercase())).boxed()
        } else {
            Just(None).boxed()
        };
        (name, test(key.kind(), key == Key::Word))
            .prop_map(move |(name, test)| Expr::Term(Term { key, name, test, span: Default::default() }))
    })
}

fn expr() -> impl Strategy<Value = Expr> {
    prop_oneof![20 => term(), 1 => Just(Expr::All)].prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::and),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::or),
            inner.prop_map(Expr::not),
        ]
    })
}

/// Terms over few keys and letters, so that random flows are often selected.
fn stored_term() -> impl Strategy<Value = Expr> {
    let keys = [
        Key::Word,
        Key::Host,
        Key::Method,
        Key::Path,
        Key::Tag,
        Key::Comment,
        Key::Id,
        Key::Status,
        Key::Size,
        Key::Time,
        Key::Is,
        Key::Header,
        Key::Type,
        Key::Body,
    ];
    let words = prop_oneof!["[ab]{0,2}", "[aAB?\\[é]{1,2}"];
    let pattern = prop_oneof![
        words.clone().prop_map(TextPattern::Text),
        words.clone().prop_map(TextPattern::Exact),
        (words.clone(), "[ab]{1,2}").prop_map(|(a, b)| TextPattern::Glob(vec![a, b])),
        ("[ab]{1,2}", words).prop_map(|(a, b)| TextPattern::Glob(vec![String::new(), a, b])),
        "[ab]{1,2}".prop_map(|s| TextPattern::Regex(RegexSource::new(&s, true))),
    ];
    let number = prop_oneof![
        (op(), 0..4u64).prop_map(|(o, n)| NumberTest::Compare(o, n)),
        (0..3u64, 0..3u64).prop_map(|(a, b)| NumberTest::Range(a.min(b), a.max(b))),
        Just(NumberTest::Compare(CompareOp::Ge, u64::MAX)),
    ];
    (0..keys.len(), pattern, number, 0..3usize, any::<bool>()).prop_map(move |(i, pattern, number, flag, present)| {
        let test = match keys[i].kind() {
            ValueKind::Flag => TermTest::Flag([Flag::Error, Flag::Open, Flag::Sse][flag]),
            _ if present && i % 3 == 0 => TermTest::Present,
            ValueKind::Status | ValueKind::Bytes => TermTest::Number(number),
            ValueKind::Time => {
                TermTest::Time(TimeTest::Compare(CompareOp::Le, TimePoint::At { start: flag as u64, lasts: 1 }))
            }
            _ => TermTest::Text(pattern),
        };
        Expr::term(keys[i], test)
    })
}

fn stored_expr() -> impl Strategy<Value = Expr> {
    stored_term().prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::and),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::or),
            inner.prop_map(Expr::not),
        ]
    })
}

/// A flow in the random store: columns of one table, and tags in another.
#[derive(Clone, Debug)]
struct Row {
    host: Option<String>,
    method: Option<String>,
    path: Option<String>,
    comment: Option<String>,
    id: String,
    request_type: Option<String>,
    response_type: Option<String>,
    tags: Vec<String>,
    status: Option<u64>,
    size: Option<u64>,
    time: u64,
    error: bool,
    body: String,
}

fn row() -> impl Strategy<Value = Row> {
    let word = || "[abAB?\\[é]{0,4}";
    let maybe = || proptest::option::of(word());
    let n = || proptest::option::of(0..4u64);
    (
        (maybe(), maybe(), maybe(), maybe(), word()),
        (maybe(), maybe(), proptest::collection::vec(word(), 0..3)),
        (n(), n(), 0..4u64, any::<bool>(), "[ab]{0,3}"),
    )
        .prop_map(|((host, method, path, comment, id), (request_type, response_type, tags), rest)| {
            let (status, size, time, error, body) = rest;
            let host = host.map(|h| h.to_ascii_lowercase());
            Row { host, method, path, comment, id, request_type, response_type, tags, status, size, time, error, body }
        })
}

impl QuerySubject for Row {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let one = |v: &Option<String>| v.iter().cloned().collect::<Vec<_>>();
        let values = match key {
            Key::Host => one(&self.host),
            Key::Method => one(&self.method),
            Key::Path | Key::Url => one(&self.path),
            Key::Comment => one(&self.comment),
            Key::Id => vec![self.id.clone()],
            Key::Tag => self.tags.clone(),
            Key::Type => [one(&self.request_type), one(&self.response_type)].concat(),
            _ => vec![],
        };
        Tristate::any(values.iter().map(String::as_str), fits)
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Status | Key::Port => Fact::known(self.status),
            Key::Size => Fact::known(self.size),
            Key::Time => Fact::Is(self.time),
            _ => Fact::Absent,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        Tristate::Known(flag == Flag::Error && self.error)
    }

    fn body(&self, _side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::Known(fits(self.body.as_bytes()))
    }
}

struct Table;

impl SqlColumns for Table {
    fn column(&self, key: Key) -> Option<SqlColumn> {
        Some(match key {
            Key::Host => SqlColumn::LowerText(&["f.host"]),
            Key::Method => SqlColumn::Text(&["f.method"]),
            Key::Path => SqlColumn::Text(&["f.path"]),
            Key::Comment => SqlColumn::Text(&["f.comment"]),
            Key::Id => SqlColumn::Text(&["f.id"]),
            Key::Type => SqlColumn::Text(&["f.request_type", "f.response_type"]),
            Key::Tag => SqlColumn::Rows {
                exists: "EXISTS (SELECT 1 FROM tag WHERE tag.flow = f.rowid AND {})",
                value: "tag.name",
            },
            Key::Status | Key::Port => SqlColumn::Integer("f.status"),
            Key::Size => SqlColumn::Integer("f.size"),
            Key::Time => SqlColumn::Integer("f.time"),
            _ => return None,
        })
    }

    fn flag(&self, flag: Flag) -> Option<&'static str> {
        (flag == Flag::Error).then_some("(f.error = 1)")
    }
}

fn store(rows: &[Row]) -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE f (host, method, path, comment, id, request_type, response_type, status, size, time, error);
         CREATE TABLE tag (flow, name);",
    )
    .unwrap();
    for (i, r) in rows.iter().enumerate() {
        let text = |t: &Option<String>| t.clone().map_or(Value::Null, Value::Text);
        let number = |n: Option<u64>| n.map_or(Value::Null, |n| Value::Integer(n as i64));
        let values = [
            Value::Integer(i as i64),
            text(&r.host),
            text(&r.method),
            text(&r.path),
            text(&r.comment),
            Value::Text(r.id.clone()),
            text(&r.request_type),
            text(&r.response_type),
            number(r.status),
            number(r.size),
            number(Some(r.time)),
            Value::Integer(r.error.into()),
        ];
        let sql = "INSERT INTO f (rowid, host, method, path, comment, id, request_type, response_type, status, size,
                   time, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        db.execute(sql, params_from_iter(values)).unwrap();
        for tag in &r.tags {
            db.execute("INSERT INTO tag VALUES (?, ?)", (i as i64, tag)).unwrap();
        }
    }
    db
}

fn selected(db: &Connection, rows: &[Row], query: &Query) -> (Vec<usize>, bool) {
    let found = query.to_sql(&Table);
    let params = found.params.iter().map(|p| match p {
        SqlParam::Text(t) => Value::Text(t.clone()),
        SqlParam::Integer(i) => Value::Integer(*i),
    });
    let mut statement = db.prepare(&format!("SELECT rowid FROM f WHERE {} ORDER BY rowid", found.sql)).unwrap();
    let ids: Vec<i64> =
        statement.query_map(params_from_iter(params), |r| r.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let kept = ids.into_iter().map(|i| i as usize);
    let kept = kept.filter(|&i| found.residual.as_ref().is_none_or(|r| r.matches(&rows[i]))).collect();
    (kept, found.residual.is_none())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_query_parses_back_from_its_text(expr in expr()) {
        let query = Query::from(expr);
        let text = query.to_string();
        let again = Query::parse(&text).map_err(|e| TestCaseError::fail(e.render(&text)))?;
        prop_assert_eq!(again.expr(), query.expr(), "{}", text);
    }

    #[test]
    fn arbitrary_text_never_panics_the_parser(
        text in prop_oneof![any::<String>(), "[a-c:~!|&()*\\\\\"/' =<>.é0-9-]{0,24}", "(~[a-z]{1,3} ?|[a-z]:|[()!&|\"' x]){0,12}"]
    ) {
        match Query::parse(&text) {
            Ok(query) => {
                let again = Query::parse(&query.to_string()).map_err(|e| TestCaseError::fail(e.to_string()))?;
                prop_assert_eq!(again, query);
            }
            Err(error) => {
                prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
                prop_assert!(error.render(&text).contains('^'));
            }
        }
        let _ = interflow_query::complete(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn condition_and_residual_select_what_the_matcher_selects(
        rows in proptest::collection::vec(row(), 1..8),
        queries in proptest::collection::vec(stored_expr(), 1..12),
    ) {
        let db = store(&rows);
        for expr in queries {
            let query = Query::from(expr);
            let expected: Vec<usize> = (0..rows.len()).filter(|&i| query.matches(&rows[i])).collect();
            let (found, _) = selected(&db, &rows, &query);
            prop_assert_eq!(found, expected, "{} in {:?}", query, query.to_sql(&Table));
        }
    }
}

#[test]
fn query_fully_expressible_in_sql_has_no_residual() {
    for (text, sql, residual) in [
        ("", "1", None),
        ("host:a.b status:>=400", "(f.host = ? AND f.status >= ?)", None),
        ("host:*.A", "f.host GLOB ?", None),
        ("-status:404", "(f.status IS NULL OR NOT f.status = ?)", None),
        ("host:a.b refund", "f.host = ?", Some("refund")),
        ("host:a.b OR refund", "1", Some("host:a.b OR refund")),
        ("host:a", "f.host GLOB ?", None),
        ("-(status:4xx refund)", "1", Some("-(status:4xx refund)")),
        (
            "-(status:4xx OR refund)",
            "(f.status IS NULL OR NOT f.status BETWEEN ? AND ?)",
            Some("-(status:4xx OR refund)"),
        ),
        (
            "is:error -tag:x",
            "((f.error = 1) AND NOT EXISTS (SELECT 1 FROM tag WHERE tag.flow = f.rowid AND lower(tag.name) = ?))",
            None,
        ),
        ("path:/x/i", "1", Some("path:/x/i")),
    ] {
        let found = Query::parse(text).unwrap().to_sql(&Table);
        let left = found.residual.map(|r| r.to_string());
        assert_eq!((found.sql.as_str(), left.as_deref()), (sql, residual), "{text}");
        assert_eq!(found.sql.matches('?').count(), found.params.len(), "{text}");
    }
}

#[test]
fn the_longest_queries_are_not_too_deep_for_sqlite() {
    let db = store(&[]);
    for (term, operator) in
        [("host:a.b:1", " "), ("host:!=a.b:1", " "), ("host:a.b:1", " OR "), ("host:!=a.b:1", " OR ")]
    {
        let query = Query::parse(&vec![term; MAX_TERMS].join(operator)).unwrap();
        assert_eq!(selected(&db, &[], &query), (vec![], true), "{term}{operator}");
    }
}

/// All texts of up to `most` of these letters.
fn texts(letters: &str, most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut longest = all.clone();
    for _ in 0..most {
        longest = longest.iter().flat_map(|t| letters.chars().map(move |c| format!("{t}{c}"))).collect();
        all.extend(longest.iter().cloned());
    }
    all
}

#[test]
fn store_and_matcher_agree_on_globs_for_every_short_text() {
    let db = Connection::open_in_memory().unwrap();
    let values = texts("abA?[é", 3);
    for (key, negative) in [(Key::Comment, false), (Key::Comment, true), (Key::Path, false)] {
        for glob in texts("ab[*", 4).iter().filter(|g| g.contains('*')) {
            let term = Expr::term(key, TermTest::Text(TextPattern::Glob(glob.split('*').map(str::to_owned).collect())));
            let query = Query::from(if negative { Expr::not(term) } else { term });
            let found = query.to_sql(&Table);
            let Some(SqlParam::Text(param)) = found.params.first() else { continue };
            let sql = found.sql.replace("f.comment", "?2").replace("f.path", "?2").replace("GLOB ?", "GLOB ?1");
            let mut statement = db.prepare(&format!("SELECT {sql}")).unwrap();
            for value in &values {
                let text = Some(value.clone());
                let row = Row { path: text.clone(), comment: text, ..nothing() };
                let stored: bool = statement.query_row((param, value), |r| r.get(0)).unwrap();
                assert_eq!(stored, query.matches(&row), "{query} on {value:?}: {sql} with {param:?}");
            }
        }
    }
}

fn nothing() -> Row {
    Row {
        host: None,
        method: None,
        path: None,
        comment: None,
        id: String::new(),
        request_type: None,
        response_type: None,
        tags: vec![],
        status: None,
        size: None,
        time: 0,
        error: false,
        body: String::new(),
    }
}
