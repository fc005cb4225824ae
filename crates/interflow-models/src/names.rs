//! Names of models as clouds and resellers write them.

/// Prefixes of model names: regions and vendors as written by clouds and resellers.
const PREFIXES: &str = "models/ global. us-gov. us. eu. apac. jp. au. ca. openai/ anthropic/ google/ mistralai/ deepseek/ \
                        cohere/ amazon/ anthropic. amazon. mistral. cohere.";

/// A model's name without region, vendor and date: `us.anthropic.claude-sonnet-4-5-20250929-v1:0` becomes
/// `claude-sonnet-4-5`. Nothing else is stripped: `gpt-4o-mini` and `gpt-4o-audio-preview` remain distinct from
/// `gpt-4o`.
pub fn base(model: &str) -> &str {
    let mut name = model;
    if name.starts_with("arn:") {
        name = name.rsplit('/').next().unwrap_or(name);
    }
    // A region precedes a vendor (`us.anthropic.`), so prefixes are removed until none is left.
    while let Some(rest) = PREFIXES.split(' ').find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    while let Some(rest) = without_date(name) {
        name = rest;
    }
    name
}

/// A model's name without the collection and the vendor before it: `models/gemini-2.5-pro` and `google/gemini-2.5-pro`
/// select the same model as `gemini-2.5-pro`.
pub fn plain(model: &str) -> &str {
    let mut name = model;
    let prefixes = PREFIXES.split(' ').filter(|prefix| prefix.ends_with('/'));
    while let Some(rest) = prefixes.clone().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name
}

/// A pattern for names as [`plain`] has them. `google/*` stays as it is, because without the vendor it is for all models.
pub fn plain_pattern(pattern: &str) -> &str {
    let named = pattern.strip_prefix("models/").unwrap_or(pattern);
    Some(plain(named)).filter(|plain| !plain.starts_with('*')).unwrap_or(named)
}

/// The name without a trailing date or revision, in the forms that providers use: `@20250929`, `-v1:0`, `-latest`,
/// `-002`, `-20250929`, `-2024-08-06`; and of a fine-tuned model (`ft:gpt-4o:firm::id`) what it was tuned from.
fn without_date(name: &str) -> Option<&str> {
    let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(tuned) = name.strip_prefix("ft:") {
        return tuned.find(':').map(|end| &name[..end + "ft:".len()]);
    }
    if let Some((rest, date)) = name.rsplit_once('@') {
        return (date == "default" || date == "latest" || digits(date, 8)).then_some(rest);
    }
    // Bedrock's `-v1:0`, also followed by the context length.
    if let Some((rest, version)) = name.rsplit_once("-v")
        && version.starts_with(|c: char| c.is_ascii_digit())
        && version.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'k')
        && version.len() <= 8
        && (version.contains(':') || version.len() == 1)
    {
        return Some(rest);
    }
    let (rest, last) = name.rsplit_once('-')?;
    if last == "latest" || digits(last, 8) || digits(last, 3) {
        return Some(rest);
    }
    // A date with hyphens, as OpenAI writes it: `gpt-4o-2024-08-06`.
    let (rest, month) = rest.rsplit_once('-').filter(|_| digits(last, 2))?;
    let (rest, year) = rest.rsplit_once('-').filter(|_| digits(month, 2))?;
    digits(year, 4).then_some(rest)
}
