//! The detection engine: returns findings with offsets in the original text.

use std::cell::RefCell;

use crate::detect::{self, Finding, KindFilter, NameWeights, ScanState};
use crate::text::normalized_text::normalize;
use crate::text::token::TokenList;

/// Searches for what a policy enables. Cheap to share between threads; the buffers are per thread.
#[derive(Debug)]
pub(crate) struct Detector {
    pub wants: KindFilter,
    pub names: &'static NameWeights,
}

thread_local! {
    static TOKENS: RefCell<TokenList> = RefCell::default();
}

impl Detector {
    pub fn new(wants: KindFilter) -> Self {
        Self { wants, names: NameWeights::committed() }
    }

    /// All findings, in the order of the detectors; they may overlap. `lead` is the length of a JSON member's name before
    /// its value. `model` is what a model found in the text: its names become features of candidates, the rest is left
    /// out.
    pub fn find_with_model(&self, text: &str, lead: usize, model: Option<Vec<Finding>>) -> Vec<Finding> {
        let (plain, map) = normalize(text);
        let model = model.map(|m| detect::ModelVotes::new(m, &map));
        let mut findings = Vec::new();
        TOKENS.with_borrow_mut(|tokens| {
            // The list is reused: each thread scans thousands of short texts.
            tokens.tokenize(&plain);
            tokens.capitalize_known_words(&plain);
            let mut scan = ScanState {
                text: &plain,
                bytes: plain.as_bytes(),
                tokens,
                wants: &self.wants,
                names: self.names,
                model: model.as_ref(),
                member_value: if lead == 0 { usize::MAX } else { map.derived(lead) },
                found: &mut findings,
                runs: detect::ByteRunCache::default(),
                languages: std::cell::OnceCell::new(),
            };
            detect::detect(&mut scan);
        });
        // Offsets are those of the normalized text until here.
        if !map.is_identity() {
            for finding in &mut findings {
                finding.start = map.start(finding.start);
                finding.end = map.end(finding.end);
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::steps;

    impl Default for Detector {
        fn default() -> Self {
            Self::new(KindFilter::default())
        }
    }

    impl Detector {
        fn find(&self, text: &str) -> Vec<Finding> {
            self.find_with_model(text, 0, None)
        }
    }

    /// The steps of detection on `unit` repeated to about `bytes` bytes.
    fn steps_over(unit: &str, bytes: usize) -> u64 {
        let text = unit.repeat(bytes / unit.len());
        steps::take();
        Detector::default().find(&text);
        steps::take()
    }

    /// Twice the text may take twice the steps, with a small tolerance where limits apply.
    fn assert_linear(unit: &str, sizes: &[usize]) {
        let steps: Vec<u64> = sizes.iter().map(|n| steps_over(unit, *n)).collect();
        for (pair, size) in steps.windows(2).zip(sizes.windows(2)) {
            let growth = pair[1] as f64 / pair[0].max(1000) as f64;
            assert!(
                growth < 1.3 * size[1] as f64 / size[0] as f64,
                "{unit:?} takes {steps:?} steps over {sizes:?} bytes"
            );
        }
        let each = steps[steps.len() - 1] / sizes[sizes.len() - 1] as u64;
        assert!(each < 400, "{unit:?} takes {each} steps a byte");
    }

    #[test]
    fn the_worst_repeated_input_of_every_detector_takes_linear_time() {
        for unit in [
            "eyJ.",
            "eyJhbGciOiJIUzI1NiJ9.",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkw.",
            "sl.",
            "SG.",
            "hvs.",
            "sk.eyJ",
            "1//0=",
            "Lake-",
            "García-",
            "a://b:cdef@d?",
            "-----BEGIN PRIVATE KEY-----",
            "a@b.",
            "1.2.",
            "$6$",
            "$6$aB$",
            "{SSHA}aB",
            "h:5432:d:u:",
            "mysql -p",
            "sshpass -p '",
            "password\", \"",
            "variable \"password\" { default ",
            "password value",
            "last_name: \"",
            "zip=",
            "<password>",
            "password: a&",
            "0.8147, ",
            "48.8584° N, ",
            "lat=1.2345 ",
            "12.20.31.4, ",
            "1204 318 4402  ",
            "call me 5551234567, ",
            "Gauss-",
            "Monte Carlo ",
            "Gauss-Seidel fixed ",
        ] {
            assert_linear(unit, &[50_000, 100_000, 200_000]);
        }
    }

    #[test]
    fn the_weights_decide_what_is_a_name() {
        let text = "She lives in Reykjavik with Ilmari.";
        let kinds = |names: &'static NameWeights| {
            Detector { names, ..Detector::default() }.find(text).iter().map(|f| f.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(NameWeights::committed()), [crate::Kind::Location, crate::Kind::Person]);
        assert_eq!(kinds(Box::leak(Box::new(NameWeights::zero()))), []);
        let only_towns = NameWeights::parse("[word]\nplace_cue_known = { place = 60 }").expect("weights");
        assert_eq!(kinds(Box::leak(Box::new(only_towns))), [crate::Kind::Location]);
        let other = NameWeights::parse("[word]\nplace_cue_known = { organization = 60 }").expect("weights");
        assert_eq!(kinds(Box::leak(Box::new(other))), [crate::Kind::Organization]);
    }

    #[test]
    fn detection_stops_within_one_window_of_a_stop_request() {
        let text = "Anna Berg, 12 Main Street, 415-555-0132, password: hunter2x! ".repeat(4000);
        let stop = crate::StopFlag::default();
        stop.run(|| Detector::default().find(&text));
        let whole = steps::take();
        drop(stop.on_drop());
        stop.run(|| Detector::default().find(&text));
        let ended = steps::take();
        assert!(ended * 50 < whole, "{ended} of {whole} steps");
    }

    #[test]
    fn repeated_prefixes_words_and_signs_take_linear_time() {
        let stems = crate::detect::known_prefixes().chain([
            "Anna",
            "Dr. Anna",
            "anna@x.org",
            "12 Main Street",
            "4111",
            "+1 555",
            "10.0.0.1",
            "fe80",
            "https",
            "password",
            "apiKey",
            "Inc",
            "GmbH",
            "and",
            "de la",
            "Berlin",
            "12345 Berlin",
            "born",
            "2024",
            "Jan 5",
            "00:11",
            "A1b2",
            "a",
            "A",
            "1",
            "é",
            "IBAN",
            "PO Box",
            "name",
            "is",
            "{\"a\":",
            "-----BEGIN",
            "-----END",
            "::",
            "//",
            "\\u0041",
            "%41",
        ]);
        for stem in stems {
            for sign in ["", " ", "-", ".", "/", ":", "=", "@", ",", ", ", "\n", "\"", "://"] {
                assert_linear(&format!("{stem}{sign}"), &[1_500, 3_000]);
            }
        }
    }
}
