//! Default hosts of well-known secrets, by the usual variable name and by the value's prefix.

/// Hosts of a secret, by the variable that usually contains it. These names take precedence over the value's prefix.
const BY_LABEL: &[(&str, &[&str])] = &[
    ("ANTHROPIC_API_KEY", &["api.anthropic.com"]),
    ("ANTHROPIC_AUTH_TOKEN", &["api.anthropic.com"]),
    ("CLAUDE_CODE_OAUTH_TOKEN", &["api.anthropic.com"]),
    ("OPENAI_API_KEY", &["api.openai.com"]),
    ("CODEX_API_KEY", &["api.openai.com"]),
    ("OPENROUTER_API_KEY", &["openrouter.ai"]),
    ("GEMINI_API_KEY", &["generativelanguage.googleapis.com"]),
    ("GOOGLE_API_KEY", &["generativelanguage.googleapis.com"]),
    ("GROQ_API_KEY", &["api.groq.com"]),
    ("MISTRAL_API_KEY", &["api.mistral.ai"]),
    ("DEEPSEEK_API_KEY", &["api.deepseek.com"]),
    ("XAI_API_KEY", &["api.x.ai"]),
    ("TOGETHER_API_KEY", &["api.together.xyz", "api.together.ai"]),
    ("COHERE_API_KEY", &["api.cohere.com", "api.cohere.ai"]),
    ("REPLICATE_API_TOKEN", &["api.replicate.com"]),
    ("HF_TOKEN", &["huggingface.co", "*.huggingface.co"]),
    ("HUGGING_FACE_HUB_TOKEN", &["huggingface.co", "*.huggingface.co"]),
    ("GITHUB_TOKEN", &["github.com", "api.github.com", "uploads.github.com"]),
    ("GH_TOKEN", &["github.com", "api.github.com", "uploads.github.com"]),
    ("GITLAB_TOKEN", &["gitlab.com"]),
    ("NPM_TOKEN", &["registry.npmjs.org"]),
    ("PYPI_TOKEN", &["upload.pypi.org"]),
    ("CARGO_REGISTRY_TOKEN", &["crates.io"]),
    ("LINEAR_API_KEY", &["api.linear.app"]),
    ("NOTION_TOKEN", &["api.notion.com"]),
    ("SLACK_BOT_TOKEN", &["slack.com"]),
    ("STRIPE_SECRET_KEY", &["api.stripe.com"]),
    ("SENTRY_AUTH_TOKEN", &["sentry.io", "*.sentry.io"]),
    ("CLOUDFLARE_API_TOKEN", &["api.cloudflare.com"]),
    ("VERCEL_TOKEN", &["api.vercel.com"]),
];

/// Hosts of a secret, by its prefix; the longest first.
const BY_PREFIX: &[(&str, &[&str])] = &[
    ("sk-ant-", &["api.anthropic.com"]),
    ("sk-or-", &["openrouter.ai"]),
    ("sk-proj-", &["api.openai.com"]),
    ("github_pat_", &["github.com", "api.github.com", "uploads.github.com"]),
    ("ghp_", &["github.com", "api.github.com", "uploads.github.com"]),
    ("gho_", &["github.com", "api.github.com", "uploads.github.com"]),
    ("glpat-", &["gitlab.com"]),
    ("npm_", &["registry.npmjs.org"]),
    ("pypi-", &["upload.pypi.org"]),
    ("hf_", &["huggingface.co", "*.huggingface.co"]),
    ("gsk_", &["api.groq.com"]),
    ("xai-", &["api.x.ai"]),
    ("AIza", &["generativelanguage.googleapis.com"]),
    ("xoxb-", &["slack.com"]),
    ("sk_live_", &["api.stripe.com"]),
    ("sk_test_", &["api.stripe.com"]),
    ("r8_", &["api.replicate.com"]),
    ("lin_api_", &["api.linear.app"]),
];

/// The default hosts of a secret with this label and value; empty if unknown, and then the hosts must be given.
pub fn default_hosts(label: &str, value: &str) -> Vec<String> {
    let by_label = BY_LABEL.iter().find(|(name, _)| name.eq_ignore_ascii_case(label));
    let by_beginning = || BY_PREFIX.iter().find(|(start, _)| value.starts_with(start));
    let hosts = by_label.or_else(by_beginning).map_or(&[][..], |(_, hosts)| hosts);
    hosts.iter().map(|h| (*h).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_hosts_are_derived_from_secret_name_or_prefix() {
        assert_eq!(default_hosts("anthropic_api_key", "x"), ["api.anthropic.com"]);
        assert_eq!(default_hosts("MY_KEY", "sk-or-v1-abc"), ["openrouter.ai"]);
        assert!(default_hosts("MY_KEY", "abc").is_empty());
    }
}
