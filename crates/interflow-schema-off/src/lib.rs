//! The derive macro `JsonSchema` of builds without the feature `schema`: it accepts what schemars' own accepts, and
//! generates nothing.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

#[proc_macro_derive(JsonSchema, attributes(schemars, serde, validate))]
pub fn derive_json_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
