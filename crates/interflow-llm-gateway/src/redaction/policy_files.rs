//! Active policies for viewing and editing: their files, the routes that use them, and replacing a policy's text.

use std::io;
use std::path::{Path, PathBuf};

use interflow_files::{EditError, EditTurn, EditedFile, FileAccess, is_same_text, optional};
use interflow_redact::{OutboundMode, Policy, PolicyProblem, RedactMode, RedactRoute};
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use super::RedactionService;
use super::effective_policy::{RedactSettings, default_route_name, policy_file, route_name};

/// The initial text of the data directory's policy.
const EMPTY_POLICY: &str = include_str!("../../data/empty_policy.toml");

/// A policy's file, as the web UI lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyFileView {
    pub file: PathBuf,
    /// Whether the file exists; otherwise the built-in policy is active.
    pub exists: bool,
    pub name: String,
    /// The routes that use it; empty if only keys select it.
    pub routes: Vec<String>,
}

/// Requests with the same redaction settings, as the web UI lists them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RedactionRoute")]
pub struct RouteView {
    /// `gateway`, `intercepted`, or an exception's name.
    pub name: String,
    /// The mode for requests; `None` in an exception inherits it.
    pub mode: Option<RedactMode>,
    /// The mode for findings in responses; `None` in an exception inherits it.
    pub responses: Option<OutboundMode>,
    pub file: PathBuf,
    /// The exception's conditions; `None` for `gateway` and `intercepted`.
    pub exception: Option<RedactRoute>,
}

/// Why a policy's file was not changed.
#[derive(Debug)]
pub enum PolicyUpdateError {
    /// The file is not that of an active policy. Arbitrary files can be neither read nor written.
    Unknown,
    /// The text is not a valid policy.
    Bad(PolicyProblem),
    /// The section would become invalid for another reason, such as a file that has disappeared since.
    Section(String),
    Io(io::Error),
}

impl RedactionService {
    /// The active policies, the default one first.
    pub fn policies(&self) -> Vec<PolicyFileView> {
        let settings = self.settings();
        let mut all: Vec<PolicyFileView> = Vec::new();
        for route in route_views(&settings) {
            match all.iter_mut().find(|p| p.file == route.file) {
                Some(known) => known.routes.push(route.name),
                None => all.push(PolicyFileView {
                    exists: route.file.exists(),
                    name: settings.policy_of(&route).name().to_owned(),
                    file: route.file,
                    routes: vec![route.name],
                }),
            }
        }
        for (name, redactor) in &settings.policies {
            let file = listed_file(&settings, name);
            if all.iter().all(|p| p.file != file) {
                let name = redactor.policy().name().to_owned();
                all.push(PolicyFileView { exists: file.exists(), name, file, routes: Vec::new() });
            }
        }
        all
    }

    /// The routes, in order of precedence; `gateway` and `intercepted` apply if no exception matches.
    pub fn routes(&self) -> Vec<RouteView> {
        route_views(&self.settings())
    }

    /// The text of an active policy, or the initial one if its file does not exist yet.
    ///
    /// # Errors
    /// The file is not that of an active policy, or it cannot be read.
    pub fn policy_text(&self, file: &Path) -> Result<String, PolicyUpdateError> {
        self.check_known(file)?;
        let text = optional(std::fs::read_to_string(file)).map_err(PolicyUpdateError::Io)?;
        Ok(text.unwrap_or_else(|| EMPTY_POLICY.to_owned()))
    }

    /// Replaces a policy's text if it is still `base`, the one that the change is based on: validates it, writes the file,
    /// and activates it for new requests. Requests in progress keep the old one.
    ///
    /// # Errors
    /// The text or the section is invalid, the text has changed, or the file cannot be written. Nothing was changed.
    pub fn replace_policy(
        &self,
        turn: &EditTurn,
        file: &Path,
        base: Option<&str>,
        text: String,
    ) -> Result<(), EditError<PolicyUpdateError>> {
        self.check_known(file).map_err(EditError::Rejected)?;
        // The part that takes long for some texts, before others have to wait for this change.
        Policy::check(&text).map_err(|problem| EditError::Rejected(PolicyUpdateError::Bad(problem)))?;
        // The policies are compiled together: from the compilation to the activation, no other file of them changes.
        let _alone = self.changing.lock();
        let now = self.settings();
        let compile = |text: &str| {
            RedactSettings::new(&now.config, &now.folder, &self.memo, &self.egress, Some(&*now), Some((file, text)))
                .map_err(PolicyUpdateError::Section)
        };
        let activate = |settings| {
            self.activate(settings);
            Ok(())
        };
        let is_base = |now: Option<&str>| base.is_none_or(|base| is_same_text(now.unwrap_or(EMPTY_POLICY), base));
        EditedFile::new(file, FileAccess::Keep, compile, activate).replace(turn, text, is_base)
    }

    fn check_known(&self, file: &Path) -> Result<(), PolicyUpdateError> {
        let settings = self.settings();
        let listed = settings.policies.keys().any(|name| listed_file(&settings, name) == file);
        let is_listed = listed || route_views(&settings).iter().any(|r| r.file == file);
        if is_listed { Ok(()) } else { Err(PolicyUpdateError::Unknown) }
    }
}

/// The file of a policy in `redact.policies`.
fn listed_file(settings: &RedactSettings, name: &str) -> PathBuf {
    settings.config.policies.get(name).map(|file| settings.folder.join(file)).unwrap_or_default()
}

fn route_views(settings: &RedactSettings) -> Vec<RouteView> {
    let config = &settings.config;
    let main = policy_file(config, &settings.folder);
    let plain = |gateway: bool| RouteView {
        name: default_route_name(gateway).to_owned(),
        mode: Some(if gateway { config.gateway } else { config.proxied }),
        responses: Some(config.responses),
        file: main.clone(),
        exception: None,
    };
    let exception = |(i, route): (usize, &RedactRoute)| RouteView {
        name: route_name(i, route),
        mode: route.mode,
        responses: route.responses,
        file: route.policy.as_ref().map_or_else(|| main.clone(), |p| settings.folder.join(p)),
        exception: Some(route.clone()),
    };
    let plain = [plain(true), plain(false)];
    plain.into_iter().chain(config.route.iter().enumerate().map(exception)).collect()
}
