//! `GET /openapi.json`: the committed document, which a test compares with the one generated from the table of operations.

use std::sync::LazyLock;

use axum::Json;
use serde_json::Value;

pub async fn document() -> Json<Value> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../../../../docs/reference/openapi.json")).expect("a test parses it")
    });
    Json(DOCUMENT.clone())
}
