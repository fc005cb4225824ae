//! SOCKS5 (RFC 1928) with user and password (RFC 1929), both sides of the conversation.
//!
//! The server reads a [`MethodOffer`], perhaps [`SocksCredentials`], and a [`SocksCommand`]; the client writes those and reads
//! what comes back. Every `parse_*` gives the message and its length, or `None` when it is not all there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use interflow_types::{Authority, Host};

use crate::cursor::Cursor;

/// A message and how many bytes it took; `None` when more are needed.
pub type SocksParseResult<T> = Result<Option<(T, usize)>, SocksError>;

const VERSION: u8 = 5;
/// RFC 1929 2: the version of the subnegotiation.
const AUTH_VERSION: u8 = 1;

/// How a client may prove who it is (RFC 1928 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// Not at all.
    None,
    /// User and password (RFC 1929).
    Password,
}

impl AuthMethod {
    const NOT_ACCEPTABLE: u8 = 0xff;

    const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Password => 2,
        }
    }
}

/// The methods that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodOffer {
    /// Whether it would go without.
    pub none: bool,
    /// Whether it would send a user and a password.
    pub password: bool,
}

/// A user and a password, as bytes: RFC 1929 names no character set.
#[derive(Clone, PartialEq, Eq)]
pub struct SocksCredentials {
    /// The user's name.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for SocksCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksCommand {
    /// A connection to this authority.
    Connect(Authority),
    /// BIND, UDP ASSOCIATE or a command that is not known: answer [`SocksReply::CommandNotSupported`].
    Unsupported(u8),
}

/// The outcome of a request (RFC 1928 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocksReply {
    /// Connected.
    Succeeded,
    /// Anything else.
    GeneralFailure,
    /// Rules forbid it.
    NotAllowed,
    /// The network cannot be reached.
    NetworkUnreachable,
    /// The host cannot be reached, or has no address.
    HostUnreachable,
    /// The host refused.
    ConnectionRefused,
    /// It took too long.
    TtlExpired,
    /// Neither BIND nor UDP ASSOCIATE is offered.
    CommandNotSupported,
    /// An address that is neither IPv4, IPv6 nor a name.
    AddressTypeNotSupported,
}

impl SocksReply {
    const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::GeneralFailure,
        Self::NotAllowed,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::ConnectionRefused,
        Self::TtlExpired,
        Self::CommandNotSupported,
        Self::AddressTypeNotSupported,
    ];

    const fn code(self) -> u8 {
        self as u8
    }

    /// In words, for a message to the owner.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::GeneralFailure => "general failure",
            Self::NotAllowed => "not allowed by its rules",
            Self::NetworkUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::ConnectionRefused => "connection refused",
            Self::TtlExpired => "timed out",
            Self::CommandNotSupported => "command not supported",
            Self::AddressTypeNotSupported => "address type not supported",
        }
    }
}

/// Why bytes are no message of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, SOCKS4 perhaps.
    #[error("the SOCKS version is not 5")]
    Version,
    /// The version of the password exchange is not 1.
    #[error("the version of the SOCKS password exchange is not 1")]
    AuthVersion,
    /// An address type beyond 1, 3 and 4.
    #[error("the SOCKS address type is not known")]
    AddressType,
    /// A host that is no name, or port 0.
    #[error("the SOCKS message names no valid host and port")]
    Address,
    /// The server wants a method that was not offered.
    #[error("the SOCKS server accepts none of the offered ways to sign in")]
    NoMethod,
    /// A user or password that is empty or longer than 255 bytes.
    #[error("a SOCKS user or password takes 1 to 255 bytes")]
    Credentials,
    /// The target's name is longer than 255 bytes.
    #[error("a SOCKS host name takes 255 bytes at most")]
    NameTooLong,
}

impl SocksError {
    /// What a server answers to a request that failed so; `None`: it just closes.
    pub const fn reply(self) -> Option<SocksReply> {
        match self {
            Self::AddressType => Some(SocksReply::AddressTypeNotSupported),
            Self::Address => Some(SocksReply::GeneralFailure),
            _ => None,
        }
    }
}

/// Server: reads the client's first message (RFC 1928 3).
///
/// # Errors
/// [`SocksError::Version`].
pub fn parse_method_offer(buf: &[u8]) -> SocksParseResult<MethodOffer> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        let methods = c.counted8().ok_or(Incomplete::More)?;
        Ok(MethodOffer {
            none: methods.contains(&AuthMethod::None.code()),
            password: methods.contains(&AuthMethod::Password.code()),
        })
    })
}

/// Server: the answer to a greeting. `None` refuses all offers; close then.
pub fn write_method_selection(out: &mut Vec<u8>, method: Option<AuthMethod>) {
    out.extend_from_slice(&[VERSION, method.map_or(AuthMethod::NOT_ACCEPTABLE, AuthMethod::code)]);
}

/// Server: reads user and password (RFC 1929 2).
///
/// # Errors
/// [`SocksError::AuthVersion`].
pub fn parse_credentials(buf: &[u8]) -> SocksParseResult<SocksCredentials> {
    parse(buf, |c| {
        version(c, AUTH_VERSION, SocksError::AuthVersion)?;
        let user = c.counted8().ok_or(Incomplete::More)?.to_vec();
        let password = c.counted8().ok_or(Incomplete::More)?.to_vec();
        Ok(SocksCredentials { user, password })
    })
}

/// Server: the answer to credentials. After a refusal, close.
pub fn write_auth_status(out: &mut Vec<u8>, welcome: bool) {
    out.extend_from_slice(&[AUTH_VERSION, u8::from(!welcome)]);
}

/// Server: reads the request (RFC 1928 4).
///
/// # Errors
/// A version, address type, host or port that does not hold.
pub fn parse_request(buf: &[u8]) -> SocksParseResult<SocksCommand> {
    const CONNECT: u8 = 1;
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        let command = c.u8().ok_or(Incomplete::More)?;
        c.u8().ok_or(Incomplete::More)?;
        let (host, port) = address(c)?;
        if command != CONNECT {
            return Ok(SocksCommand::Unsupported(command));
        }
        match host {
            Some(host) if port != 0 => Ok(SocksCommand::Connect(Authority::new(host, port))),
            _ => Err(SocksError::Address.into()),
        }
    })
}

/// Server: the answer to a request (RFC 1928 6). `bound` is our end of the connection to the target, when there is one.
pub fn write_reply(out: &mut Vec<u8>, reply: SocksReply, bound: Option<SocketAddr>) {
    let bound = bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
    out.extend_from_slice(&[VERSION, reply.code(), 0]);
    write_ip(out, bound.ip());
    out.extend_from_slice(&bound.port().to_be_bytes());
}

/// Client: the first message; offers a password only when there is one to send.
pub fn write_method_offer(out: &mut Vec<u8>, with_password: bool) {
    out.extend_from_slice(if with_password { &[VERSION, 2, 0, 2] } else { &[VERSION, 1, 0] });
}

/// Client: reads the server's choice.
///
/// # Errors
/// [`SocksError::NoMethod`] when it is none that [`write_greeting`] offered.
pub fn parse_method_selection(buf: &[u8], with_password: bool) -> SocksParseResult<AuthMethod> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        match c.u8().ok_or(Incomplete::More)? {
            0 => Ok(AuthMethod::None),
            2 if with_password => Ok(AuthMethod::Password),
            _ => Err(SocksError::NoMethod.into()),
        }
    })
}

/// Client: user and password.
///
/// # Errors
/// [`SocksError::SocksCredentials`] when one does not fit.
pub fn write_credentials(out: &mut Vec<u8>, user: &[u8], password: &[u8]) -> Result<(), SocksError> {
    let length = |text: &[u8]| u8::try_from(text.len()).ok().filter(|&n| n > 0).ok_or(SocksError::Credentials);
    let lengths = (length(user)?, length(password)?);
    out.extend_from_slice(&[AUTH_VERSION, lengths.0]);
    out.extend_from_slice(user);
    out.push(lengths.1);
    out.extend_from_slice(password);
    Ok(())
}

/// Client: reads whether the credentials were accepted.
///
/// # Errors
/// [`SocksError::AuthVersion`].
pub fn parse_auth_status(buf: &[u8]) -> SocksParseResult<bool> {
    parse(buf, |c| {
        version(c, AUTH_VERSION, SocksError::AuthVersion)?;
        Ok(c.u8().ok_or(Incomplete::More)? == 0)
    })
}

/// Client: asks for a connection. A name goes as a name, so that the server resolves it.
///
/// # Errors
/// [`SocksError::NameTooLong`].
pub fn write_connect(out: &mut Vec<u8>, target: &Authority) -> Result<(), SocksError> {
    let name = match &target.host {
        Host::Name(name) => Some((u8::try_from(name.len()).map_err(|_| SocksError::NameTooLong)?, name)),
        Host::Ip(_) => None,
    };
    out.extend_from_slice(&[VERSION, 1, 0]);
    match (name, target.host.ip()) {
        (Some((length, name)), _) => {
            out.extend_from_slice(&[3, length]);
            out.extend_from_slice(name.as_bytes());
        }
        (None, Some(ip)) => write_ip(out, ip),
        (None, None) => return Err(SocksError::Address),
    }
    out.extend_from_slice(&target.port.to_be_bytes());
    Ok(())
}

/// Client: reads the outcome. Codes that RFC 1928 does not name are general failures.
///
/// # Errors
/// A version or address type that does not hold.
pub fn parse_reply(buf: &[u8]) -> SocksParseResult<SocksReply> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        let code = c.u8().ok_or(Incomplete::More)?;
        c.u8().ok_or(Incomplete::More)?;
        address(c)?;
        Ok(SocksReply::ALL.into_iter().find(|r| r.code() == code).unwrap_or(SocksReply::GeneralFailure))
    })
}

/// Why a message cannot be read now.
enum Incomplete {
    More,
    Bad(SocksError),
}

impl From<SocksError> for Incomplete {
    fn from(e: SocksError) -> Self {
        Self::Bad(e)
    }
}

fn parse<T>(buf: &[u8], read: impl FnOnce(&mut Cursor<'_>) -> Result<T, Incomplete>) -> SocksParseResult<T> {
    let mut c = Cursor(buf);
    match read(&mut c) {
        Ok(message) => Ok(Some((message, buf.len() - c.0.len()))),
        Err(Incomplete::More) => Ok(None),
        Err(Incomplete::Bad(e)) => Err(e),
    }
}

fn version(c: &mut Cursor<'_>, expected: u8, error: SocksError) -> Result<(), Incomplete> {
    if c.u8().ok_or(Incomplete::More)? == expected { Ok(()) } else { Err(error.into()) }
}

/// Host and port; no host where the name is empty, as some servers leave it in replies.
fn address(c: &mut Cursor<'_>) -> Result<(Option<Host>, u16), Incomplete> {
    let host = match c.u8().ok_or(Incomplete::More)? {
        1 => Some(Host::Ip(c.array::<4>().ok_or(Incomplete::More)?.into())),
        4 => Some(Host::Ip(c.array::<16>().ok_or(Incomplete::More)?.into())),
        3 => name(c.counted8().ok_or(Incomplete::More)?)?,
        _ => return Err(SocksError::AddressType.into()),
    };
    Ok((host, c.u16().ok_or(Incomplete::More)?))
}

/// A name; an address written as text counts as the address, which some clients send.
fn name(raw: &[u8]) -> Result<Option<Host>, Incomplete> {
    if raw.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(raw).map_err(|_| SocksError::Address)?;
    match text.parse::<IpAddr>() {
        Ok(ip) => Ok(Some(Host::Ip(ip))),
        Err(_) => Ok(Some(Host::parse(text).map_err(|_| SocksError::Address)?)),
    }
}

fn write_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    /// Every prefix asks for more, the whole gives the message and leaves what follows.
    fn grows<T: PartialEq + std::fmt::Debug>(raw: &[u8], parse: impl Fn(&[u8]) -> SocksParseResult<T>, expected: T) {
        for end in 0..raw.len() {
            assert_eq!(parse(&raw[..end]), Ok(None), "{end} of {raw:?}");
        }
        assert_eq!(parse(&[raw, b"next"].concat()), Ok(Some((expected, raw.len()))));
    }

    #[test]
    fn both_sides_understand_each_other() {
        grows(
            &written(|o| write_method_offer(o, true)),
            parse_method_offer,
            MethodOffer { none: true, password: true },
        );
        grows(
            &written(|o| write_method_offer(o, false)),
            parse_method_offer,
            MethodOffer { none: true, password: false },
        );
        grows(
            &written(|o| write_method_selection(o, Some(AuthMethod::Password))),
            |b| parse_method_selection(b, true),
            AuthMethod::Password,
        );
        let credentials = SocksCredentials { user: b"me".into(), password: b"secret".into() };
        grows(&written(|o| write_credentials(o, b"me", b"secret").unwrap()), parse_credentials, credentials);
        grows(&written(|o| write_auth_status(o, true)), parse_auth_status, true);
        grows(&written(|o| write_auth_status(o, false)), parse_auth_status, false);
        for target in ["a.b:443", "127.0.0.1:1", "[2001:db8::1]:65535"] {
            let target: Authority = target.parse().unwrap();
            grows(&written(|o| write_connect(o, &target).unwrap()), parse_request, SocksCommand::Connect(target));
        }
        for reply in SocksReply::ALL {
            for bound in [None, Some("[::1]:80".parse().unwrap())] {
                grows(&written(|o| write_reply(o, reply, bound)), parse_reply, reply);
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_rfc() {
        let connect = |a: &str| written(|o| write_connect(o, &a.parse().unwrap()).unwrap());
        assert_eq!(connect("ab:80"), b"\x05\x01\x00\x03\x02ab\x00\x50");
        assert_eq!(connect("1.2.3.4:443"), b"\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb");
        assert_eq!(written(|o| write_method_selection(o, None)), b"\x05\xff");
        assert_eq!(
            written(|o| write_reply(o, SocksReply::ConnectionRefused, None)),
            b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"
        );
    }

    #[test]
    fn a_choice_that_was_not_offered_is_refused() {
        assert_eq!(parse_method_selection(b"\x05\x02", false), Err(SocksError::NoMethod));
        assert_eq!(parse_method_selection(b"\x05\x01", true), Err(SocksError::NoMethod));
        assert_eq!(parse_method_selection(b"\x05\xff", true), Err(SocksError::NoMethod));
    }

    #[test]
    fn requests_that_do_not_hold_are_refused() {
        for (raw, error) in [
            (&b"\x04\x01"[..], SocksError::Version),
            (b"\x05\x01\x00\x02", SocksError::AddressType),
            (b"\x05\x01\x00\x03\x00\x00\x50", SocksError::Address),
            (b"\x05\x01\x00\x03\x03a b\x00\x50", SocksError::Address),
            (b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50", SocksError::Address),
            (b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", SocksError::Address),
        ] {
            assert_eq!(parse_request(raw), Err(error), "{raw:?}");
        }
        assert_eq!(parse_method_offer(b"GET "), Err(SocksError::Version));
        assert_eq!(parse_credentials(b"\x05"), Err(SocksError::AuthVersion));
        assert_eq!(SocksError::AddressType.reply(), Some(SocksReply::AddressTypeNotSupported));
        assert_eq!(SocksError::Version.reply(), None);
    }

    #[test]
    fn other_commands_are_told_by_their_number() {
        assert_eq!(parse_request(b"\x05\x03\x00\x01\0\0\0\0\0\0"), Ok(Some((SocksCommand::Unsupported(3), 10))));
    }

    #[test]
    fn an_address_sent_as_a_name_is_the_address() {
        let raw = b"\x05\x01\x00\x03\x03::1\x00\x50";
        assert_eq!(parse_request(raw), Ok(Some((SocksCommand::Connect("[::1]:80".parse().unwrap()), raw.len()))));
    }

    #[test]
    fn credentials_that_do_not_fit_are_refused_and_never_shown() {
        let long = vec![b'x'; 256];
        for (user, password) in [(&b""[..], &b"p"[..]), (b"u", b""), (&long, b"p"), (b"u", &long)] {
            assert_eq!(write_credentials(&mut Vec::new(), user, password), Err(SocksError::Credentials));
        }
        let shown = format!("{:?}", SocksCredentials { user: b"me".into(), password: b"secret".into() });
        assert_eq!(shown, "Credentials(***)");
    }
}
