//! Cargo features that this build leaves out, by the configuration sections that need them.

/// Sections, the feature that each needs, and whether this build has it.
const SECTIONS: [(&str, &str, bool); 1] = [("media", "media", cfg!(feature = "media"))];

/// The feature that a top-level section of the configuration needs, if this build leaves it out.
pub fn left_out(section: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|(name, _, built)| *name == section && !built).map(|(_, feature, _)| *feature)
}

/// The error about a section whose feature is left out.
pub fn missing(section: &str, feature: &str) -> String {
    format!("`{section}` needs the feature `{feature}`, which this build leaves out: build with `--features {feature}`")
}

#[cfg(test)]
#[cfg(not(feature = "media"))]
mod tests {
    use crate::instance::config::parse;

    #[test]
    fn the_section_of_a_feature_that_is_left_out_names_the_feature() {
        let error = parse("[media]\nenabled = true\n", "c.toml", None, &[]).unwrap_err().to_string();
        assert!(error.starts_with("c.toml:1:2: `media` needs the feature `media`"), "{error}");
        assert!(error.contains("--features media"), "{error}");
    }
}
