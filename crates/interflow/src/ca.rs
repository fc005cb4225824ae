//! `interflow ca`: the certificate authority.

use std::io::Write as _;

use interflow_net::ca::{CaOptions, CertificateAuthority};

use crate::cli::{CaCommand, CaFormat, ShellKind};
use crate::data_dir::DataDir;
use crate::flows::InstanceApi;
use crate::{CliError, exec};

pub fn run(command: &CaCommand, home: &DataDir) -> Result<(), CliError> {
    home.create()?;
    let ca = || CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string());
    match command {
        CaCommand::Show => show(&ca()?, home),
        CaCommand::Export { form, output } => export(&ca()?, *form, output.as_deref())?,
        CaCommand::Rotate { yes } => {
            if !yes {
                confirmed("This creates a new CA; everything that trusts the old one must be configured again.")?;
            }
            let ca = CertificateAuthority::rotate(&home.ca(), &CaOptions::default()).map_err(|e| e.to_string())?;
            anstream::println!("New CA: {}\nThe old one was saved in {}.", ca.name(), home.ca().display());
            anstream::println!("Restart a running instance to use the new CA.");
        }
        CaCommand::Retry { host } => retry(home, host.as_deref())?,
        CaCommand::TrustEnv { shell } => {
            trust_env(home, *shell)?;
            forget_refusals(home);
        }
        CaCommand::Install { yes, dry_run } => {
            crate::trust_store::install(home, *yes, *dry_run)?;
            if !dry_run {
                forget_refusals(home);
            }
        }
        CaCommand::Uninstall { yes, dry_run } => crate::trust_store::uninstall(home, *yes, *dry_run)?,
    }
    Ok(())
}

/// Makes the running instance intercept clients again that rejected the certificate.
fn retry(home: &DataDir, host: Option<&str>) -> Result<(), CliError> {
    let api = InstanceApi::for_instance(home)?
        .ok_or_else(|| CliError::Failed("no instance is running with this data directory".to_owned()))?;
    let passing = api.get("/passthrough")?;
    let all = passing["passing"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ended: Vec<_> = all.iter().filter(|p| host.is_none_or(|host| p["host"] == host)).collect();
    let query = match host {
        Some(host) => format!("?host={}", interflow_types::percent::encoded(host)),
        None => String::new(),
    };
    api.delete(&format!("/passthrough{query}"))?;
    for p in &ended {
        let text = |key: &str| p[key].as_str().unwrap_or_default().to_owned();
        let program = if p["process"].is_string() { text("process") } else { text("ja4") };
        anstream::println!("{} ({}, {program}) is intercepted again", text("host"), text("client"));
    }
    if ended.is_empty() {
        anstream::println!("No client bypasses interception because it rejected the certificate.");
    }
    Ok(())
}

/// Clears the pinning bypass of the running instance, if any, after trust in the CA has changed.
fn forget_refusals(home: &DataDir) {
    if let Ok(Some(api)) = InstanceApi::for_instance(home) {
        let _ = api.delete("/passthrough");
    }
}

fn show(ca: &CertificateAuthority, home: &DataDir) {
    let days = ca.remaining().as_secs() / 86_400;
    anstream::println!("name         {}", ca.name());
    anstream::println!("certificate  {}", home.ca().join("ca.pem").display());
    anstream::println!("SHA-256      {}", ca.fingerprint_sha256());
    anstream::println!("valid for    {days} more days");
}

fn export(ca: &CertificateAuthority, form: CaFormat, output: Option<&std::path::Path>) -> Result<(), CliError> {
    let bytes = match form {
        CaFormat::Pem => ca.certificate_pem().as_bytes().to_vec(),
        CaFormat::Der => ca.certificate_der().to_vec(),
        CaFormat::P12 => exec::pkcs12(ca)?,
    };
    match output {
        Some(path) => {
            std::fs::write(path, bytes).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        }
        None => std::io::stdout().write_all(&bytes).map_err(|e| e.to_string())?,
    }
    Ok(())
}

/// Asks for confirmation on the terminal. Only an explicit yes counts.
///
/// # Errors
/// The answer was not yes; nothing was changed.
pub fn confirmed(what: &str) -> Result<(), CliError> {
    anstream::eprint!("{what}\nGo on? [y/N] ");
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

fn trust_env(home: &DataDir, shell: ShellKind) -> Result<(), CliError> {
    let trust = exec::TrustFiles::write(home)?;
    for (name, path) in exec::trust_variables(&trust) {
        let path = path.display();
        match shell {
            ShellKind::Sh => anstream::println!("export {name}='{path}'"),
            ShellKind::Fish => anstream::println!("set -gx {name} '{path}'"),
            ShellKind::Powershell => anstream::println!("$env:{name} = '{path}'"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one_and_everything_else_says_that_nothing_was_done() {
        assert!(parse_confirmation(Ok("y\n")).is_ok() && parse_confirmation(Ok(" YES\n")).is_ok());
        for answer in ["", "\n", "n\n", "yep\n"] {
            assert!(parse_confirmation(Ok(answer)).unwrap_err().starts_with("nothing was done"), "{answer:?}");
        }
    }
}
