//! Responses from files: paths confined to a folder.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;

/// Resolves a request's path below a folder; `None` if it would leave the folder by dots, escapes or symbolic links.
pub(crate) fn resolve_below(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    let mut out = PathBuf::new();
    for part in decoded.split(['/', '\\']).filter(|p| !p.is_empty() && *p != ".") {
        if part.contains('\0') {
            return None;
        }
        match Path::new(part).components().collect::<Vec<_>>()[..] {
            [Component::Normal(name)] => out.push(name),
            _ => return None,
        }
    }
    let whole = folder.join(out);
    // A path that does not exist cannot be outside the folder.
    let Ok(real) = whole.canonicalize() else { return Some(whole) };
    let folder = folder.canonicalize().ok()?;
    real.starts_with(folder).then_some(real)
}

/// The file for a path below a folder; `index.html` for a folder; `None` if there is none.
pub(crate) fn find_in_folder(folder: &Path, path: &str) -> Option<PathBuf> {
    let found = resolve_below(folder, path)?;
    if found.is_dir() {
        return ["index.html", "index.htm"].into_iter().map(|i| found.join(i)).find(|f| f.is_file());
    }
    found.is_file().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_traversal_out_of_the_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("a.txt"), "a").unwrap();
        std::fs::write(root.join("sub/index.html"), "i").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).unwrap();
        for (path, found) in [
            ("/a.txt", true),
            ("/a.txt?x=1", true),
            ("//./a.txt", true),
            ("/sub/", true),
            ("/sub", true),
            ("/%61.txt", true),
            ("/../secret", false),
            ("/%2e%2e/secret", false),
            ("/..%2fsecret", false),
            ("/..\\secret", false),
            ("/sub/../../secret", false),
            ("/link", false),
            ("/none", false),
            ("/", false),
            ("/a.txt%00", false),
        ] {
            assert_eq!(find_in_folder(&root, path).is_some(), found, "{path}");
        }
    }
}
