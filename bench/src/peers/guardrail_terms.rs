//! What the guardrails of every gateway look for: the same words and expressions.

/// Words and phrases that are blocked.
pub const WORDS: [&str; 20] = [
    "Project Falcon",
    "Blue Heron",
    "Operation Lantern",
    "Team Granite",
    "Copper Ridge",
    "Silent Harbor",
    "Paper Moon",
    "Iron Orchard",
    "Winter Quarry",
    "Glass Meadow",
    "layoff list",
    "merger memo",
    "unannounced earnings",
    "board minutes draft",
    "acquisition target",
    "insider window",
    "salary table",
    "root passphrase",
    "master recovery code",
    "export-controlled drawing",
];

/// Expressions that are blocked, with their names.
pub const PATTERNS: [(&str, &str); 2] =
    [("ticket", r"\bSEC-[0-9]{6}\b"), ("internal host", r"\b[a-z0-9-]+\.corp\.example\.com\b")];
