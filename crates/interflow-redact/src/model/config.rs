//! The configuration of the model of names: `[redact.model]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::units::{ByteSize, HumanDuration};

use crate::BackendFailure;

config_sections! {
    /// A token classification model (NER) in ONNX that runs in this process, beside the built-in detectors. Needs a build
    /// with the feature `ner`.
    pub struct ModelConfig {
        /// The folder with the model's files: the model itself, `tokenizer.json` (WordPiece) and `config.json` (its labels).
        /// Relative to the data directory.
        pub path: PathBuf,
        /// The name of the ONNX file in the folder. It must be complete: without external data.
        pub file: String = "model.onnx".into(),
        /// The SHA-256 of each of the three files in hexadecimal, by file name. A file with another one is not loaded.
        pub sha256: BTreeMap<String, String>,
        /// The entity type for each of the model's labels (without `B-` and `I-`), or `none`. Usual labels such as `PER`,
        /// `LOC`, `ORG` and the names of entity types need no entry.
        pub labels: BTreeMap<String, String>,
        /// Minimum probability in percent of a label of the model, before it is weighed with the other features.
        #[schemars(range(min = 1, max = 100))]
        pub threshold: u8 = 50,
        /// Maximum number of tokens per run of the model; longer texts are split into overlapping windows.
        #[schemars(range(min = 16, max = 4096))]
        pub window: usize = 256,
        /// Overlap of two windows in tokens; at most half of the window.
        pub overlap: usize = 32,
        /// Maximum length of a text. A longer one counts as a failure of the model.
        pub max_text: ByteSize = ByteSize(256 << 10),
        /// Number of threads that the model runs on; requests wait for one another.
        #[schemars(range(min = 1, max = 64))]
        pub threads: usize = 2,
        /// Time limit for the texts of one request, with the time that they wait for other requests.
        pub timeout: HumanDuration = HumanDuration::from_secs(10),
        /// What happens when the model does not finish in time, or fails.
        pub failure: BackendFailure = BackendFailure::Closed,
    }
}

impl ModelConfig {
    /// Checks what can be checked without the files.
    pub(super) fn validate(&self) -> Result<(), String> {
        let wrong = |key: &str, why: &str| Err(format!("redact.model.{key}: {why}"));
        if self.path.as_os_str().is_empty() {
            return wrong("path", "name the folder with model.onnx, tokenizer.json and config.json");
        }
        if self.file.contains(['/', '\\']) {
            return wrong("file", "name a file in redact.model.path, without a folder");
        }
        if !(1..=100).contains(&self.threshold) {
            return wrong("threshold", "use a percentage from 1 to 100");
        }
        if !(16..=4096).contains(&self.window) {
            return wrong("window", "use 16 to 4096 tokens");
        }
        if self.overlap > self.window / 2 {
            return wrong("overlap", "use at most half of redact.model.window");
        }
        if !(1..=64).contains(&self.threads) {
            return wrong("threads", "use 1 to 64");
        }
        if self.timeout.0.is_zero() {
            return wrong("timeout", "it must be longer than nothing");
        }
        Ok(())
    }
}
