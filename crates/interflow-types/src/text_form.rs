//! Types whose serialised form is their text.

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
