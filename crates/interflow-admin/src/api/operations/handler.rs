//! Handlers of operations: async functions whose inputs say what is read from a request. Their types are erased here, so
//! that the router, the checks and the reading of bodies exist once rather than for each handler.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Path, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use interflow_types::schema::JsonSchema;
use serde::Serialize;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;

use crate::api::operations::context::OperationContext;
#[cfg(all(test, feature = "schema"))]
use crate::api::operations::tests::descriptions::{Described, DescribedHandler};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::records::Records;
use crate::state::SharedState;

/// Maximum size of a JSON body, in bytes; a replay request contains the body to send.
const MAX_JSON: usize = 64 << 20;

pub(crate) type OperationFuture = Pin<Box<dyn Future<Output = Result<Response>> + Send>>;

/// Operations are described in tests alone.
#[cfg(not(all(test, feature = "schema")))]
mod undescribed {
    pub(crate) trait Described {}
    impl<T> Described for T {}
    pub(crate) trait DescribedHandler {}
    impl<T> DescribedHandler for T {}
}
#[cfg(not(all(test, feature = "schema")))]
use undescribed::{Described, DescribedHandler};

/// A request, from which the inputs of a handler are taken.
pub(crate) struct OperationRequest {
    pub context: OperationContext,
    pub parts: Parts,
    body: Body,
    path: std::vec::IntoIter<String>,
    json: Option<Result<Bytes>>,
}

impl OperationRequest {
    /// The next parameter of the path.
    pub fn path_value(&mut self) -> Result<String> {
        self.path.next().ok_or_else(|| ApiError::internal("the path has fewer parameters than the handler reads"))
    }

    /// The JSON body, `{}` if it is absent.
    pub fn json(&mut self) -> Result<Bytes> {
        self.json.take().unwrap_or_else(|| Err(ApiError::internal("the body was not read")))
    }
}

pub(crate) trait OperationInput: Described + Sized {
    /// Whether it is read from a JSON body.
    const IS_JSON: bool = false;

    /// # Errors
    /// The request does not hold the input.
    fn read(request: &mut OperationRequest) -> Result<Self>;
}

/// What a handler returns.
pub(crate) trait OperationOutput: Described {
    fn into_outcome(self) -> Result<Response>;
}

/// A handler without its types.
pub(crate) trait OperationHandler: DescribedHandler + Send + Sync {
    fn reads_json(&self) -> bool;

    fn start(&self, request: OperationRequest) -> OperationFuture;
}

impl dyn OperationHandler {
    /// Answers a request whose caller has the rights for it.
    ///
    /// # Errors
    /// The request is not as the handler reads it, or the handler refuses it.
    pub async fn run(&self, context: OperationContext, request: Request) -> Result<Response> {
        let (mut parts, mut body) = request.into_parts();
        let invalid = |e: axum::extract::rejection::RawPathParamsRejection| {
            ApiError::bad_request(format!("Invalid URL: {}", e.body_text()))
        };
        let (mut path, mut json) = (Vec::new(), None);
        // What a program calls in this process has its path's values beside it.
        if let Some(PathValues(values)) = parts.extensions.remove() {
            path = values;
        } else {
            let params = RawPathParams::from_request_parts(&mut parts, &()).await.map_err(invalid)?;
            path.extend(params.iter().map(|(_, value)| value.to_owned()));
        }
        if self.reads_json() {
            json = Some(read_json(&parts.headers, std::mem::take(&mut body)).await);
        }
        self.start(OperationRequest { context, parts, body, path: path.into_iter(), json }).await
    }
}

/// The values of a path's parameters, of a request that no router has matched.
#[derive(Clone)]
pub(crate) struct PathValues(pub Vec<String>);

pub(crate) struct TypedHandler<F, Inputs>(F, PhantomData<fn() -> Inputs>);

/// Erases the types of a handler.
pub(crate) fn erase<F, Inputs>(handler: F) -> Arc<dyn OperationHandler>
where
    TypedHandler<F, Inputs>: OperationHandler + 'static,
{
    Arc::new(TypedHandler(handler, PhantomData))
}

macro_rules! typed_handler {
    ($($input:ident),*) => {
        impl<F, Fut, Out, $($input),*> OperationHandler for TypedHandler<F, ($($input,)*)>
        where
            F: Fn($($input),*) -> Fut + Copy + Send + Sync + 'static,
            Fut: Future<Output = Out> + Send + 'static,
            Out: OperationOutput + 'static,
            $($input: OperationInput + Send + 'static,)*
        {
            fn reads_json(&self) -> bool {
                false $(|| $input::IS_JSON)*
            }

            #[allow(non_snake_case, unused_mut, unused_variables, reason = "for any number of inputs")]
            fn start(&self, mut request: OperationRequest) -> OperationFuture {
                let handler = self.0;
                $(let $input = match $input::read(&mut request) {
                    Ok(input) => input,
                    Err(e) => return Box::pin(std::future::ready(Err(e))),
                };)*
                Box::pin(async move { handler($($input),*).await.into_outcome() })
            }
        }
    };
}

typed_handler!();
typed_handler!(A);
typed_handler!(A, B);
typed_handler!(A, B, C);
typed_handler!(A, B, C, D);

/// Inputs that are read from what is known of a request.
macro_rules! request_inputs {
    ($($input:ty: $read:expr,)*) => {$(
        impl OperationInput for $input {
            fn read(request: &mut OperationRequest) -> Result<Self> {
                let read: fn(&OperationRequest) -> Result<Self> = $read;
                read(request)
            }
        }
    )*};
}
request_inputs! {
    SharedState: |request| request.context.instance().cloned(),
    OperationContext: |request| Ok(request.context.clone()),
    Records: |request| Ok(request.context.records().clone()),
    TokenLifetimes: |request| Ok(request.context.token_lifetimes()),
    Caller: |request| Self::of(&request.parts.extensions),
    HeaderMap: |request| Ok(request.parts.headers.clone()),
}

impl OperationInput for Body {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        Ok(std::mem::take(&mut request.body))
    }
}

impl OperationInput for Path<String> {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        request.path_value().map(Self)
    }
}

impl OperationInput for Path<u64> {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let text = request.path_value()?;
        let invalid = || ApiError::bad_request(format!("Invalid URL: Cannot parse `{text}` to a `u64`"));
        text.parse().map(Self).map_err(|_| invalid())
    }
}

/// The response that opens a WebSocket, and the connection that it opens.
pub(crate) struct SocketUpgrade(pub Response, pub OnUpgrade);

impl OperationInput for SocketUpgrade {
    fn read(request: &mut OperationRequest) -> Result<Self> {
        let refused = |why| ApiError::new(StatusCode::UPGRADE_REQUIRED, "websocket", why);
        let connection = request.parts.extensions.remove::<OnUpgrade>();
        let connection = connection.ok_or_else(|| refused("this connection cannot be upgraded".to_owned()))?;
        let response = create_response_with_body(&Request::from_parts(request.parts.clone(), ()), Body::empty);
        response.map(|response| Self(response, connection)).map_err(|e| refused(e.to_string()))
    }
}

impl<T: Serialize + JsonSchema> OperationOutput for Json<T> {
    fn into_outcome(self) -> Result<Response> {
        let json = serde_json::to_vec(&self.0).map_err(|e| ApiError::internal(e.to_string()))?;
        Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response())
    }
}

impl OperationOutput for StatusCode {
    fn into_outcome(self) -> Result<Response> {
        Ok(self.into_response())
    }
}

/// A response that a handler builds itself: its media type is known only at run time, so it is described as bytes.
impl OperationOutput for Response {
    fn into_outcome(self) -> Result<Response> {
        Ok(self)
    }
}

/// A response of JSON lines of this type.
pub(crate) struct JsonLines<T>(pub Response, pub PhantomData<fn() -> T>);

impl<T: JsonSchema> OperationOutput for JsonLines<T> {
    fn into_outcome(self) -> Result<Response> {
        Ok(self.0)
    }
}

/// A WebSocket, whose messages are JSON of these types: the client's, and the server's.
pub(crate) struct Socket<C, S>(pub Response, pub PhantomData<fn(C) -> S>);

impl<C: JsonSchema, S: JsonSchema> OperationOutput for Socket<C, S> {
    fn into_outcome(self) -> Result<Response> {
        Ok(self.0)
    }
}

impl<T: OperationOutput> OperationOutput for Result<T, ApiError> {
    fn into_outcome(self) -> Result<Response> {
        self?.into_outcome()
    }
}

/// Reads a JSON body; an absent one is `{}`.
///
/// # Errors
/// It is too large, or not sent as JSON.
pub(crate) async fn read_json(headers: &HeaderMap, body: Body) -> Result<Bytes> {
    let body =
        axum::body::to_bytes(body, MAX_JSON).await.map_err(|_| ApiError::too_large("the body", MAX_JSON as u64))?;
    // Without a body there is no media type to check.
    if body.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    if media_type(headers).as_deref() != Some("application/json") {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(ApiError::new(status, "media_type", "the body must be application/json"));
    }
    Ok(body)
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}
