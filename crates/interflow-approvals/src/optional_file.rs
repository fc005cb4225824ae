//! Files that need not be there.

use std::path::Path;

/// The text of a file; `None` if there is no file.
pub(super) fn read_optional(path: &Path) -> Result<Option<String>, String> {
    interflow_files::optional(std::fs::read_to_string(path)).map_err(|e| format!("{}: {e}", path.display()))
}
