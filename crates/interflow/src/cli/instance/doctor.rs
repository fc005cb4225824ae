//! `interflow doctor`: checks the environment and suggests remedies.

use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{DoctorFinding, FindingState};

use crate::cli::output::{FormatArgs, TextFormat, terminal_width, wrap_words};
use crate::instance::config::InterflowConfig;
use crate::instance::diagnosis::findings;
use crate::{CliError, Result};

/// Runs all checks; fails if one is bad.
pub fn run(format: &FormatArgs<TextFormat>, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let findings = findings(config, home);
    format.print(&findings, || findings.iter().map(line).collect())?;
    let bad = findings.iter().filter(|f| f.state == FindingState::Bad).count();
    match bad {
        0 => Ok(()),
        1 => Err(CliError::Failed("1 thing needs attention".to_owned())),
        _ => Err(CliError::Failed(format!("{bad} things need attention"))),
    }
}

fn line(finding: &DoctorFinding) -> String {
    let (mark, style) = match finding.state {
        FindingState::Good => ("ok  ", anstyle::AnsiColor::Green.on_default()),
        FindingState::Notice => ("note", anstyle::AnsiColor::Yellow.on_default()),
        FindingState::Bad => ("BAD ", anstyle::AnsiColor::Red.on_default()),
    };
    let text = format!("{mark}  {}: {}", finding.what, crate::in_commands(&finding.text));
    format!("{style}{mark}{style:#}{}\n", &wrap_words(&text, 6, terminal_width())[mark.len()..])
}
