//! Parameters of actions on the upstream connection.

use std::fmt;
use std::path::PathBuf;

use interflow_codec::fingerprint::FingerprintTarget;
use interflow_types::schema::JsonSchema;
use interflow_types::{Authority, CertificateFiles, HostPattern, HostPatternError, TlsVersion};
use serde::{Deserialize, Deserializer, de};

use super::value_types::NameList;
use crate::text::shape::written_schema;
use crate::text::string_list::OneOrManyStrings;
use crate::text::template::TextTemplate;

/// Proxies through which an origin is reached.
#[derive(Clone, Debug)]
pub struct UpstreamProxyParams {
    /// The proxies, in the order in which they are passed.
    pub via: Vec<TextTemplate>,
    /// Hosts that are reached directly.
    pub bypass: Vec<HostPattern>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpstreamProxyMap {
    /// `http://user:password@host:port` or `socks5://host:port`; several form a chain.
    via: NameList,
    /// Host patterns that are reached directly: `example.com` is this name only, `.example.com` also its subdomains.
    #[serde(default)]
    bypass: OneOrManyStrings,
}

impl TryFrom<UpstreamProxyMap> for UpstreamProxyParams {
    type Error = String;

    fn try_from(m: UpstreamProxyMap) -> Result<Self, String> {
        let bypass = m.bypass.0.iter().map(|text| text.parse().map_err(|e: HostPatternError| e.to_string()));
        Ok(Self { via: m.via.0, bypass: bypass.collect::<Result<_, _>>()? })
    }
}
shorthand!(UpstreamProxyParams from UpstreamProxyMap by via);

impl UpstreamProxyParams {
    /// Whether this origin is reached directly, although the action applies.
    pub fn bypasses(&self, to: &Authority) -> bool {
        self.bypass.iter().any(|pattern| pattern.matches(&to.host, to.port))
    }
}

/// Another address for the upstream connection; the request stays the same.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "ConnectToParams", transform = super::short_form("to"))]
pub struct ConnectToParams {
    /// Host, and port if it differs: `127.0.0.1`, `localhost:8080`, `:8443`.
    pub to: TextTemplate,
}
shorthand!(ConnectToParams by to);

/// A TLS version.
#[derive(Clone, Copy, Debug)]
pub struct TlsVersionParam(pub TlsVersion);

impl<'de> Deserialize<'de> for TlsVersionParam {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = OneOrManyStrings::deserialize(d)?;
        match text.0.as_slice() {
            [v] if v == "1.2" => Ok(Self(TlsVersion::Tls12)),
            [v] if v == "1.3" => Ok(Self(TlsVersion::Tls13)),
            _ => Err(de::Error::custom("TLS is spoken in the versions 1.2 and 1.3: write one of them")),
        }
    }
}

written_schema!(
    TlsVersionParam,
    "TlsOnly",
    |_| json_schema!({ "enum": ["1.2", "1.3", 1.2, 1.3], "description": "A version of TLS." })
);

/// A DNS over HTTPS server.
#[derive(Clone, Debug)]
pub struct DnsServerParam(pub String);

impl<'de> Deserialize<'de> for DnsServerParam {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl DnsServerParam {
    /// Parses `https://host/path` (RFC 8484), also as a URI template with `{?dns}`, or the name of a well-known
    /// server.
    ///
    /// # Errors
    /// Neither of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_alias = ["cloudflare", "google", "quad9"].iter().any(|k| text.eq_ignore_ascii_case(k));
        let plain = text.strip_suffix("{?dns}").unwrap_or(text);
        if is_alias || plain.starts_with("https://") && crate::text::url::parse_url(plain).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{text}` is not a DNS over HTTPS server: write https://host/path, or one of cloudflare, google, quad9"
        ))
    }
}

written_schema!(
    DnsServerParam,
    "DnsServer",
    |_| json_schema!({ "type": "string", "description": "`https://host/path`, or `cloudflare`, `google`, `quad9`." })
);

/// The TLS fingerprint that the upstream connection imitates.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct FingerprintParam(String);

impl FingerprintParam {
    /// In the configuration's syntax.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FingerprintParam {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !text.trim().eq_ignore_ascii_case("none") {
            text.parse::<FingerprintTarget>()?;
        }
        Ok(Self(text.trim().to_owned()))
    }
}

/// A certificate and its key.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateParams {
    /// The certificate chain in PEM; or a PKCS#12 file, which also contains the key.
    pub certificate: PathBuf,
    /// Its key in PEM; absent with PKCS#12.
    pub key: Option<PathBuf>,
    /// The password of the PKCS#12 file; may be a reference `env:NAME` or `file:PATH`.
    pub password: Option<String>,
}

impl fmt::Debug for CertificateParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files().fmt(f)
    }
}

impl CertificateParams {
    pub fn files(&self) -> CertificateFiles {
        CertificateFiles::new(self.certificate.clone(), self.key.clone(), self.password.clone())
    }
}
