//! Settings: the keys of the configuration that can be set, a preview of a change, and the change.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use interflow_files::EditTurn;
use interflow_types::schema::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::api::edited::edits::run_edit;
use crate::api::input::StrictJson;
use crate::api::operations::handler::{OperationInput, OperationRequest};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::records::blocking;
use crate::settings::{AppliedSettings, SettingChange, SettingsEditor, SettingsError, SettingsPreview, SettingsView};
use crate::state::{AdminState, SharedState};

/// Bound on the settings of one request; there are fewer.
const MAX_CHANGES: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsDraft {
    changes: Vec<SettingChange>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsInput {
    changes: Vec<SettingChange>,
    /// `base` of the preview: if the file has changed since, the request fails.
    base: String,
}

/// The address of the client, for the audit log.
pub(crate) struct ClientAddress(String);

impl OperationInput for ClientAddress {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let parts = &request.parts;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Self(peer.map(|ConnectInfo(peer)| peer.ip().to_canonical().to_string()).unwrap_or_default()))
    }
}

fn editor(state: &AdminState) -> Result<Arc<dyn SettingsEditor>> {
    let message = "this instance has no configuration file that could be changed";
    state.settings.clone().ok_or_else(|| ApiError::unavailable("no_settings", message))
}

fn refused(error: SettingsError) -> ApiError {
    let (status, kind, message) = match error {
        SettingsError::Managed(why) => (StatusCode::FORBIDDEN, "managed", why),
        SettingsError::Overridden(why) => (StatusCode::CONFLICT, "overridden", why),
        SettingsError::Unusable(why) => (StatusCode::BAD_REQUEST, "bad_request", why),
        SettingsError::Invalid(why) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_config", why),
        SettingsError::ChangedMeanwhile(why) => (StatusCode::CONFLICT, "changed_meanwhile", why),
        SettingsError::Disk(why) => (StatusCode::INTERNAL_SERVER_ERROR, "disk", why),
    };
    ApiError::new(status, kind, message)
}

fn check_count(changes: &[SettingChange]) -> Result<()> {
    match changes.len() {
        0 => Err(ApiError::bad_request("`changes` is empty")),
        n if n > MAX_CHANGES => Err(ApiError::bad_request(format!("`changes` has more than {MAX_CHANGES} members"))),
        _ => Ok(()),
    }
}

/// Runs what reads files on a blocking thread.
async fn read_file<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SettingsError> + Send + 'static,
) -> Result<Json<T>> {
    blocking(work).await?.map(Json).map_err(refused)
}

pub async fn list(state: SharedState) -> Result<Json<SettingsView>> {
    let editor = editor(&state)?;
    read_file(move || editor.view()).await
}

/// `POST /settings/preview`: nothing is changed.
pub async fn preview(
    state: SharedState,
    StrictJson(draft): StrictJson<SettingsDraft>,
) -> Result<Json<SettingsPreview>> {
    check_count(&draft.changes)?;
    let editor = editor(&state)?;
    read_file(move || editor.preview(&draft.changes)).await
}

/// `POST /settings`: writes the file and reloads it, or changes nothing.
pub async fn change(
    state: SharedState,
    caller: Caller,
    ClientAddress(client): ClientAddress,
    StrictJson(input): StrictJson<SettingsInput>,
) -> Result<Json<AppliedSettings>> {
    check_count(&input.changes)?;
    caller.record_detail(json!({ "keys": input.changes.iter().map(|c| &c.key).collect::<Vec<_>>() }));
    let editor = editor(&state)?;
    let SettingsInput { changes, base } = input;
    let apply = move |turn: &EditTurn| editor.apply(turn, &base, &changes, &client).map(Json).map_err(refused);
    run_edit(&state, apply).await
}
