//! The page "Intercept": addresses and files for clients, the QR code for phones, and browsers on this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::ConnectInfo;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use interflow_types::FORWARDING_FIELDS;
use interflow_types::schema::JsonSchema;
use qrcode::QrCode;
use qrcode::render::svg;
use serde::Serialize;

use crate::api::input::StrictJson;
use crate::api::operations::handler::{OperationInput, OperationRequest};
use crate::error::{ApiError, Result};
use crate::records::blocking;
use crate::setup::{BrowserRequest, MachineSetup, SetupFacts};
use crate::state::{AdminState, SharedState};

/// The path of the proxy port's page for phones.
const PHONE_PAGE: &str = "/setup";

#[derive(Serialize, JsonSchema)]
pub(crate) struct SetupView {
    #[serde(flatten)]
    facts: SetupFacts,
    /// Page with the certificate and the steps for a phone; null if other machines cannot reach the proxy.
    phone_page: Option<String>,
    /// Whether the request comes from the machine of the instance, which is where browsers are started.
    local: bool,
}

/// Whether a request comes from this machine, and not through a reverse proxy.
pub(crate) struct IsLocal(bool);

impl OperationInput for IsLocal {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let parts = &request.parts;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        // A reverse proxy on this machine forwards requests of others.
        let is_forwarded = FORWARDING_FIELDS.iter().any(|name| parts.headers.contains_key(*name));
        Ok(Self(peer.is_some_and(|ip| ip.to_canonical().is_loopback()) && !is_forwarded))
    }
}

async fn facts(setup: &MachineSetup) -> Result<SetupFacts> {
    let facts = Arc::clone(&setup.facts);
    // It reads files and folders.
    blocking(move || facts()).await?.map_err(ApiError::internal)
}

fn machine(state: &AdminState) -> Result<&MachineSetup> {
    let none = || ApiError::unavailable("no_setup", "this instance does not know its machine");
    state.setup.as_ref().ok_or_else(none)
}

fn phone_page(facts: &SetupFacts) -> Option<String> {
    facts.lan_proxy.map(|address| format!("http://{address}{PHONE_PAGE}"))
}

/// `GET /setup`: how clients reach this instance.
pub async fn setup(state: SharedState, IsLocal(local): IsLocal) -> Result<Json<SetupView>> {
    let facts = facts(machine(&state)?).await?;
    Ok(Json(SetupView { phone_page: phone_page(&facts), facts, local }))
}

/// `GET /setup/qr`: the address of the page for phones as a QR code.
pub async fn qr_code(state: SharedState) -> Result<Response> {
    let page = phone_page(&facts(machine(&state)?).await?).ok_or_else(|| {
        let message = "the proxy listens on loopback only: a phone cannot reach it";
        ApiError::new(StatusCode::NOT_FOUND, "not_reachable", message)
    })?;
    let code = QrCode::new(page).map_err(|e| ApiError::internal(e.to_string()))?;
    // Dark on light in every theme: some cameras read nothing else.
    let image = code.render::<svg::Color<'_>>().min_dimensions(200, 200).build();
    Ok(([(header::CONTENT_TYPE, "image/svg+xml")], image).into_response())
}

/// `POST /browsers`: starts a browser on the machine of the instance, for someone who sits at it.
pub async fn start_browser(
    state: SharedState,
    IsLocal(local): IsLocal,
    StrictJson(request): StrictJson<BrowserRequest>,
) -> Result<StatusCode> {
    let setup = machine(&state)?;
    if !local {
        let message = "browsers are started only for requests from the machine of this instance";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not_local", message)
            .remedy("run `interflow browser` on the machine that has the display"));
    }
    let installed = facts(setup).await?.browsers;
    // Names only: a path would be a program of the caller's choice.
    let name = match request.browser {
        Some(name) if installed.contains(&name) => name,
        Some(name) => return Err(ApiError::bad_request(format!("`{name}` is not an installed browser"))),
        None => installed.into_iter().next().ok_or_else(|| ApiError::bad_request("no browser is installed"))?,
    };
    let failed = |why: String| ApiError::unprocessable("browser_failed", why);
    (setup.start_browser)(name).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}
