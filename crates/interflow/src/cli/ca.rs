//! `interflow ca`: the certificate authority.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use interflow_host::data_dir::DataDir;
use interflow_host::{InstanceApi, exec};
use interflow_net::ca::{CaOptions, CertificateAuthority};
use serde_json::json;

use super::output::{FormatArgs, TextFormat, print_json};
use crate::CliError;

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Show the name, fingerprint, validity and location of the CA.
    Show {
        #[command(flatten)]
        format: FormatArgs<TextFormat>,
    },
    /// Export the CA certificate (never the key).
    Export {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = CaFormat::Pem)]
        format: CaFormat,
        /// Output file [default: stdout].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Install the CA in the trust stores of this machine; asks for confirmation.
    Install {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
        /// Show what would be done without doing it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove the CA from the trust stores of this machine.
    Uninstall {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
        /// Show what would be done without doing it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Intercept clients again that bypass interception because they rejected the certificate.
    Retry {
        /// Only for this host.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },
    /// Create a new CA and keep the old one as a backup.
    Rotate {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
    },
    /// Print environment variables that make programs started from this shell trust the CA.
    TrustEnv {
        /// Shell syntax.
        #[arg(long, value_enum, default_value_t = ShellKind::Sh)]
        shell: ShellKind,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CaFormat {
    /// PEM (text).
    Pem,
    /// DER (binary), for phones and desktops.
    Der,
    /// PKCS#12 truststore for Java that includes the system's CAs (password `changeit`).
    P12,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ShellKind {
    /// sh, bash, zsh.
    Sh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

pub fn run(command: &CaCommand, home: &DataDir) -> Result<(), CliError> {
    home.create()?;
    let ca = || CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string());
    match command {
        CaCommand::Show { format } => show(&ca()?, home, format.is_json())?,
        CaCommand::Export { format, output } => export(&ca()?, *format, output.as_deref())?,
        CaCommand::Rotate { yes } => {
            if !yes {
                interflow_host::confirmed(
                    "This creates a new CA; everything that trusts the old one must be configured again.",
                )?;
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
            interflow_host::trust_store::install(home, *yes, *dry_run)?;
            if !dry_run {
                forget_refusals(home);
            }
        }
        CaCommand::Uninstall { yes, dry_run } => interflow_host::trust_store::uninstall(home, *yes, *dry_run)?,
    }
    Ok(())
}

/// Makes the running instance intercept clients again that rejected the certificate.
fn retry(home: &DataDir, host: Option<&str>) -> Result<(), CliError> {
    let api = InstanceApi::require(home)?;
    let passing = api.get("/passthrough")?;
    let all = passing["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
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

fn show(ca: &CertificateAuthority, home: &DataDir, as_json: bool) -> Result<(), CliError> {
    let (days, file) = (ca.remaining().as_secs() / 86_400, home.ca().join("ca.pem"));
    if as_json {
        return print_json(&json!({
            "name": ca.name(), "certificate": file, "sha256": ca.fingerprint_sha256(), "days_valid": days,
        }));
    }
    anstream::println!("name         {}", ca.name());
    anstream::println!("certificate  {}", file.display());
    anstream::println!("SHA-256      {}", ca.fingerprint_sha256());
    anstream::println!("valid for    {days} more days");
    Ok(())
}

fn export(ca: &CertificateAuthority, format: CaFormat, output: Option<&std::path::Path>) -> Result<(), CliError> {
    let bytes = match format {
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
