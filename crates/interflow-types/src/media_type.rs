//! Media types by file name, for files that are served.

use std::path::Path;

use crate::data_file;

/// The media type of a file by the extension of its name, in either case.
pub fn by_file_name(name: &str) -> Option<&'static str> {
    // By extension alone: files are served as their names promise, without looking into them.
    let ending = Path::new(name).extension()?.to_str()?.to_ascii_lowercase();
    let mut types = data_file::records(include_str!("../data/media_types.txt"));
    types.find(|[endings, _]| data_file::has_word(endings, &ending)).map(|[_, media_type]| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_follows_the_file_extension() {
        assert_eq!(by_file_name("x/a.HTML"), Some("text/html; charset=utf-8"));
        assert_eq!((by_file_name("a.unknown"), by_file_name("a")), (None, None));
    }
}
