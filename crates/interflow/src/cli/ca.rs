//! `interflow ca`: the certificate authority.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use interflow_host::data_dir::DataDir;
use interflow_host::{InstanceApi, exec};
use interflow_net::ca::{CaOptions, CertificateAuthority};
use serde_json::json;

use super::output::{FormatArgs, TextFormat};
use crate::Result;
use crate::cli::operations::{OperationId, Operations as _};

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Show the name, fingerprint, validity and location of the CA.
    Show(FormatArgs<TextFormat>),
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
    Install(TrustStoreArgs),
    /// Remove the CA from the trust stores of this machine.
    Uninstall(TrustStoreArgs),
    /// Intercept clients again that bypass interception because they rejected the certificate.
    Retry {
        /// Only for this host.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },
    /// Create a CA in a folder, without using it: for replicas that share one, or for `rotate --from`.
    Create {
        /// The folder for `ca.pem` and `ca.key`.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Replace the CA with a new one, or with one that clients trust already. The old certificate is kept, its key deleted.
    ///
    /// Without an interruption: create the next CA with `interflow ca create next`, let clients trust `next/ca.pem` beside the present
    /// one, then `interflow ca rotate --from next` and `interflow restart`; remove the old CA from the clients last. Replicas that share a CA
    /// (`intercept.ca_certificate`) get the files of `next` in place of theirs, and are restarted one after the other.
    Rotate {
        /// Use the `ca.pem` and `ca.key` of this folder.
        #[arg(long, value_name = "FOLDER")]
        from: Option<PathBuf>,
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

#[derive(Debug, Args)]
pub struct TrustStoreArgs {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
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

pub fn run(command: &CaCommand, home: impl FnOnce() -> Result<DataDir>) -> Result<()> {
    // Needs neither the configuration nor the data directory.
    if let CaCommand::Create { folder } = command {
        let ca = CertificateAuthority::create(folder).map_err(|e| e.to_string())?;
        interflow_host::outln!("New CA: {}\nIts files are in {}.", ca.name(), folder.display());
        return Ok(());
    }
    let home = &home()?;
    home.create()?;
    let ca = || CertificateAuthority::open_or_create(&home.ca()).map_err(|e| e.to_string());
    match command {
        CaCommand::Show(format) => show(&ca()?, home, format)?,
        CaCommand::Export { format, output } => export(&ca()?, *format, output.as_deref())?,
        CaCommand::Create { .. } => {}
        CaCommand::Rotate { from, yes } => rotate(home, from.as_deref(), *yes)?,
        CaCommand::Retry { host } => retry(home, host.as_deref())?,
        CaCommand::TrustEnv { shell } => {
            trust_env(home, *shell)?;
            forget_refusals(home);
        }
        CaCommand::Install(TrustStoreArgs { yes, dry_run }) => {
            interflow_host::trust_store::install(home, *yes, *dry_run)?;
            if !dry_run {
                forget_refusals(home);
            }
        }
        CaCommand::Uninstall(TrustStoreArgs { yes, dry_run }) => {
            interflow_host::trust_store::uninstall(home, *yes, *dry_run)?
        }
    }
    Ok(())
}

fn rotate(home: &DataDir, from: Option<&Path>, yes: bool) -> Result<()> {
    let ca = if let Some(folder) = from {
        if !yes {
            interflow_host::confirmed("Only clients that trust this CA can connect from the next start on.")?;
        }
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
        };
        let source = folder.display().to_string();
        if !CertificateAuthority::adopt(&home.ca(), &read("ca.pem")?, &read("ca.key")?, &source)
            .map_err(|e| e.to_string())?
        {
            interflow_host::outln!("The CA of {source} is the present one; nothing was changed.");
            return Ok(());
        }
        CertificateAuthority::open_or_create(&home.ca())
    } else {
        if !yes {
            interflow_host::confirmed(
                "This creates a new CA; everything that trusts the old one must be configured again.",
            )?;
        }
        CertificateAuthority::rotate(&home.ca(), &CaOptions::default())
    };
    let ca = ca.map_err(|e| e.to_string())?;
    interflow_host::outln!("New CA: {}\nThe old certificate was saved in {}.", ca.name(), home.ca().display());
    interflow_host::outln!("`interflow restart` makes a running instance use the new CA.");
    Ok(())
}

/// Makes the running instance intercept clients again that rejected the certificate.
fn retry(home: &DataDir, host: Option<&str>) -> Result<()> {
    let api = InstanceApi::require(home)?;
    let passing = api.call(&OperationId::ListBypassedClients.call())?;
    let all = passing["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ended: Vec<_> = all.iter().filter(|p| host.is_none_or(|host| p["host"] == host)).collect();
    api.call(&OperationId::ClearBypass.call().query_if("host", host))?;
    for p in &ended {
        let text = |key: &str| p[key].as_str().unwrap_or_default().to_owned();
        let program = if p["process"].is_string() { text("process") } else { text("ja4") };
        interflow_host::outln!("{} ({}, {program}) is intercepted again", text("host"), text("client"));
    }
    if ended.is_empty() {
        interflow_host::outln!("No client bypasses interception because it rejected the certificate.");
    }
    Ok(())
}

/// Clears the pinning bypass of the running instance, if any, after trust in the CA has changed.
fn forget_refusals(home: &DataDir) {
    if let Ok(Some(api)) = InstanceApi::for_instance(home) {
        let _ = api.call(&OperationId::ClearBypass.call());
    }
}

fn show(ca: &CertificateAuthority, home: &DataDir, format: &FormatArgs<TextFormat>) -> Result<()> {
    let (days, file) = (ca.remaining().as_secs() / 86_400, home.ca().join("ca.pem"));
    let (name, sha256) = (ca.name(), ca.fingerprint_sha256());
    format.print(&json!({"name": name, "certificate": file, "sha256": sha256, "days_valid": days}), || {
        let file = file.display();
        format!("name         {name}\ncertificate  {file}\nSHA-256      {sha256}\nvalid for    {days} more days\n")
    })
}

fn export(ca: &CertificateAuthority, format: CaFormat, output: Option<&Path>) -> Result<()> {
    let bytes = match format {
        CaFormat::Pem => ca.certificate_pem().as_bytes().to_vec(),
        CaFormat::Der => ca.certificate_der().to_vec(),
        CaFormat::P12 => exec::pkcs12(ca)?,
    };
    match output {
        Some(path) => {
            std::fs::write(path, bytes).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        }
        None => interflow_host::terminal::data_stdout().write_all(&bytes).map_err(|e| e.to_string())?,
    }
    Ok(())
}

fn trust_env(home: &DataDir, shell: ShellKind) -> Result<()> {
    let trust = exec::TrustFiles::write(home)?;
    for (name, path) in exec::trust_variables(&trust) {
        let quote = if matches!(shell, ShellKind::Powershell) { "''" } else { r"'\''" };
        let path = path.display().to_string().replace('\'', quote);
        match shell {
            ShellKind::Sh => interflow_host::outln!("export {name}='{path}'"),
            ShellKind::Fish => interflow_host::outln!("set -gx {name} '{path}'"),
            ShellKind::Powershell => interflow_host::outln!("$env:{name} = '{path}'"),
        }
    }
    Ok(())
}
