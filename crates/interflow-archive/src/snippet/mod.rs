//! Requests as code: one table of generators, used for recorded flows and for composed requests.

mod compiled;
mod curl;
mod literal;
mod script;
mod shell;

use std::io::{self, Write};

use interflow_store::FlowRecord;

use super::request::ReplayableRequest;
use super::{ArchiveFormat, BodySource};

/// A generator of one tool or language.
pub(crate) struct Generator {
    format: ArchiveFormat,
    /// What begins a comment line.
    comment: &'static str,
    render: fn(&ReplayableRequest) -> String,
}

const GENERATORS: &[Generator] = &[
    Generator { format: ArchiveFormat::Curl, comment: "#", render: curl::command },
    Generator { format: ArchiveFormat::Httpie, comment: "#", render: shell::httpie },
    Generator { format: ArchiveFormat::Fetch, comment: "//", render: script::fetch },
    Generator { format: ArchiveFormat::Python, comment: "#", render: script::python },
    Generator { format: ArchiveFormat::Go, comment: "//", render: compiled::go },
    Generator { format: ArchiveFormat::Java, comment: "//", render: compiled::java },
    Generator { format: ArchiveFormat::CSharp, comment: "//", render: compiled::csharp },
    Generator { format: ArchiveFormat::Php, comment: "//", render: script::php },
    Generator { format: ArchiveFormat::PowerShell, comment: "#", render: shell::powershell },
    Generator { format: ArchiveFormat::Rust, comment: "//", render: compiled::rust },
];

impl Generator {
    /// The generator of a format that is code.
    pub(crate) fn find(format: ArchiveFormat) -> Option<&'static Self> {
        GENERATORS.iter().find(|g| g.format == format)
    }

    /// Writes the code for a recorded request; a comment for a tunnel.
    pub(crate) fn write(&self, out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        match ReplayableRequest::read(row, contents)? {
            Some(request) => out.write_all(self.text(&request).as_bytes()),
            None => writeln!(out, "{} {} {}: a tunnel has no request", self.comment, row.id, row.authority),
        }
    }

    fn text(&self, request: &ReplayableRequest) -> String {
        let mut out = String::new();
        // PHP code begins with its tag, and comments come after it.
        if self.format == ArchiveFormat::Php {
            out.push_str("<?php\n");
        }
        for note in &request.notes {
            out.push_str(&format!("{} {note}\n", self.comment));
        }
        out + &(self.render)(request)
    }
}

/// The code for a request that was not recorded; `None` if the format is not code.
pub fn for_request(format: ArchiveFormat, request: &interflow_types::RequestHead, body: &[u8]) -> Option<String> {
    Generator::find(format).map(|generator| generator.text(&ReplayableRequest::from_head(request, body)))
}
