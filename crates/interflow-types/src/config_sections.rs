//! Sections of the configuration: structs whose fields may all be left out.

/// Declares structs of the configuration with their default values: those behind `=`, and else the type's. Unknown keys
/// are errors; fields without a value are not serialised.
#[macro_export]
macro_rules! config_sections {
    (@default) => { Default::default() };
    (@default $value:expr) => { $value };
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(= $value:expr)?,)+
        }
    )+) => {$(
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, $crate::schema::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* #[serde(skip_serializing_if = "interflow_types::is_unset")] pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::config_sections!(@default $($value)?),)+ }
            }
        }
    )+};
}

/// Whether a value is left out when it is serialised: an option without a value.
pub fn is_unset<T: serde::Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}
