//! Installs and removes the CA in the trust stores of systems and runtimes, after confirmation.

mod machine;
mod stores;

use std::process::{Command, Stdio};

use crate::data_dir::DataDir;
use crate::{CliError, Result, confirmed};

use machine::TrustEnvironment;
use stores::{StoreCommand, TrustStore};

/// Upper bound of copies of a certificate in a store; stops removal loops that make no progress.
const COPIES: usize = 16;

/// Installs the CA in all trust stores of this machine, after confirmation unless `yes`. `dry_run` only prints the
/// commands.
pub fn install(home: &DataDir, yes: bool, dry_run: bool) -> Result<()> {
    interflow_net::ca::CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string())?;
    let warning =
        "Anyone who has this CA's key can then decrypt this machine's TLS traffic: keep the data directory private.";
    run_steps(&stores::stores(&TrustEnvironment::detect(home)), |s| &s.install, warning, yes, dry_run)
}

/// Removes the CA, and those before `ca rotate`, from all trust stores.
pub fn uninstall(home: &DataDir, yes: bool, dry_run: bool) -> Result<()> {
    run_steps(&stores::stores(&TrustEnvironment::detect(home)), |s| &s.uninstall, "", yes, dry_run)
}

fn run_steps(
    stores: &[TrustStore],
    steps: impl Fn(&TrustStore) -> &Vec<StoreCommand>,
    warning: &str,
    yes: bool,
    dry_run: bool,
) -> Result<()> {
    if stores.is_empty() {
        let text = "no supported trust store found; use `interflow ca export` to get the certificate";
        return Err(CliError::Failed(text.into()));
    }
    for store in stores {
        crate::outln!("{}:", store.name);
        steps(store).iter().for_each(|step| crate::outln!("  {step}"));
    }
    if dry_run {
        return Ok(());
    }
    if !yes {
        confirmed(&format!("These commands will be run. {warning}"))?;
    }
    // One store that fails does not keep the others from being tried.
    let mut failed = Vec::new();
    for store in stores {
        match steps(store).iter().try_for_each(run_step) {
            Ok(()) => crate::outln!("{}: done", store.name),
            Err(e) => failed.push(format!("{}: {e}", store.name)),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(CliError::Failed(failed.join("\n"))) }
}

fn run_step(step: &StoreCommand) -> Result<(), String> {
    match step {
        StoreCommand::Run(command) => run(command),
        StoreCommand::WhileThere { there, remove } => {
            for _ in 0..COPIES {
                if !succeeds(there) {
                    return Ok(());
                }
                run(remove)?;
            }
            Err(format!("`{}` did not remove it", remove.join(" ")))
        }
    }
}

/// Runs a command. Its output is shown only on failure: some tools list the whole store.
fn run(command: &[String]) -> Result<(), String> {
    let (program, args) = command.split_first().ok_or("an empty command")?;
    let output = Command::new(program)
        .args(args)
        // Commands such as `sudo` may ask for a password.
        .stdin(Stdio::inherit())
        .output()
        .map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("`{}` ended with {}\n{}", command.join(" "), output.status, String::from_utf8_lossy(&text).trim_end()))
}

fn succeeds(command: &[String]) -> bool {
    let Some((program, args)) = command.split_first() else { return false };
    let quiet = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn sh(script: String) -> Vec<String> {
        ["sh", "-c", &script].map(str::to_owned).to_vec()
    }

    #[test]
    fn duplicates_are_all_removed_and_a_missing_certificate_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let copies = folder.path().join("copies");
        std::fs::write(&copies, "one\ntwo\n").unwrap();
        let file = copies.display();
        let step =
            StoreCommand::WhileThere { there: sh(format!("test -s {file}")), remove: sh(format!("sed -i 1d {file}")) };
        run_step(&step).unwrap();
        assert_eq!(std::fs::read_to_string(&copies).unwrap(), "");
        run_step(&step).unwrap();
    }

    #[test]
    fn ineffective_removal_ends_with_an_error() {
        let step = StoreCommand::WhileThere { there: sh("true".into()), remove: sh("true".into()) };
        assert!(run_step(&step).unwrap_err().contains("did not remove it"));
    }

    #[test]
    fn failed_command_error_contains_its_output() {
        let error = run(&sh("echo no such alias; exit 3".into())).unwrap_err();
        assert!(error.contains("exit status: 3") && error.ends_with("no such alias"), "{error}");
    }
}
