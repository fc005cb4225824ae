//! Usage of a call of a language model, in the categories that have prices.

use serde::de::value::BorrowedStrDeserializer;

use crate::schema::JsonSchema;

macro_rules! usage {
    ($($(#[$attribute:meta])* $count:ident,)*) => {
        /// Usage of one call. Streams repeat it; the last count applies.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct CallUsage {
            $($(#[$attribute])* pub $count: u64,)*
            /// The level of service that the answer names; standard if it names none.
            #[serde(skip)]
            pub tier: Option<ServiceTier>,
            /// Where the answer says that it was made, if that has a price of its own.
            #[serde(skip)]
            pub region: Option<ServiceRegion>,
        }

        impl CallUsage {
            /// Each count of both calls by a function; the level of service and region of `other`, if it has them.
            fn zip(self, other: Self, count: impl Fn(u64, u64) -> u64) -> Self {
                let (tier, region) = (other.tier.or(self.tier), other.region.or(self.region));
                Self { $($count: count(self.$count, other.$count),)* tier, region }
            }

            /// All counts.
            pub const fn counts(&self) -> [u64; [$(stringify!($count)),*].len()] {
                [$(self.$count),*]
            }
        }
    };
}

// What is skipped is not stored with a conversation: its cost is computed before.
usage! {
    /// Input tokens, including those read from and written to a cache, and those of images and audio.
    input,
    /// Output tokens, including reasoning.
    output,
    /// The part of `input` read from a cache.
    cache_read,
    /// The part of `input` written to a cache.
    cache_write,
    /// The part of `cache_write` that is kept for an hour or longer, at a higher price.
    #[serde(skip)]
    cache_write_long,
    /// The part of `output` used for reasoning.
    reasoning,
    /// The part of `input` that is audio, without what is read from a cache.
    #[serde(skip)]
    audio_input,
    /// The part of `cache_read` that is audio.
    #[serde(skip)]
    audio_cache_read,
    /// The part of `output` that is audio.
    #[serde(skip)]
    audio_output,
    /// The part of `input` that is images, without what is read from a cache.
    #[serde(skip)]
    image_input,
    /// The part of `cache_read` that is images.
    #[serde(skip)]
    image_cache_read,
    /// The part of `output` that is images.
    #[serde(skip)]
    image_output,
    /// The part of `input` that is video.
    #[serde(skip)]
    video_input,
    /// Searches of the web that the provider made, or searches of documents (Cohere).
    #[serde(skip)]
    searches,
    /// Queries of maps that the provider made.
    #[serde(skip)]
    maps,
    /// Seconds of audio or video taken in, where those are what is billed.
    #[serde(skip)]
    seconds,
    /// Pages that were read (Mistral's OCR).
    #[serde(skip)]
    pages,
    /// Pictures that were made, where those may be what is billed.
    #[serde(skip)]
    images,
    /// Characters of text to speech.
    #[serde(skip)]
    characters,
}

/// Levels of service that have prices of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceTier {
    #[serde(skip)]
    Standard,
    Batch,
    Flex,
    Priority,
    Ultrafast,
    /// Anthropic's `speed`.
    Fast,
    Balanced,
    /// Any other, whose price is not known.
    #[serde(skip)]
    Other,
}

impl ServiceTier {
    /// By the name in an answer of any provider.
    pub fn from_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            // `auto` is what was asked for: the end of the stream says what was used.
            "" | "auto" | "default" | "standard" | "on_demand" | "traffic_type_unspecified" => Self::Standard,
            name => named(name.trim_start_matches("on_demand_")).unwrap_or(Self::Other),
        }
    }
}

/// Regions that have prices of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceRegion {
    Us,
    Eu,
    /// Any other, whose price is not known.
    #[serde(skip)]
    Other,
}

impl ServiceRegion {
    /// By the name in an answer; `None` for none in particular.
    pub fn from_name(name: &str) -> Option<Self> {
        (!matches!(name, "" | "global" | "not_available")).then(|| named(name).unwrap_or(Self::Other))
    }
}

/// The variant of this name in price lists.
fn named<'n, T: serde::Deserialize<'n>>(name: &'n str) -> Option<T> {
    T::deserialize(BorrowedStrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

impl CallUsage {
    /// Whether it has no count at all; some calls are billed without tokens.
    pub fn is_zero(&self) -> bool {
        self.counts().iter().all(|count| *count == 0)
    }

    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// With the region of the provider's host, if the answer names none: `eu.api.openai.com`.
    pub fn at_host(self, host: &str) -> Self {
        let region = host.strip_suffix(".api.openai.com").and_then(ServiceRegion::from_name);
        Self { region: self.region.or(region), ..self }
    }

    /// Adds another call's counts, saturating.
    pub fn add(&mut self, other: Self) {
        *self = self.zip(other, u64::saturating_add);
    }

    /// What was used after an earlier total.
    pub fn since(self, earlier: Self) -> Self {
        earlier.zip(self, |before, now| now.saturating_sub(before))
    }

    /// The larger of each count: streams report running totals.
    pub fn max(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }
}
