//! The marks a word of the lexicon may carry, and the hash it is found by. Read by the build script too.

/// Marks of a word; a word may carry several.
pub mod mark {
    /// Function words and the like, never a name by themselves.
    pub const STOP: u32 = 1;
    /// Among the commonest English words.
    pub const COMMON: u32 = 1 << 1;
    /// A rarer English word.
    pub const WORD: u32 = 1 << 2;
    /// A first name somewhere.
    pub const FIRST: u32 = 1 << 3;
    /// A family name somewhere.
    pub const LAST: u32 = 1 << 4;
    /// A town.
    pub const PLACE: u32 = 1 << 5;
    /// A country or a large part of one.
    pub const REGION: u32 = 1 << 6;
    /// A nationality or a religion.
    pub const NRP: u32 = 1 << 7;
    /// Mr, Dr.
    pub const HONORIFIC: u32 = 1 << 8;
    /// Inc, GmbH.
    pub const ORG_SUFFIX: u32 = 1 << 9;
    /// Bank, University.
    pub const ORG_WORD: u32 = 1 << 10;
    /// Street, Ave: behind a street's name.
    pub const STREET_SUFFIX: u32 = 1 << 11;
    /// Rue, Via: before a street's name.
    pub const STREET_PREFIX: u32 = 1 << 12;
    /// Apt, Suite.
    pub const UNIT: u32 = 1 << 13;
    /// Said, asked: a person does it.
    pub const SAY: u32 = 1 << 14;
    /// A month's name.
    pub const MONTH: u32 = 1 << 15;
    /// A weekday's name.
    pub const DAY: u32 = 1 << 16;
    /// A trade.
    pub const JOB: u32 = 1 << 17;
    /// A word of computing or a product, never a person.
    pub const TECH: u32 = 1 << 18;
    /// The first word of an entry of several words.
    pub const PHRASE: u32 = 1 << 19;
    /// Mother, friend: a person's name often follows.
    pub const RELATION: u32 = 1 << 20;
    /// In, from, to.
    pub const PREP: u32 = 1 << 21;
    /// A known organisation.
    pub const ORG: u32 = 1 << 22;
    /// Van, de.
    pub const PARTICLE: u32 = 1 << 23;
    /// Name, called.
    pub const NAME_CUE: u32 = 1 << 24;
    /// PhD, Jr: behind a name.
    pub const CREDENTIAL: u32 = 1 << 25;
    /// Lives, moved, born: a place often follows.
    pub const LIVE_CUE: u32 = 1 << 26;
    /// One of the commonest first names.
    pub const FIRST_TOP: u32 = 1 << 27;
    /// One of the commonest family names.
    pub const LAST_TOP: u32 = 1 << 28;
    /// Company, office: an organisation is often near.
    pub const ORG_CUE: u32 = 1 << 29;
    /// Abbreviations that end with a stop.
    pub const ABBR: u32 = 1 << 30;

    /// The sections of the marks file and what they stand for; the build script's.
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
    ];
}

/// Topics that a word near a candidate may speak of.
pub mod topic {
    macro_rules! topics {
        ($($(#[$doc:meta])* $name:ident = $bit:literal, $section:literal;)*) => {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
            /// The sections of the marks file and what they stand for; the build script's.
            #[allow(dead_code)]
            pub const SECTIONS: &[(&str, u32)] = &[$(($section, $name)),*];
        };
    }
    topics! {
        /// Social security.
        SSN = 0, "ssn";
        /// Telephones.
        PHONE = 1, "phone";
        /// Payment cards.
        CARD = 2, "card";
        /// Bank accounts.
        BANK = 3, "bank";
        /// Passports.
        PASSPORT = 4, "passport";
        /// Driving licences.
        LICENCE = 5, "licence";
        /// Birth and other dates of a life.
        BIRTH = 6, "birth";
        /// Postal codes.
        ZIP = 7, "zip";
        /// Where somebody lives.
        ADDRESS = 8, "address";
        /// Keys and tokens.
        SECRET = 9, "secret";
        /// Passwords.
        PASSWORD = 10, "password";
        /// Tax numbers.
        TAX = 11, "tax";
        /// Health care.
        HEALTH = 12, "health";
        /// National identity numbers.
        NATIONAL_ID = 13, "nationalid";
        /// Parcels.
        TRACKING = 14, "tracking";
        /// Cars.
        VEHICLE = 15, "vehicle";
        /// Coordinates.
        GEO = 16, "geo";
        /// User names.
        USER = 17, "user";
        /// Software versions.
        VERSION = 18, "version";
        /// Dates.
        DATE = 19, "date";
        /// Crypto currencies.
        CRYPTO = 20, "crypto";
        /// Number plates.
        PLATE = 21, "plate";
        /// Orders, parts and counts: a number that is nobody's.
        ORDER = 22, "order";
        /// Words before which a person may be spoken of: by, with, for.
        GREETED = 23, "greeted";
        /// Words behind which a person is spoken of: hello, says.
        ADDRESSED = 24, "addressed";
        /// What a person does, behind the name: is, went, shouted.
        ACTS = 25, "acts";
        /// What one has to do with an organisation: works at, shares of.
        ORG_NEAR = 26, "orgnear";
        /// What an organisation does or has, behind its name: employs, office.
        ORG_DOES = 27, "orgdoes";
    }
}

/// The hash of nothing yet.
pub const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds one folded byte.
#[inline(always)]
pub const fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Spreads the bits before the hash is used as an index.
#[inline(always)]
pub const fn finish(hash: u64) -> u64 {
    let h = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 29)
}

/// The fingerprint kept in a slot: 20 bits, never zero.
#[inline(always)]
pub const fn fingerprint(finished: u64) -> u32 {
    ((finished >> 44) as u32) | 1
}

/// The hash of a whole text that is already folded; the build script's.
#[allow(dead_code)]
pub fn hash(text: &str) -> u64 {
    finish(text.bytes().fold(SEED, mix))
}
