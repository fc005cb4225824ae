//! The marks and topics of lexicon words, and the hash function; also used by the build script.

/// Marks of a word; a word may have several.
pub mod mark {
    /// Function words and similar, never a name on their own.
    pub const STOP: u32 = 1;
    /// Among the most common English words.
    pub const COMMON: u32 = 1 << 1;
    pub const WORD: u32 = 1 << 2;
    pub const FIRST: u32 = 1 << 3;
    pub const LAST: u32 = 1 << 4;
    /// A town, as a place name.
    pub const PLACE: u32 = 1 << 5;
    /// A country or a large part of one.
    pub const REGION: u32 = 1 << 6;
    pub const NRP: u32 = 1 << 7;
    /// A title before a name: Mr, Dr.
    pub const HONORIFIC: u32 = 1 << 8;
    /// A company form after a name: Inc, GmbH.
    pub const ORG_SUFFIX: u32 = 1 << 9;
    /// A word that belongs to names of organisations: Bank, University.
    pub const ORG_WORD: u32 = 1 << 10;
    /// Street, Ave: after a street's name.
    pub const STREET_SUFFIX: u32 = 1 << 11;
    /// Rue, Via: before a street's name.
    pub const STREET_PREFIX: u32 = 1 << 12;
    /// A unit of a building: Apt, Suite.
    pub const UNIT: u32 = 1 << 13;
    /// Said, asked: verbs with a person as subject.
    pub const SAY: u32 = 1 << 14;
    /// The name of a month, or its abbreviation.
    pub const MONTH: u32 = 1 << 15;
    pub const DAY: u32 = 1 << 16;
    pub const JOB: u32 = 1 << 17;
    /// A computing term or a product, never a person.
    pub const TECH: u32 = 1 << 18;
    /// The first word of a multi-word entry.
    pub const PHRASE: u32 = 1 << 19;
    /// Mother, friend: often followed by a person's name.
    pub const RELATION: u32 = 1 << 20;
    /// A preposition of place: in, from, to.
    pub const PREP: u32 = 1 << 21;
    pub const ORG: u32 = 1 << 22;
    /// A small word inside of names: van, de.
    pub const PARTICLE: u32 = 1 << 23;
    /// A word that announces a name: name, called.
    pub const NAME_CUE: u32 = 1 << 24;
    /// PhD, Jr: after a name.
    pub const CREDENTIAL: u32 = 1 << 25;
    /// Lives, moved, born: often followed by a place.
    pub const LIVE_CUE: u32 = 1 << 26;
    /// One of the most common first names.
    pub const FIRST_TOP: u32 = 1 << 27;
    /// One of the most common family names.
    pub const LAST_TOP: u32 = 1 << 28;
    /// Company, office: often near an organisation.
    pub const ORG_CUE: u32 = 1 << 29;
    /// Abbreviations that end with a full stop.
    pub const ABBR: u32 = 1 << 30;
    /// Scholars that methods, laws and units are named after.
    pub const SCHOLAR: u32 = 1 << 31;

    /// The sections of the marks file and their marks; for the build script.
    #[allow(dead_code)]
    pub const SECTIONS: &[(&str, u32)] = &[
        ("stop", STOP),
        ("honorific", HONORIFIC),
        ("credential", CREDENTIAL),
        ("particle", PARTICLE),
        ("say", SAY),
        ("relation", RELATION),
        ("namecue", NAME_CUE),
        ("prep", PREP),
        ("livecue", LIVE_CUE),
        ("month", MONTH),
        ("day", DAY),
        ("orgsuf", ORG_SUFFIX),
        ("orgword", ORG_WORD),
        ("org", ORG),
        ("orgcue", ORG_CUE),
        ("streetsuf", STREET_SUFFIX),
        ("streetpre", STREET_PREFIX),
        ("unit", UNIT),
        ("nrp", NRP),
        ("job", JOB),
        ("tech", TECH),
        ("abbr", ABBR),
        ("scholar", SCHOLAR),
    ];
}

/// Topics indicated by a word near a candidate.
pub mod topic {
    macro_rules! topics {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $section:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// The sections of the marks file and their topics; for the build script.
            #[allow(dead_code)]
            pub const SECTIONS: &[(&str, u32)] = &[$(($section, $name)),*];
        };
    }
    topics! {
        /// Social security numbers.
        SSN = 0, "ssn";
        PHONE = 1, "phone";
        CARD = 2, "card";
        BANK = 3, "bank";
        PASSPORT = 4, "passport";
        LICENCE = 5, "licence";
        /// Birth and other personal dates.
        BIRTH = 6, "birth";
        ZIP = 7, "zip";
        /// Residence and postal addresses.
        ADDRESS = 8, "address";
        /// Keys, tokens and other secrets of machines.
        SECRET = 9, "secret";
        PASSWORD = 10, "password";
        TAX = 11, "tax";
        HEALTH = 12, "health";
        NATIONAL_ID = 13, "nationalid";
        /// Parcels and their tracking numbers.
        TRACKING = 14, "tracking";
        /// Vehicles and their identification numbers.
        VEHICLE = 15, "vehicle";
        /// Coordinates and other positions.
        GEO = 16, "geo";
        USER = 17, "user";
        VERSION = 18, "version";
        DATE = 19, "date";
        CRYPTO = 20, "crypto";
        PLATE = 21, "plate";
        /// Orders, parts and counts: a number that is not personal.
        ORDER = 22, "order";
        /// Words often followed by a person: by, with, for.
        GREETED = 23, "greeted";
        /// Words directly followed by a person: hello, says.
        ADDRESSED = 24, "addressed";
        /// Actions of a person, after the name: is, went, shouted.
        ACTS = 25, "acts";
        /// Relations to an organisation: works at, shares of.
        ORG_NEAR = 26, "orgnear";
        /// Properties and actions of an organisation, after its name: employs, office.
        ORG_DOES = 27, "orgdoes";
        /// Networks: followed by a machine's address.
        NETWORK = 28, "network";
        /// Software: followed by a version.
        SOFTWARE = 29, "software";
        /// Commands that take a password as an argument.
        COMMAND = 30, "command";
        /// Common words of other languages than English, from lists of their own.
        OTHER_LANGUAGE = 31, "otherlanguage";
    }
}

/// The initial hash state.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of a folded word, eight bytes at a time.
#[inline(always)]
pub fn hash(folded: &[u8]) -> u64 {
    let mut hash = SEED ^ folded.len() as u64;
    let mut chunks = folded.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = step(hash, u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
        hash = step(hash, word);
    }
    finish(hash)
}

/// The hash of a word of ASCII letters in any case, at `start..end` of a text.
#[inline(always)]
#[allow(dead_code)]
pub fn hash_letters(text: &[u8], start: usize, end: usize) -> u64 {
    const SMALL: u64 = 0x2020_2020_2020_2020;
    let Some(word) = text.get(start..end) else { return 0 };
    let mut hash = SEED ^ word.len() as u64;
    let mut at = start;
    while at < end {
        let rest = end - at;
        let keep = if rest >= 8 { u64::MAX } else { (1 << (rest * 8)) - 1 };
        // The text usually continues after the word: eight bytes can be read and the excess masked.
        let eight = match text.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
            Some(bytes) => u64::from_le_bytes(bytes),
            None => text[at..].iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)),
        };
        hash = step(hash, (eight | SMALL) & keep);
        at += 8;
    }
    finish(hash)
}

#[inline(always)]
const fn step(hash: u64, word: u64) -> u64 {
    let h = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 32)
}

/// Mixes the bits before the hash is used as an index.
#[inline(always)]
const fn finish(hash: u64) -> u64 {
    let h = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 29)
}

/// The fingerprint stored in a slot: 20 bits, never zero.
#[inline(always)]
pub const fn fingerprint(finished: u64) -> u32 {
    ((finished >> 44) as u32) | 1
}
