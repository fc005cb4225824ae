//! `interflow doctor`: checks the environment and suggests remedies.

use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{DoctorFinding, FindingState};

use crate::cli::output::{FormatArgs, TextFormat};
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
    let (mark, colour) = match finding.state {
        FindingState::Good => ("ok  ", anstyle::AnsiColor::Green),
        FindingState::Notice => ("note", anstyle::AnsiColor::Yellow),
        FindingState::Bad => ("BAD ", anstyle::AnsiColor::Red),
    };
    let style = colour.on_default();
    format!("{style}{mark}{style:#}  {}: {}\n", finding.what, crate::in_commands(&finding.text))
}
