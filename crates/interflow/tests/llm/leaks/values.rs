//! The values that are sent, and their encodings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// No format has more places.
pub const MAX_PLACES: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Email,
    Phone,
    Iban,
    Card,
    ApiKey,
    PrivateKey,
    /// On the policy's list.
    Name,
}

pub const KINDS: [ValueKind; 7] = [
    ValueKind::Email,
    ValueKind::Phone,
    ValueKind::Iban,
    ValueKind::Card,
    ValueKind::ApiKey,
    ValueKind::PrivateKey,
    ValueKind::Name,
];

/// The letters and digits of made-up keys: the same in each run.
fn letters(seed: usize, count: usize) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(ALPHABET[(state >> 33) as usize % ALPHABET.len()])
    };
    (0..count).map(next).collect()
}

/// Groups of four characters.
fn grouped(text: &str) -> String {
    let groups: Vec<_> = text.as_bytes().chunks(4).map(|g| String::from_utf8_lossy(g).into_owned()).collect();
    groups.join(" ")
}

/// The remainder of a number of any length.
fn remainder(digits: &str, by: u32) -> u32 {
    digits.bytes().fold(0, |n, d| (n * 10 + u32::from(d - b'0')) % by)
}

fn luhn_digit(digits: &str) -> u32 {
    let weigh = |(i, b): (usize, u8)| {
        let n = u32::from(b - b'0') * if i % 2 == 0 { 2 } else { 1 };
        n / 10 + n % 10
    };
    (10 - digits.bytes().rev().enumerate().map(weigh).sum::<u32>() % 10) % 10
}

impl ValueKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Email => "e-mail address",
            Self::Phone => "phone number",
            Self::Iban => "IBAN",
            Self::Card => "payment card",
            Self::ApiKey => "API key",
            Self::PrivateKey => "private key",
            Self::Name => "name on the policy's list",
        }
    }

    /// The value for a place: no two places of a request have the same.
    pub fn value(self, place: usize) -> String {
        match self {
            Self::Email => format!("anna.berg{place}@nordhafen.example.com"),
            Self::Phone => format!("+49 30 901825{place:02}"),
            Self::Iban => {
                let account = format!("3704004405320130{place:02}");
                // The country code DE as digits, and the check digits to be (ISO 13616).
                let check = 98 - remainder(&format!("{account}131400"), 97);
                grouped(&format!("DE{check:02}{account}"))
            }
            Self::Card => {
                let number = format!("4539148803436{place:02}");
                grouped(&format!("{number}{}", luhn_digit(&number)))
            }
            Self::ApiKey => format!("sk-proj-{}", letters(place, 48)),
            Self::PrivateKey => {
                let lines: Vec<String> = (0..3).map(|n| letters(1000 + place * 3 + n, 64)).collect();
                format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", lines.join("\n"))
            }
            Self::Name => {
                let first = ["Quillon", "Ysmera", "Torvik", "Oblane", "Wendril", "Kasparo", "Ulmeth", "Zirelle"];
                let last = ["Astervane", "Brackmoor", "Corvessa", "Dunmarrow", "Eldergast"];
                format!("{} {}", first[place % 8], last[place / 8 % 5])
            }
        }
    }

    /// A sentence with the value.
    pub fn sentence(self, value: &str) -> String {
        match self {
            Self::Email => format!("Please write to {value} today."),
            Self::Phone => format!("Please call {value} today."),
            Self::Iban => format!("The account is {value}, please pay."),
            Self::Card => format!("Please charge {value} for it."),
            Self::ApiKey => format!("The service accepts {value} for now."),
            Self::PrivateKey => format!("The key of the server:\n{value}\nKeep it."),
            Self::Name => format!("It was {value} who asked for it."),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Plain,
    /// Each character as `\u0041` in the JSON of the request.
    JsonEscapes,
    HtmlReferences,
    Percent,
    Base64,
    FullWidth,
    ZeroWidth,
    /// A line break in the middle of the value.
    LineBreak,
    /// The halves of the value are two adjacent strings.
    Split,
}

pub const ENCODINGS: [Encoding; 9] = [
    Encoding::Plain,
    Encoding::JsonEscapes,
    Encoding::HtmlReferences,
    Encoding::Percent,
    Encoding::Base64,
    Encoding::FullWidth,
    Encoding::ZeroWidth,
    Encoding::LineBreak,
    Encoding::Split,
];

impl Encoding {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::JsonEscapes => "JSON escapes",
            Self::HtmlReferences => "HTML character references",
            Self::Percent => "percent-encoding",
            Self::Base64 => "base64",
            Self::FullWidth => "full-width characters",
            Self::ZeroWidth => "zero-width characters",
            Self::LineBreak => "line break in the value",
            Self::Split => "split over two parts",
        }
    }

    /// The value as the text contains it.
    pub fn encode(self, value: &str) -> String {
        let each = |f: &dyn Fn(usize, char) -> String| value.chars().enumerate().map(|(i, c)| f(i, c)).collect();
        match self {
            Self::Plain | Self::JsonEscapes | Self::Split => value.to_owned(),
            Self::HtmlReferences => each(&|i, c| match i % 2 {
                0 => format!("&#{};", u32::from(c)),
                _ => format!("&#x{:x};", u32::from(c)),
            }),
            Self::Percent => each(&|_, c| match c {
                c if c.is_ascii_alphanumeric() => c.to_string(),
                c => format!("%{:02X}", u32::from(c)),
            }),
            Self::Base64 => STANDARD.encode(value),
            Self::FullWidth => each(&|_, c| match c {
                '!'..='~' => char::from_u32(u32::from(c) - 0x21 + 0xff01).unwrap_or(c).to_string(),
                c => c.to_string(),
            }),
            Self::ZeroWidth => each(&|i, c| if i % 3 == 2 { format!("{c}\u{200b}") } else { c.to_string() }),
            Self::LineBreak => {
                let (first, second) = halves(value);
                format!("{first}\n{second}")
            }
        }
    }
}

pub fn halves(value: &str) -> (&str, &str) {
    value.split_at(value.len() / 2)
}

/// The characters that remain of a text however it is grouped, wrapped or spelled: letters and digits.
pub fn letters_and_digits(text: &str) -> String {
    let narrow = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xff01 + 0x21).unwrap_or(c),
        c => c,
    };
    text.chars().map(narrow).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
