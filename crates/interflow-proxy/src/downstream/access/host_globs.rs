//! Lists of host globs.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use interflow_types::Host;

/// A compiled list of host globs. `*` crosses dots: `*.example.com` matches names of any depth below `example.com`.
#[derive(Clone, Debug, Default)]
pub struct HostGlobs {
    set: GlobSet,
    empty: bool,
}

impl HostGlobs {
    /// Compiles the globs.
    ///
    /// # Errors
    /// Names the invalid glob and what is wrong with it.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Self, String> {
        let mut builder = GlobSetBuilder::new();
        for glob in globs {
            let text = glob.as_ref();
            let text = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
            let glob = GlobBuilder::new(text)
                .case_insensitive(true)
                .build()
                .map_err(|e| format!("`{}` is not a host glob: {}", glob.as_ref(), e.kind()))?;
            builder.add(glob);
        }
        let set = builder.build().map_err(|e| e.to_string())?;
        Ok(Self { set, empty: globs.is_empty() })
    }

    pub fn is_empty(&self) -> bool {
        self.empty
    }

    pub fn matches(&self, host: &Host) -> bool {
        if self.empty {
            return false;
        }
        match host {
            Host::Name(name) => self.set.is_match(name.trim_end_matches('.')),
            Host::Ip(ip) => self.set.is_match(ip.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_hosts() {
        let globs = HostGlobs::new(&["*.example.com", "Exact.Test", "10.*", "[::1]"]).unwrap();
        for (host, matches) in [
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("example.com", false),
            ("exact.test", true),
            ("exact.test.", true),
            ("notexact.test", false),
            ("10.1.2.3", true),
            ("110.1.2.3", false),
            ("[::1]", true),
        ] {
            assert_eq!(globs.matches(&Host::parse(host).unwrap()), matches, "{host}");
        }
    }

    #[test]
    fn a_bad_glob_is_named() {
        let e = HostGlobs::new(&["b", "a["]).map(|_| ()).unwrap_err();
        assert!(e.starts_with("`a[` is not a host glob"), "{e}");
    }
}
