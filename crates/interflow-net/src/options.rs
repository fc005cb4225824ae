//! Options with their default values.

/// Declares a struct of options with the default values of its fields: those behind `=`, and else the type's.
macro_rules! options {
    (@default) => { Default::default() };
    (@default $value:expr) => { $value };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(= $value:expr)?,)+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: options!(@default $($value)?),)+ }
            }
        }
    };
}
