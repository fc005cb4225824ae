//! The reference page of the query language, `docs/reference/query.md`, made from its tables.

use std::fmt::Write as _;
use std::path::Path;

use interflow_query::key::{FLAGS, KEYS, KeyInfo, ValueKind};
use interflow_query::{
    MAX_DEPTH, MAX_LENGTH, MAX_TERMS, Query, QuerySpan, SYNTAX, SYNTAX_NOTES, TABLE_WORDS, TAGS, TagInfo,
    tilde_operators,
};
use interflow_testkit::docs::check_reference_page;

#[test]
fn the_reference_page_is_current() {
    check_reference_page("query.md", &page());
}

#[test]
fn every_form_of_the_syntax_table_is_a_query() {
    for (form, _) in SYNTAX.iter() {
        // `key` and `name` stand for a key and a field, and a comma separates forms.
        for one in form.split(", ") {
            let query = one.replace("key:", "host:").replace("name", "server");
            Query::parse(&query).unwrap_or_else(|e| panic!("{query}: {e}"));
        }
    }
}

/// The literals in calls of `.tag(…)`, outside tests and comments, up to the first placeholder.
#[test]
fn every_tag_that_the_code_sets_is_listed() {
    let mut unlisted = Vec::new();
    let mut files = 0;
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut |path, text| {
        files += 1;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
            for call in line.split("flow.tag(").skip(1) {
                let literal = call.strip_prefix("format!(").unwrap_or(call).strip_prefix('"');
                let Some(literal) = literal.and_then(|l| l.split('"').next()) else { continue };
                let (name, is_prefix) = literal.split_once('{').map_or((literal, false), |(name, _)| (name, true));
                let fits = |t: &TagInfo| {
                    t.name == name && t.is_prefix() == is_prefix || t.is_prefix() && name.starts_with(t.name)
                };
                if !TAGS.iter().any(fits) {
                    unlisted.push(format!("{literal} in {}", path.display()));
                }
            }
        }
    });
    assert!(files > 300, "only {files} files were read");
    assert!(unlisted.is_empty(), "add them to interflow-query/src/tags.rs: {unlisted:#?}");
}

fn visit(folder: &Path, read: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()) {
        if entry.is_dir() && !entry.ends_with("tests") {
            visit(&entry, read);
        } else if entry.extension().is_some_and(|e| e == "rs") && !entry.ends_with("tests.rs") {
            read(&entry, &std::fs::read_to_string(&entry).expect("UTF-8"));
        }
    }
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

fn names(list: impl IntoIterator<Item = &'static str>) -> String {
    list.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let mut page = String::from(
        "# Query language\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         A query selects flows: in `interflow flows list` and other commands, the search field of the web UI, the HTTP API, and `when` of \
         a [rule](rules.md).\n`interflow help query` prints a summary.\n\n## Syntax\n\n| form | meaning |\n|---|---|\n",
    );
    for (form, meaning) in SYNTAX.iter() {
        let _ = writeln!(page, "| {} | {} |", code(form), meaning.replace('|', "\\|").replace('*', "\\*"));
    }
    page.push('\n');
    for note in SYNTAX_NOTES {
        let _ = writeln!(page, "{note}");
    }
    let _ = writeln!(
        page,
        "A query has at most {MAX_LENGTH} bytes, {MAX_TERMS} terms and {MAX_DEPTH} levels of parentheses."
    );
    page.push_str(
        "\n## Keys\n\nA term without a key searches the URL and the bodies.\n\
         In a rule, *phase* is the [phase](rules.md#phases) from which the key is known.\n\n\
         | key | other names | tests | value | phase | example |\n|---|---|---|---|---|---|\n",
    );
    for info in KEYS {
        let key = if info.name.is_empty() { "(none)".to_owned() } else { code(info.name) };
        let (aliases, value) = (names(info.aliases.iter().copied()), value(info));
        let (doc, phase, example) = (info.doc, code(&phase_name(info)), code(info.example));
        let _ = writeln!(page, "| {key} | {aliases} | {doc} | {value} | {phase} | {example} |");
    }
    page.push_str("\n## Flags\n\n| flag | the flow |\n|---|---|\n");
    for info in FLAGS {
        let _ = writeln!(page, "| `is:{}` | {} |", info.name, info.doc);
    }
    page.push_str(
        "\n## Words of the table\n\nThe words that the table of flows shows are values, too. A word in quotes is searched as a text: \
         `type:\"sse\"`.\n\n| term | same as | the flow |\n|---|---|---|\n",
    );
    for word in TABLE_WORDS.iter() {
        let same = code(&word.expr(QuerySpan::default()).to_string());
        let _ = writeln!(page, "| `{}:{}` | {same} | {} |", word.key.name(), word.word, word.doc);
    }
    page.push_str(
        "\n## Tags\n\nInterflow sets these tags; rules, scripts, imports and people add others. NAME stands for the rest of a tag, for \
         which `*` can be written: `tag:found:*`.\n\n| tag | meaning |\n|---|---|\n",
    );
    for tag in TAGS.iter() {
        let rest = if tag.is_prefix() { "NAME" } else { "" };
        let _ = writeln!(page, "| `{}{rest}` | {} |", tag.name, tag.doc);
    }
    page.push_str(
        "\n## mitmproxy's filters\n\nA query that begins with one of mitmproxy's operators is read in its syntax: `!`, `&`, `|` and \
         parentheses.\nRegular expressions ignore case.\n\n| filter | same as |\n|---|---|\n",
    );
    for (name, takes_argument) in tilde_operators() {
        // The only operator with a number is that of status codes.
        let argument = match (takes_argument, name) {
            (false, _) => "",
            (true, "c") => " 404",
            (true, _) => " regex",
        };
        let filter = format!("~{name}{argument}");
        let query = Query::parse(&filter).unwrap_or_else(|e| panic!("{filter}: {e}"));
        let same = query.expr().to_string();
        let same = if same.is_empty() { "nothing: Interflow records no such flows".to_owned() } else { code(&same) };
        let _ = writeln!(page, "| {} | {same} |", code(&filter));
    }
    page
}

/// The phase as a rule names it: `request_head`.
fn phase_name(info: &KeyInfo) -> String {
    let mut name = String::new();
    for c in format!("{:?}", info.phase).chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn value(info: &KeyInfo) -> String {
    match info.kind {
        ValueKind::Choice(choices) => {
            let one = |(name, others): &(&'static str, &'static [&'static str])| match others {
                [] => code(name),
                others => format!("{} (also {})", code(name), names(others.iter().copied())),
            };
            format!("{} {}", info.kind.doc(), choices.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Flag => "a [flag](#flags)".to_owned(),
        kind => kind.doc().to_owned(),
    }
}
