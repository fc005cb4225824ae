//! The choice at the first `interflow exec` of a coding agent: whether its prompts are redacted or only flagged. Asked
//! once, on a terminal only, and stored in the data directory.

use interflow_types::{data_file, labelled_enum};
use std::io::{self, BufRead, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::LazyLock;

use interflow_files::{FileAccess, write_atomic};
use interflow_host::data_dir::DataDir;
use interflow_redact::RedactConfig;

use crate::instance::config::LoadedConfig;

/// Programs whose prompts contain what is on this machine, by the name of their command.
static AGENTS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../../data/agents.txt")).collect());

/// The file in the data directory that holds the choice.
pub const CHOICE_FILE: &str = "exec-prompts";

labelled_enum! {
    /// What is done with findings in the prompts of a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PromptChoice {
        /// Prompts are sent as they are, and flows say what is in them.
        Flag "flag",
        /// Findings are replaced before a prompt leaves.
        Redact "redact",
    }
}

/// The choice for this command: the stored one, or else the answer of the person at the terminal. `None` if the
/// configuration decides, or no approval can be requested.
pub fn choose(command: &[String], quiet: bool, loaded: &LoadedConfig, home: &DataDir) -> Option<PromptChoice> {
    let agent = command.first().and_then(|program| known_agent(program))?;
    if is_configured(loaded) {
        return None;
    }
    let file = home.join(CHOICE_FILE);
    if let Some(stored) = stored(&file) {
        return Some(stored);
    }
    if quiet || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let choice = ask(agent, &mut io::stdin().lock())?;
    let saved = home.create().and_then(|()| {
        write_atomic(&file, format!("{}\n", choice.as_str()).as_bytes(), FileAccess::Private).map_err(|e| e.to_string())
    });
    match saved {
        Ok(()) => interflow_host::errln!(
            "interflow: stored in {}; --redact and --flag-only override it, and without the file the question is asked again",
            file.display()
        ),
        Err(e) => interflow_host::errln!("interflow: the choice holds for this command only: {}: {e}", file.display()),
    }
    Some(choice)
}

/// The agent that a command starts, by its file name.
fn known_agent(program: &str) -> Option<&'static str> {
    let name = Path::new(program).file_name()?.to_str()?;
    let name = [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    AGENTS.iter().copied().find(|agent| *agent == name)
}

/// Whether the configuration says what is done with proxied prompts, be it the default.
fn is_configured(loaded: &LoadedConfig) -> bool {
    loaded.config.redact.proxied != RedactConfig::default().proxied
        || std::env::var_os("INTERFLOW_REDACT_PROXIED").is_some()
        || loaded.file.as_deref().is_some_and(sets_mode)
}

fn sets_mode(file: &Path) -> bool {
    // Standard input was read already; what it says can only be seen in the result.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table.get("redact").is_some_and(|redact| redact.get("proxied").is_some())
}

fn stored(file: &Path) -> Option<PromptChoice> {
    match std::fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        // There was a choice; what cannot be read must not turn redaction off.
        text => Some(text.ok().and_then(|text| parse(&text)).unwrap_or(PromptChoice::Redact)),
    }
}

fn parse(text: &str) -> Option<PromptChoice> {
    match text.trim() {
        "1" | "flag" => Some(PromptChoice::Flag),
        "2" | "redact" => Some(PromptChoice::Redact),
        _ => None,
    }
}

/// Asks once. An answer that is none leaves the question for the next time.
fn ask(agent: &str, answers: &mut impl BufRead) -> Option<PromptChoice> {
    let _ = write!(
        interflow_host::terminal::stderr(),
        "interflow: the prompts of `{agent}` may contain personal data and secrets. What is done with them?\n  \
         1  flag: they are sent as they are, and flows and conversations show which ones contain some\n  \
         2  redact: they are replaced by placeholders before a prompt leaves, and restored in responses\n\
         Choice [1/2]: "
    );
    let mut line = String::new();
    let choice = answers.read_line(&mut line).ok().and_then(|_| parse(&line));
    if choice.is_none() {
        interflow_host::errln!("interflow: no choice was made: prompts are flagged this time");
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_the_name_of_their_command() {
        for (program, agent) in [
            ("claude", Some("claude")),
            ("/usr/local/bin/codex", Some("codex")),
            ("gemini.cmd", Some("gemini")),
            ("curl", None),
            ("claude-squad", None),
            ("", None),
        ] {
            assert_eq!(known_agent(program), agent, "{program}");
        }
    }

    #[test]
    fn a_stored_choice_that_cannot_be_read_redacts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(CHOICE_FILE);
        assert_eq!(stored(&file), None);
        for (text, choice) in
            [("flag\n", PromptChoice::Flag), ("redact\n", PromptChoice::Redact), ("", PromptChoice::Redact)]
        {
            std::fs::write(&file, text).unwrap();
            assert_eq!(stored(&file), Some(choice), "{text:?}");
        }
    }

    #[test]
    fn only_an_answer_is_a_choice() {
        for (line, choice) in [
            ("1\n", Some(PromptChoice::Flag)),
            (" redact \n", Some(PromptChoice::Redact)),
            ("\n", None),
            ("", None),
            ("yes\n", None),
        ] {
            assert_eq!(ask("claude", &mut line.as_bytes()), choice, "{line:?}");
        }
    }
}
