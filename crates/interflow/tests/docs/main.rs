//! Tests the examples in README.md, docs/ and deploy/.
//!
//! - Every `toml` block is a valid configuration, or a redaction policy named `policy.toml`.
//! - Every `console` block shows what its commands print: `$ ` starts a command, other lines are its output, in which numbers and
//!   identifiers may differ and `…` stands for any text. The blocks of a page run in order, in one directory; a command that is
//!   `interflow run` or `interflow demo` starts an instance for the rest of the page.
//! - A block with a file name behind its language (```` ```yaml rules.yaml ````) is that file, for the commands behind it.
//! - Every link resolves to a page or heading, those of the book within the book; every page is in the table of contents.

mod claims;
mod figures;
mod instance;
mod internet;
mod pages;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use instance::{Home, INTERFLOW, Instance};
use interflow_testkit::TestCa;
use internet::Internet;
use pages::{Block, anchors, blocks, commands, html, output_matches, pages, root};

fn all_blocks() -> Vec<Block> {
    pages().iter().flat_map(|(page, text)| blocks(page, text)).collect()
}

#[test]
fn every_toml_block_is_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    named_files(folder.path());
    let blocks = all_blocks();
    let configurations: Vec<_> =
        blocks.iter().filter(|b| b.language == "toml" && b.file.as_deref() != Some("policy.toml")).collect();
    assert!(configurations.len() >= 5, "only {} blocks of toml were found", configurations.len());
    for block in configurations {
        for file in blocks.iter().filter(|b| b.page == block.page && b.line != block.line) {
            save(file, folder.path());
        }
        check(folder.path(), &block.text, &block.place());
    }
}

#[test]
fn the_configurations_in_deploy_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["deploy/interflow.toml", "deploy/package/interflow.toml"] {
        check(folder.path(), &fs::read_to_string(root().join(path)).unwrap(), path);
    }
    let values = fs::read_to_string(root().join("deploy/helm/interflow/values.yaml")).unwrap();
    let (_, block) = values.split_once("\nconfig: |\n").expect("the chart's values hold a configuration");
    let chart: Vec<_> = block.lines().take_while(|l| l.is_empty() || l.starts_with("  ")).map(str::trim).collect();
    assert!(chart.len() > 3, "the chart's configuration is empty");
    check(folder.path(), &chart.join("\n"), "deploy/helm/interflow/values.yaml");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_console_block_shows_what_its_commands_print() {
    let internet = Internet::start().await;
    let folder = tempfile::tempdir().unwrap();
    let shared = shared_instance(&folder.path().join("shared"), &internet);
    let only = std::env::var(instance::PAGE).unwrap_or_default();
    let mut differing = Vec::new();
    for (number, (page, text)) in pages().iter().enumerate() {
        let blocks = blocks(page, text);
        if page.contains(&only) && blocks.iter().any(|b| b.language == "console") {
            let directory = folder.path().join(format!("page-{number}"));
            differing.extend(run_page(&blocks, &directory, &shared, &internet));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}

#[test]
fn every_link_target_exists() {
    let pages = pages();
    let headings: HashMap<_, _> = pages.iter().map(|(page, text)| (page.as_str(), anchors(text))).collect();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for target in link_targets(text).filter(|t| !t.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { page.clone() } else { join(page, file) };
            let known = headings.get(linked.as_str()).is_none_or(|h| anchor.is_empty() || h.contains(anchor));
            // The book has only docs/: elsewhere a link would lead nowhere.
            let leaves_the_book = page.starts_with("docs/") && !linked.starts_with("docs/");
            if !known || leaves_the_book || !root().join(&linked).exists() {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

/// A link of a page, as a path relative to the root.
fn join(page: &str, link: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let pages = pages();
    let (_, summary) = pages.iter().find(|(page, _)| page == "docs/SUMMARY.md").expect("docs/SUMMARY.md");
    let listed: Vec<_> = link_targets(summary).collect();
    let missing: Vec<_> = pages
        .iter()
        .filter_map(|(page, _)| page.strip_prefix("docs/"))
        .filter(|page| *page != "SUMMARY.md" && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

/// More than a reader finds their way in.
const MAX_PAGES: usize = 60;

#[test]
fn there_are_not_too_many_pages() {
    let count = pages().iter().filter(|(page, _)| page.starts_with("docs/")).count();
    assert!(count <= MAX_PAGES, "docs/ has {count} pages, more than {MAX_PAGES}: merge what repeats");
}

#[test]
fn no_page_has_html_in_a_sentence() {
    let found: Vec<_> = pages()
        .iter()
        .filter(|(page, _)| page.starts_with("docs/"))
        .flat_map(|(page, text)| html(text).into_iter().map(move |tag| format!("{page}: {tag}")))
        .collect();
    assert!(found.is_empty(), "a browser does not show these, write them as code or with a backslash: {found:#?}");
}

#[test]
fn no_command_of_a_page_waits_for_a_fixed_time() {
    let blocks = all_blocks();
    let sleeps = |b: &&Block| b.language == "console" && commands(b).iter().any(|c| c.script.contains("sleep "));
    let found: Vec<_> = blocks.iter().filter(sleeps).map(Block::place).collect();
    assert!(found.is_empty(), "these commands sleep, wait for what happens instead: {found:?}");
}

fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    // Pictures in two themes.
    let in_tags = text.lines().filter(|line| line.starts_with("  <source ") || line.starts_with("  <img "));
    let pictures = in_tags.flat_map(|line| line.split('"')).filter(|part| part.ends_with(".webp"));
    links.chain(pictures)
}

/// The instance of the blocks whose page starts none.
fn shared_instance(folder: &Path, internet: &Internet) -> (Home, Instance) {
    let home = Home::new(folder, internet);
    let config = "[[gateway.route]]\npath = \"/api\"\nto = \"https://example.com\"\nstrip_path = true\n";
    fs::write(folder.join("instance.toml"), config).unwrap();
    let instance = home.start("interflow -c instance.toml run", folder);
    (home, instance)
}

/// Runs the blocks of a page in order. Returns what differs from the page.
fn run_page(blocks: &[Block], directory: &Path, shared: &(Home, Instance), internet: &Internet) -> Vec<String> {
    fs::create_dir_all(directory).unwrap();
    let starts = |b: &Block| b.language == "console" && commands(b).iter().any(|c| starts_an_instance(&c.script));
    let own_home = blocks.iter().any(starts).then(|| Home::new(&directory.join("home"), internet));
    let home = own_home.as_ref().unwrap_or(&shared.0);
    let mut own_instance: Option<Instance> = None;
    let mut differing = Vec::new();
    for block in blocks {
        save(block, directory);
        if block.language != "console" {
            continue;
        }
        for command in commands(block) {
            let printed = if starts_an_instance(&command.script) {
                // The former one is stopped first: both would use the same data directory.
                own_instance = None;
                let started = own_instance.insert(home.start(&command.script, directory));
                started.output_until(|printed| output_matches(&command.output, printed))
            } else {
                let instance = own_instance.as_ref().or(own_home.is_none().then_some(&shared.1));
                let script = instance.map_or(command.script.clone(), |i| i.translate(&command.script));
                run_command(home, &script, &command.output, directory)
            };
            if !output_matches(&command.output, &printed) {
                let place = format!("{}:{}", block.page, command.line);
                differing.push(format!(
                    "{place}: $ {}\n-- the page shows:\n{}\n-- printed:\n{printed}",
                    command.script,
                    command.output.join("\n")
                ));
            }
        }
    }
    differing
}

/// What a command prints. A reader of a page looks again: a command that only reads what others write a moment later, such as
/// the recording, is repeated for some seconds until it prints what the page shows.
fn run_command(home: &Home, script: &str, shown: &[String], directory: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let output = home.run(&format!("exec 2>&1\n{script}"), directory);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output_matches(shown, &printed) || !only_reads(script) || Instant::now() > deadline {
            return printed;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn only_reads(script: &str) -> bool {
    let mut words = script.split_whitespace();
    let command = [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
    matches!(
        command,
        ["interflow", "flows" | "conversations" | "pending", "list" | "show" | "count" | "stats" | "export"]
            | ["cat", ..]
    )
}

fn starts_an_instance(script: &str) -> bool {
    let mut words = script.split_whitespace();
    words.next() == Some("interflow") && words.any(|w| w == "run" || w == "demo") && !script.contains("--help")
}

/// Writes a block that is a file into the directory.
fn save(block: &Block, directory: &Path) {
    if let Some(name) = &block.file {
        let file: PathBuf = directory.join(name);
        fs::create_dir_all(file.parent().expect("a file is in a folder")).unwrap();
        fs::write(file, &block.text).unwrap();
    }
}

/// Fails unless `interflow config check` accepts the block.
fn check(folder: &Path, config: &str, place: &str) {
    fs::write(folder.join("interflow.toml"), config).unwrap();
    let output = Command::new(INTERFLOW)
        .args(["-c", "interflow.toml", "config", "check", "--values-only"])
        .current_dir(folder)
        .env("INTERFLOW_DATA_DIR", folder.join("home"))
        .env("COMPANY_PROXY", "http://user:password@127.0.0.1:3128")
        .output()
        .unwrap();
    assert!(output.status.success(), "{place}: {}\n{config}", said(&output));
}

/// Creates the files that the documented configurations refer to.
fn named_files(folder: &Path) {
    let ca = TestCa::new();
    let (chain, key) = ca.leaf_pem(&["proxy.example.com"]);
    for (name, text) in [
        ("company-ca.pem", ca.pem()),
        ("proxy.pem", &chain),
        ("proxy-key.pem", &key),
        ("clients-ca.pem", ca.pem()),
        ("client.pem", &chain),
        ("client-key.pem", &key),
        ("users", "alice:$2y$04$abcdefghijklmnopqrstuu5UF8N2tHXwDqz9n0k9G5nDyoQCFyeiG\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}
