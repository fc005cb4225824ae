//! All mistakes of a configuration file, for `interflow config check`: what is wrong is left out, and the rest read again.

use interflow_codec::document::Document;
use serde::Deserialize as _;

use super::InterflowConfig;
use super::load::{LoadError, describe};

/// The most mistakes that are reported at once.
const MAX_MISTAKES: usize = 20;

/// The mistakes of this text, in the order in which they are found. Empty if it is not TOML at all: of errors in the
/// syntax only the first is known.
pub fn mistakes(text: &str, place: &str) -> Vec<LoadError> {
    let mut mistakes = Vec::new();
    let Ok(mut document) = Document::parse_toml(text) else { return mistakes };
    while mistakes.len() < MAX_MISTAKES {
        let Err(error) = InterflowConfig::deserialize(document.deserializer()) else { break };
        mistakes.push(describe(&error, place));
        let Some(rest) = error.position().and_then(|place| document.without(place)) else { break };
        document = rest;
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_has_its_place() {
        let text = "[proxi]\nx = 1\n[timeouts]\nheader_timeout = \"soon\"\nconnect = \"1s\"\n[intercept]\nmode = \"al\"\n\
                    exclude = [\"a.test\"]\n[[quota.rule]]\nper = \"user\"\n";
        let found: Vec<String> = mistakes(text, "c.toml").iter().map(ToString::to_string).collect();
        let places: Vec<&str> = found.iter().map(|m| m.split(": ").next().unwrap_or_default()).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        for place in ["c.toml:1:2", "c.toml:4:18", "c.toml:7:8", "c.toml:10:1"] {
            assert!(sorted.contains(&place), "{place}: {found:#?}");
        }
        assert!(found.iter().any(|m| m.ends_with("unknown value `al`: did you mean `all`?")), "{found:#?}");
        assert_eq!(mistakes("[timeouts]\nheader_timeout = \"7s\"", "c.toml"), []);
        assert_eq!(mistakes("x = = 1", "c.toml"), []);
    }

    #[test]
    fn a_file_of_mistakes_is_reported_in_part() {
        let text: String = (0..100).map(|n| format!("key_{n} = 1\n")).collect();
        assert_eq!(mistakes(&text, "c.toml").len(), MAX_MISTAKES);
    }
}
