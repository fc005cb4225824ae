//! Asks for confirmation on the terminal.

use std::io::Write as _;

use crate::{CliError, Result};

/// Asks for confirmation on the terminal. Only an explicit yes counts.
///
/// # Errors
/// The answer was not yes; nothing was changed.
pub fn confirmed(what: &str) -> Result<()> {
    let _ = write!(crate::terminal::stderr(), "{what}\nContinue? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    parse_confirmation(read.map(|_| answer.as_str())).map_err(CliError::Failed)
}

fn parse_confirmation(answer: std::io::Result<&str>) -> Result<(), String> {
    match answer {
        Ok(text) if matches!(text.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        // End of input without a newline is not an answer.
        Ok("") => Err("nothing was done: no answer; use --yes to skip the question".into()),
        Ok(_) => Err("nothing was done: the answer was not yes".into()),
        Err(e) => Err(format!("nothing was done: cannot read the answer: {e}; use --yes to skip the question")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms_and_anything_else_reports_that_nothing_was_done() {
        assert!(parse_confirmation(Ok("y\n")).is_ok() && parse_confirmation(Ok(" YES\n")).is_ok());
        for answer in ["", "\n", "n\n", "yep\n"] {
            assert!(parse_confirmation(Ok(answer)).unwrap_err().starts_with("nothing was done"), "{answer:?}");
        }
    }
}
