//! Which instance a command means that names no data directory: the one with the default directory, or else the only
//! one that runs.

use std::path::PathBuf;

use interflow_host::data_dir::DataDir;
use interflow_host::running_instances;

use crate::cli::{
    CliCommand, audit::AuditCommand, ca::CaCommand, config::ConfigCommand, flows::FlowsCommand,
    rules::RuleFilesCommand, system_proxy::SystemProxyCommand,
};
use crate::{CliError, Result};

/// What a command has to do with a running instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstanceUse {
    /// It is about the running instance.
    Talks,
    /// It reads a recording, whether an instance runs or not.
    Reads,
    /// It works on the files of the data directory, which are those of one instance.
    Files,
    /// It needs no data directory, or starts an instance.
    Stays,
}

impl CliCommand {
    const fn instance_use(&self) -> InstanceUse {
        match self {
            Self::Exec(args) if args.private => InstanceUse::Stays,
            Self::Browser(args) if args.private => InstanceUse::Stays,
            Self::Exec(_)
            | Self::Browser(_)
            | Self::Status(_)
            | Self::Top(_)
            | Self::Reload(_)
            | Self::Restart(_)
            | Self::Stop(_)
            | Self::Open(_)
            | Self::Token
            | Self::Pending(_)
            | Self::Approvals(_)
            | Self::Secrets(_)
            | Self::Sessions(_)
            | Self::Llm(_)
            | Self::SystemProxy(SystemProxyCommand::On { proxy: None })
            | Self::Rules(
                RuleFilesCommand::Proposals(_) | RuleFilesCommand::Apply { .. } | RuleFilesCommand::Dismiss { .. },
            )
            | Self::Flows(FlowsCommand::Tail(_) | FlowsCommand::Replay(_)) => InstanceUse::Talks,
            Self::Rules(RuleFilesCommand::List(args)) if args.files.is_empty() && !args.actions => InstanceUse::Talks,
            Self::Flows(
                FlowsCommand::List(_) | FlowsCommand::Show(_) | FlowsCommand::Export(_) | FlowsCommand::Diff { .. },
            )
            | Self::Rules(RuleFilesCommand::Explain(_))
            | Self::Conversations(_) => InstanceUse::Reads,
            Self::Run(_)
            | Self::Service(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Help(_)
            | Self::Redact(_)
            | Self::Rules(_)
            | Self::Audit(AuditCommand::Verify { .. })
            | Self::Ca(CaCommand::Create { .. })
            | Self::Config(
                ConfigCommand::Init { .. }
                | ConfigCommand::Check { file: Some(_), .. }
                | ConfigCommand::Env
                | ConfigCommand::Schema
                | ConfigCommand::Reference,
            ) => InstanceUse::Stays,
            #[cfg(feature = "demo")]
            Self::Demo(_) => InstanceUse::Stays,
            #[cfg(feature = "media")]
            Self::Media(_) => InstanceUse::Stays,
            _ => InstanceUse::Files,
        }
    }
}

/// The data directory of the only running instance, if the command means that one; `None` for the default directory.
///
/// # Errors
/// Several instances run, none of them with the default directory.
pub fn data_dir_of_instance(command: &CliCommand) -> Result<Option<PathBuf>> {
    let instance_use = command.instance_use();
    let default = DataDir::find(None).ok();
    if instance_use == InstanceUse::Stays || default.as_ref().is_some_and(|home| home.running_instance().is_some()) {
        return Ok(None);
    }
    let running = running_instances::running();
    let keeps = |home: &DataDir| match instance_use {
        InstanceUse::Reads => home.join("record").exists(),
        other => other == InstanceUse::Files,
    };
    match (default.filter(keeps), &running[..]) {
        (_, []) => Ok(None),
        (Some(home), running) => {
            let (shown, others) = (home.path().display(), running_instances::list(running));
            let what = if instance_use == InstanceUse::Reads { "recording in" } else { "data directory" };
            interflow_host::errln!("interflow: this is the {what} {shown}; other instances run:\n{others}");
            Ok(None)
        }
        (None, [(home, instance)]) => {
            let (shown, pid) = (home.path().display(), instance.pid);
            if !matches!(command, CliCommand::Exec(args) if args.quiet) {
                interflow_host::errln!("interflow: using the instance with the data directory {shown} (process {pid})");
            }
            Ok(Some(home.path().to_owned()))
        }
        (None, several) => {
            let is_program = matches!(command, CliCommand::Exec(_) | CliCommand::Browser(_));
            let or = if is_program { ", or add --private for an instance of its own" } else { "" };
            let others = running_instances::list(several);
            Err(CliError::Usage(format!(
                "several instances run, none with the default data directory; say which one{or}:\n{others}"
            )))
        }
    }
}
