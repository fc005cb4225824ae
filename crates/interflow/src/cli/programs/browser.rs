//! `interflow browser [URL]`: a browser behind the proxy, with a throwaway profile that trusts the CA.

use clap::Args;
use interflow_host::browser::{BrowserLaunch, find, run_browser};
use interflow_host::data_dir::DataDir;

use super::proxy_session::ProxySession;
use crate::instance::config::LoadedConfig;
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct BrowserArgs {
    /// Page to open; a name without a scheme stands for https, on this machine for http.
    #[arg(value_name = "URL", default_value = "about:blank", hide_default_value = true)]
    pub url: String,
    /// Browser: chrome, chromium, edge, brave, firefox, or the path of a program. By default the first of these that is
    /// installed.
    #[arg(short, long, value_name = "NAME|PATH")]
    pub browser: Option<String>,
    /// Start a private instance for this browser even if an instance is running.
    #[arg(long)]
    pub private: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Do not verify upstream certificates (private instance only).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// End the browser when standard input is closed.
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
    /// Further arguments for the browser, such as --headless or, for Chromium as root, --no-sandbox.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

/// Runs the browser and returns its exit code.
pub fn run(args: &BrowserArgs, loaded: LoadedConfig, home: &DataDir) -> Result<()> {
    let browser = find(args.browser.as_deref())?;
    let url = page_url(&args.url)?;
    let session = ProxySession {
        private: args.private,
        redact: None,
        insecure_upstream: args.danger_insecure_upstream,
        quiet: args.quiet,
        user: &browser.name,
        needs_login: true,
        secrets: &[],
    };
    session.run(loaded, home, async |proxy| {
        let address = *proxy.addresses.first().ok_or_else(|| "the proxy has no port".to_owned())?;
        let login = proxy.login.ok_or_else(|| "the proxy issued no credentials".to_owned())?;
        let launch = BrowserLaunch {
            browser: &browser,
            url: &url,
            quiet: args.quiet,
            args: &args.args,
            ends_with_stdin: args.until_stdin_closes,
        };
        run_browser(&launch, home, address, login).await
    })
}

/// The URL of a page as it is typed.
fn page_url(text: &str) -> Result<String> {
    if text.starts_with('-') {
        return Err(CliError::Usage(format!("`{text}` is not a URL; arguments for the browser follow behind `--`")));
    }
    if text.starts_with("about:") || text.contains("://") {
        return Ok(text.to_owned());
    }
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let local = name == "localhost" || name.ends_with(".localhost") || name.starts_with("127.") || name == "[::1]";
    Ok(format!("{}://{text}", if local { "http" } else { "https" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_scheme_is_https_and_of_this_machine_http() {
        for (text, url) in [
            ("example.com", "https://example.com"),
            ("example.com:8443/a?b", "https://example.com:8443/a?b"),
            ("localhost:3000/x", "http://localhost:3000/x"),
            ("127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://example.com", "http://example.com"),
            ("about:blank", "about:blank"),
        ] {
            assert_eq!(page_url(text).unwrap(), url);
        }
        assert!(page_url("--no-sandbox").is_err());
    }
}
