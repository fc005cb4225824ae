//! Reads the documentation: pages, fenced blocks, and the commands in them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

pub struct Block {
    pub page: String,
    pub line: usize,
    /// First word of the info string.
    pub language: String,
    /// Second word of the info string: the block is the content of this file.
    pub file: Option<String>,
    pub text: String,
}

impl Block {
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// A command of a `console` block and the output that the page shows for it.
#[derive(Debug, PartialEq)]
pub struct Command {
    pub line: usize,
    pub script: String,
    pub output: Vec<String>,
}

/// The repository. Read from the environment, so that a built test can check the pages of another checkout.
pub fn root() -> PathBuf {
    let package = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&package).join("../..")
}

/// All documentation pages, as paths relative to the root.
pub fn pages() -> Vec<(String, String)> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned).into();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(name),
                _ if name.ends_with(".md") => names.push(name),
                _ => {}
            }
        }
    }
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Every fenced block of a page.
pub fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                open = Some(Block {
                    page: page.to_owned(),
                    line: number + 1,
                    language: words.next().unwrap_or_default(),
                    file: words.next(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block is not closed");
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them: a later heading of the same name has a number behind it.
pub fn anchors(text: &str) -> HashSet<String> {
    let mut in_block = false;
    let mut found = HashSet::new();
    let mut of_name: HashMap<String, usize> = HashMap::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_block) else { continue };
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor: String = heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let earlier = of_name.entry(anchor.clone()).or_default();
        found.insert(if *earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
        *earlier += 1;
    }
    found
}

/// What is HTML outside of blocks, code and comments: `<rest>` in a sentence, which a browser swallows.
pub fn html(text: &str) -> Vec<String> {
    let mut in_block = false;
    let mut found = Vec::new();
    let mut text = text.to_owned();
    while let Some((begin, length)) = text.find("<!--").and_then(|at| Some((at, text[at..].find("-->")? + 3))) {
        text.replace_range(begin..begin + length, "");
    }
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for (at, _) in prose.match_indices('<') {
            let tag = prose[at + 1..].trim_start_matches('/');
            // Pictures in two themes are on purpose.
            let is_on_purpose = ["http", "picture>", "source ", "img "].iter().any(|start| tag.starts_with(start));
            let is_tag = tag.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_on_purpose;
            if is_tag && !prose[..at].ends_with('\\') {
                found.push(prose[at..].split_inclusive('>').next().unwrap_or_default().to_owned());
            }
        }
    }
    found
}

/// The commands of a `console` block: `$ ` starts one, `> ` and a trailing backslash continue it, and all other lines are output.
pub fn commands(block: &Block) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let mut continues = false;
    for (number, line) in block.text.lines().enumerate() {
        if let Some(script) = line.strip_prefix("$ ") {
            found.push(Command { line: block.line + number + 1, script: script.to_owned(), output: Vec::new() });
            continues = line.ends_with('\\');
            continue;
        }
        let command = found.last_mut().unwrap_or_else(|| panic!("{}: output without a command", block.place()));
        let more = line.strip_prefix("> ").filter(|_| command.output.is_empty());
        if continues || more.is_some() {
            command.script.push('\n');
            command.script.push_str(more.unwrap_or(line));
            continues = line.ends_with('\\');
        } else {
            command.output.push(line.to_owned());
        }
    }
    found
}

/// Whether `actual` is what the page shows. Numbers and identifiers may differ, as may the amount of white space; `…` stands
/// for any text within a line, and a line with only `…` for any number of lines.
pub fn output_matches(shown: &[String], actual: &str) -> bool {
    let actual: Vec<String> = actual.lines().map(normalized).filter(|l| !l.is_empty()).collect();
    let shown: Vec<String> = shown.iter().map(|l| normalized(l)).filter(|l| !l.is_empty()).collect();
    lines_match(&shown, &actual)
}

fn lines_match(shown: &[String], actual: &[String]) -> bool {
    match shown.split_first() {
        None => actual.is_empty(),
        Some((line, rest)) if line == "…" => (0..=actual.len()).any(|n| lines_match(rest, &actual[n..])),
        Some((line, rest)) => {
            actual.split_first().is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others))
        }
    }
}

fn line_matches(shown: &str, actual: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut left) = actual.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return left.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    true
}

/// A line whose numbers, identifiers (of flows: eight or more capitals and digits; others: 16 or more letters and digits with a
/// digit among them) and runs of white space are reduced to one character each. Milliseconds and seconds count as the same.
fn normalized(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let mut rest = word;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (token, after) = rest.split_at(end);
            let long = token.len() >= 16 && token.bytes().any(|b| b.is_ascii_digit());
            let flow = token.len() >= 8 && token.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
            if long || flow {
                out.push('#');
            } else {
                let mut digits = false;
                for c in token.chars() {
                    if !c.is_ascii_digit() {
                        out.push(c);
                    } else if !digits {
                        out.push('#');
                    }
                    digits = c.is_ascii_digit();
                }
            }
            let next = after.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(after.len());
            out.push_str(&after[..next]);
            rest = &after[next..];
        }
    }
    // `1.5` and `12` are both numbers.
    while out.contains("#.#") {
        out = out.replace("#.#", "#");
    }
    out.replace("# ms", "# s").replace("# µs", "# s").replace("# us", "# s")
}

#[test]
fn output_may_differ_in_numbers_and_where_an_ellipsis_is() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (page, actual, fits) in [
        ("200 in 12 ms", "200 in 9.5 ms", true),
        ("GET /  200", "GET / 200\n", true),
        ("flow 01k9x2vdqv4m3tq7nq8zr5c6ab", "flow 01ka11111111111111111111zz", true),
        ("1.2 s", "980 ms", true),
        ("M209QXS4  GET", "XDEDPJAA  GET", true),
        ("saved to … (3 flows)", "saved to /tmp/x.har (41 flows)", true),
        ("a\n…\nz", "a\nb\nc\nz", true),
        ("a\n…", "a", true),
        ("200 OK", "403 Forbidden", false),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
        ("saved … twice", "saved /tmp/x once", false),
    ] {
        assert_eq!(output_matches(&shown(page), actual), fits, "{page:?} against {actual:?}");
    }
}

#[test]
fn a_console_block_is_cut_into_commands_and_their_output() {
    let block = Block {
        page: "page.md".into(),
        line: 10,
        language: "console".into(),
        file: None,
        text: "$ echo a \\\n    b\na b\n$ cat <<E\n> x\n> E\nx\n".into(),
    };
    let command =
        |line, script: &str, output: &str| Command { line, script: script.into(), output: vec![output.into()] };
    assert_eq!(commands(&block), [command(11, "echo a \\\n    b", "a b"), command(14, "cat <<E\nx\nE", "x")]);
}

#[test]
fn anchors_are_made_of_headings_outside_of_blocks() {
    let page = "# One `key`: a, b\n\n```sh\n# no heading\n```\n## `interflow flows list`\n";
    assert_eq!(anchors(page), HashSet::from(["one-key-a-b".to_owned(), "interflow-flows-list".to_owned()]));
    let twice = HashSet::from(["redis".to_owned(), "redis-1".to_owned()]);
    assert_eq!(anchors("## Redis\n\n## Containers: `exec --docker`\n\n### Redis\n").intersection(&twice).count(), 2);
}

#[test]
fn html_in_a_sentence_is_found() {
    let page = "a <rest> of `<code>` and \\<i>, a < b\n<!-- <comment> -->\n```html\n<p>\n```\n</div> at <https://example.com>\n";
    assert_eq!(html(page), ["<rest>", "</div>"]);
}
