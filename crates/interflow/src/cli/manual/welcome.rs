//! `interflow` without a command, on a terminal: what is running, and what can be done next.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use clap::error::ErrorKind;
use interflow_host::data_dir::{DataDir, InstanceInfo, connect_address};
use interflow_host::running_instances;

use crate::cli::output::print;
use crate::instance::config::load;

/// Prints the overview instead of this error, if the command line is empty and a person is reading.
pub fn replaces(error: &clap::Error, words: &[std::ffi::OsString]) -> bool {
    let empty = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && words.len() == 1;
    if !empty || !std::io::stdout().is_terminal() {
        return false;
    }
    let data_dir = std::env::var_os("INTERFLOW_DATA_DIR").filter(|d| !d.is_empty());
    let file = std::env::var_os("INTERFLOW_CONFIG").filter(|f| !f.is_empty());
    // An invalid configuration is reported by the commands that need it.
    let configured = load(file.as_deref().map(Path::new)).ok().and_then(|loaded| loaded.config.data_dir);
    let Ok(home) = DataDir::find(data_dir.as_deref().map(Path::new).or(configured.as_deref())) else { return false };
    let (instance, home) = match (home.running_instance(), data_dir.or(file)) {
        // Commands use the only one that runs.
        (None, None) => match &running_instances::running()[..] {
            [(home, instance)] => (Some(instance.clone()), home.clone()),
            _ => (None, home),
        },
        (instance, _) => (instance, home),
    };
    print(&overview(instance.as_ref(), home.path()));
    true
}

fn overview(instance: Option<&InstanceInfo>, home: &Path) -> String {
    let mut text = format!("Interflow {}\n\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<24}{value}").expect("writing to a String cannot fail");
    };
    let commands: [(&str, &str); 5] = match instance {
        Some(instance) => {
            line("running", &format!("process {}", instance.pid));
            for (name, address) in instance.addresses() {
                line(name, &format!("http://{}", connect_address(address)));
            }
            [
                ("interflow browser URL", "open a browser whose traffic is recorded"),
                ("interflow exec -- CMD", "run a command whose traffic is recorded"),
                ("interflow open", "look at the traffic in the web UI"),
                ("interflow flows list", "list the traffic here"),
                ("interflow stop", "stop the instance"),
            ]
        }
        None => {
            line("running", "no");
            [
                ("interflow run", "start the proxy, the LLM gateway and the web UI"),
                ("interflow browser URL", "open a browser whose traffic is recorded"),
                ("interflow exec -- CMD", "run a command whose traffic is recorded"),
                ("interflow flows list", "list what was recorded"),
                #[cfg(feature = "demo")]
                ("interflow demo", "look around with sample traffic"),
                #[cfg(not(feature = "demo"))]
                ("interflow doctor", "check this machine"),
            ]
        }
    };
    line("data", &home.display().to_string());
    text.push_str("\nNext:\n");
    for (command, what) in commands {
        writeln!(text, "  {command:<24}{what}").expect("writing to a String cannot fail");
    }
    text.push_str("\n`interflow --help` lists all commands.\n");
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_overview_says_where_the_instance_listens_and_names_existing_commands() {
        let instance = InstanceInfo {
            pid: 4711,
            proxy: vec!["0.0.0.0:7070".parse().unwrap()],
            gateway: None,
            admin: Some("127.0.0.1:7072".parse().unwrap()),
            dns: None,
            restart_refused: None,
        };
        for (instance, says) in [(Some(&instance), "process 4711"), (None, "interflow run ")] {
            let text = overview(instance, Path::new("/data"));
            assert!(text.contains(says) && text.contains("/data"), "{text}");
            assert_eq!(text.contains("http://127.0.0.1:7070\n"), instance.is_some(), "{text}");
            let commands = text.lines().filter_map(|l| l.strip_prefix("  interflow ")).collect::<Vec<_>>();
            assert_eq!(commands.len(), 5);
            for line in commands {
                let command = line.split("  ").next().unwrap();
                let words = std::iter::once("interflow").chain(command.split_whitespace());
                assert!(Cli::try_parse_from(words).is_ok(), "{command}");
            }
        }
    }
}
