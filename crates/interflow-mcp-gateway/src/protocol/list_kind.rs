//! The lists of what servers offer.

use interflow_types::labelled_enum;

labelled_enum! {
    /// A list, labelled with the method by which it is asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum ListKind {
        Tools "tools/list",
        Prompts "prompts/list",
        Resources "resources/list",
        ResourceTemplates "resources/templates/list",
    }
}

impl ListKind {
    pub fn from_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == method)
    }

    /// The notification that the list changed.
    pub const fn changed_method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::ResourceTemplates => "notifications/resources/list_changed",
        }
    }

    /// The member of the result that has the list.
    pub const fn member(self) -> &'static str {
        match self {
            Self::ResourceTemplates => "resourceTemplates",
            kind => kind.capability(),
        }
    }

    /// The capability that a server with such a list declares.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::ResourceTemplates => "resources",
        }
    }
}
