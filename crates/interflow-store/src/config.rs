//! The `[record]` section of the config.

use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::secret_names::{SECRET_HEADERS, SECRET_PARAMETERS};
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

config_sections! {
    /// What is recorded, where it is kept, and for how long.
    pub struct RecordConfig {
        /// Whether anything is recorded.
        pub enabled: bool = true,
        /// The folder of the store; relative to the data directory.
        pub dir: PathBuf = "record".into(),
        /// The shared store of several replicas: `postgres://user:password@host:5432/database?sslmode=verify-full`, or
        /// `env:NAME` or `file:PATH` of it. `dir` then holds only what was not moved there yet. If unset, everything stays in
        /// `dir`.
        pub store: Option<String>,
        /// Where the bodies of the shared store are, if not in the database: `s3://bucket/prefix`, `gs://bucket/prefix`,
        /// `az://container/prefix` or `file:///folder`, the same for all replicas. Bodies of up to 4 KiB stay in the database.
        /// Credentials come from the environment, as for the clouds' own tools.
        pub objects: Option<String>,
        /// The most that may wait in `dir` for the shared store; then `overflow` decides. 0 for no bound. It counts as reached when
        /// the disk of `dir` has less than 64 MiB left for it.
        pub spool_max_bytes: ByteSize = ByteSize(10 << 30),
        /// Whether the bytes of bodies and messages are kept, or only their sizes.
        pub bodies: bool = true,
        /// The most that is kept of one body, and of one direction's messages together; 0 for everything.
        pub max_body: ByteSize,
        /// How media and large bodies are recorded. `"head"`: of video, audio, binary bodies of more than 1 MiB and texts of more
        /// than 64 MiB the size, the first 64 KiB and their SHA-256; JSON, text, events, forms, Protocol Buffers and playlists
        /// stay whole up to there. `"full"`: every body whole, up to `max_body`.
        pub large_bodies: LargeBodies,
        /// Whether segments that the media endpoints decrypted are recorded like other bodies; else only their sizes are.
        pub decrypted_media: bool,
        /// Whether the end of each response, and the beginning of each tunnel and WebSocket, is withheld from its client until the
        /// flow is on the disk, so that an answered request is recorded although the process is killed. Otherwise flows are written up to 20 milliseconds after their end, in
        /// batches that cost less. Neither protects from a power failure. If unset, `true` with `store` and `false` without.
        pub synchronous: Option<bool>,
        /// What happens when the recorder falls behind: the flow waits, or its capture is dropped and counted.
        pub overflow: OverflowPolicy,
        /// Bytes that may wait for the disk before the recorder counts as behind.
        pub queue_bytes: ByteSize = ByteSize(6 << 20),
        /// Flows that may wait for the disk before the recorder counts as behind.
        pub queue_flows: usize = 20_000,
        /// Header fields whose values are masked before anything is written: exact names, or a prefix with `*` behind it.
        pub mask_headers: Vec<String> = SECRET_HEADERS.iter().map(|s| (*s).to_owned()).collect(),
        /// Parameters of the URL's query whose values are masked likewise: exact names.
        pub mask_query: Vec<String> = SECRET_PARAMETERS.iter().map(|s| (*s).to_owned()).collect(),
        /// Flows older than this are dropped; 0 keeps them.
        pub retention_age: HumanDuration = HumanDuration::from_secs(30 * 86_400),
        /// The oldest flows are dropped when the store takes more disk than this, objects included; 0 for no bound.
        pub retention_bytes: ByteSize = ByteSize(10 << 30),
        /// Size at which a segment file is closed and the next one is begun.
        pub segment_bytes: ByteSize = ByteSize(64 << 20),
        /// Whether bodies are compressed where that pays.
        pub compress: bool = true,
        /// Schemas by which gRPC and Protocol Buffers are shown: `.proto` files, folders of them, descriptor sets. Relative to
        /// the data directory; read at the start.
        pub schemas: Vec<PathBuf>,
        /// Where every hour of the record is written as Parquet files when it is over, for query engines: `s3://bucket/prefix`,
        /// `gs://bucket/prefix`, `az://container/prefix` or `file:///folder`. Credentials come from the environment, as for the
        /// clouds' own tools.
        pub archive: Option<String>,
        /// Whether the bytes of bodies are in the archive, or only their sizes.
        pub archive_bodies: bool = true,
        /// How long after its end an hour is archived, so that flows in progress may end; those that do not follow in further
        /// files.
        pub archive_delay: HumanDuration = HumanDuration::from_secs(300),
        /// Size at which a file of the archive is closed and the next one is begun. Smaller files of one hour are merged up to it.
        pub archive_file_bytes: ByteSize = ByteSize(256 << 20),
        /// Whether flows are kept until they are archived, though they are older than `retention_age` or the store is larger than
        /// `retention_bytes`.
        pub archive_before_delete: bool,
    }
}

/// How media and large bodies are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LargeBodies {
    /// Their size, type and first part.
    #[default]
    Head,
    /// Whole.
    Full,
}

/// What happens when the recorder falls behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverflowPolicy {
    /// The flow waits until there is room.
    #[default]
    Wait,
    /// The capture is dropped and counted.
    Drop,
}

impl RecordConfig {
    /// Whether responses wait for their flows to be written.
    pub fn is_synchronous(&self) -> bool {
        self.synchronous.unwrap_or(self.store.is_some())
    }

    /// Whether flows are kept until they are archived.
    pub const fn keeps_unarchived(&self) -> bool {
        self.archive.is_some() && self.archive_before_delete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_section_is_the_default_and_unknown_keys_are_refused() {
        assert_eq!(serde_json::from_str::<RecordConfig>("{}").unwrap(), RecordConfig::default());
        assert!(serde_json::from_str::<RecordConfig>(r#"{"queue_byte": 1}"#).is_err());
        let c: RecordConfig = serde_json::from_str(r#"{"overflow": "drop", "max_body": "1MiB"}"#).unwrap();
        assert_eq!((c.overflow, c.max_body.0), (OverflowPolicy::Drop, 1 << 20));
    }

    #[test]
    fn responses_wait_for_their_flows_with_a_shared_store_or_where_the_operator_wants_it() {
        let is_synchronous = |text: &str| serde_json::from_str::<RecordConfig>(text).unwrap().is_synchronous();
        assert!(!is_synchronous("{}") && is_synchronous(r#"{"synchronous": true}"#));
        let store = r#""store": "postgres://db/x""#;
        assert!(is_synchronous(&format!("{{{store}}}")));
        assert!(!is_synchronous(&format!("{{{store}, \"synchronous\": false}}")));
    }
}
