//! Types whose serialised form is their text, enums with labels, and sections of the configuration.

/// Implements `Serialize` by `Display` and `Deserialize` by `FromStr`.
#[macro_export]
macro_rules! serialize_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// An enum whose variants have labels, each written behind its variant.
#[macro_export]
macro_rules! labelled_enum {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident $label:literal,)* }) => {
        $(#[$attribute])*
        $vis enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All variants, in the order of their discriminants.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$variant),*];

            /// The published label.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}

serialize_as_text!(crate::FlowId, crate::Authority);

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

/// Reads a list or a table that is not empty: one that is written, and empty, matches nothing, or everything, and hardly
/// by intent.
///
/// # Errors
/// It is empty, or cannot be read.
pub fn not_empty<'de, D: serde::Deserializer<'de>, T: serde::Deserialize<'de>>(from: D) -> Result<T, D::Error>
where
    for<'t> &'t T: IntoIterator,
{
    let all = T::deserialize(from)?;
    if (&all).into_iter().next().is_none() {
        return Err(serde::de::Error::custom("it is empty: write what belongs in it, or leave it out"));
    }
    Ok(all)
}

/// Whether a value is left out when it is serialised: an option without a value.
pub fn is_unset<T: serde::Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}
