//! SOCKS5 (RFC 1928) with username/password authentication (RFC 1929), client and server side.
//!
//! The server parses a [`MethodOffer`], possibly [`SocksCredentials`], and a [`SocksCommand`]; the client writes
//! those and parses the replies. Every `parse_*` returns the message and its length, or `None` if it is incomplete.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use interflow_types::{Authority, Host};

use crate::cursor::Cursor;

/// A message and its length in bytes; `None` if more bytes are needed.
pub type SocksParseResult<T> = Result<Option<(T, usize)>, SocksError>;

/// The reply to a request of SOCKS4, which is not supported: rejected, in the format of that version.
pub const SOCKS4_REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

const VERSION: u8 = 5;
/// The version of the subnegotiation (RFC 1929 2).
const AUTH_VERSION: u8 = 1;

/// The two methods of RFC 1928 and RFC 1929 that are supported; GSSAPI is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    None = 0,
    Password = 2,
}

impl AuthMethod {
    const NOT_ACCEPTABLE: u8 = 0xff;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodOffer {
    /// Whether the client accepts to use no authentication.
    pub none: bool,
    /// Whether the client accepts to send a username and password.
    pub password: bool,
}

/// Username and password, as bytes: RFC 1929 specifies no character set.
#[derive(Clone, PartialEq, Eq)]
pub struct SocksCredentials {
    pub user: Vec<u8>,
    pub password: Vec<u8>,
}

impl std::fmt::Debug for SocksCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(***)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksCommand {
    Connect(Authority),
    /// BIND, UDP ASSOCIATE or an unknown command; reply with [`SocksReply::CommandNotSupported`].
    Unsupported(u8),
}

interflow_types::labelled_enum! {
    /// The reply code of a request (RFC 1928 6); the variants have the numbers of the standard. `HostUnreachable` is also
    /// used for a name without an address, `TtlExpired` for timeouts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SocksReply {
        Succeeded "succeeded",
        GeneralFailure "general failure",
        NotAllowed "not allowed by its rules",
        NetworkUnreachable "network unreachable",
        HostUnreachable "host unreachable",
        ConnectionRefused "connection refused",
        TtlExpired "timed out",
        CommandNotSupported "command not supported",
        AddressTypeNotSupported "address type not supported",
    }
}

/// Why bytes are not a valid SOCKS5 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    #[error("the SOCKS version is not 5")]
    Version,
    /// The version of the username/password subnegotiation is not 1.
    #[error("the version of the SOCKS password exchange is not 1")]
    AuthVersion,
    /// An address type other than 1, 3 and 4.
    #[error("the SOCKS address type is unknown")]
    AddressType,
    /// The host is not a valid name, or the port is 0.
    #[error("the SOCKS message has no valid host and port")]
    Address,
    /// The server selected a method that was not offered.
    #[error("the SOCKS server accepts none of the offered authentication methods")]
    NoMethod,
    /// A username that is empty, or a username or password longer than 255 bytes.
    #[error("a SOCKS username must have 1 to 255 bytes, a password at most 255")]
    Credentials,
    /// The target's name is longer than 255 bytes.
    #[error("a SOCKS host name must not exceed 255 bytes")]
    NameTooLong,
}

impl SocksError {
    /// The reply to a request that failed to parse; `None` if the server just closes.
    pub const fn reply(self) -> Option<SocksReply> {
        match self {
            Self::AddressType => Some(SocksReply::AddressTypeNotSupported),
            Self::Address => Some(SocksReply::GeneralFailure),
            _ => None,
        }
    }
}

/// Server: parses the client's method offer (RFC 1928 3).
///
/// # Errors
/// [`SocksError::Version`].
pub fn parse_method_offer(buf: &[u8]) -> SocksParseResult<MethodOffer> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        // The list may hold methods that are not known here.
        let methods = c.counted8().ok_or(Incomplete::More)?;
        Ok(MethodOffer {
            none: methods.contains(&(AuthMethod::None as u8)),
            password: methods.contains(&(AuthMethod::Password as u8)),
        })
    })
}

/// Server: the reply to a method offer. `None` rejects all methods; close the connection then.
pub fn write_method_selection(out: &mut Vec<u8>, method: Option<AuthMethod>) {
    out.extend_from_slice(&[VERSION, method.map_or(AuthMethod::NOT_ACCEPTABLE, |method| method as u8)]);
}

/// Server: parses username and password (RFC 1929 2).
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

/// Server: the reply to credentials. If they are rejected, close the connection then.
pub fn write_auth_status(out: &mut Vec<u8>, welcome: bool) {
    // RFC 1929 2: zero is success, anything else is a failure.
    out.extend_from_slice(&[AUTH_VERSION, u8::from(!welcome)]);
}

/// Server: parses the request (RFC 1928 4).
///
/// # Errors
/// An invalid version, address type, host or port.
pub fn parse_request(buf: &[u8]) -> SocksParseResult<SocksCommand> {
    const CONNECT: u8 = 1;
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        let command = c.u8().ok_or(Incomplete::More)?;
        // A reserved byte. The address is read before the command is judged, so that a refusal follows the whole
        // request.
        c.u8().ok_or(Incomplete::More)?;
        let (host, port) = raw_address(c)?;
        if command != CONNECT {
            return Ok(SocksCommand::Unsupported(command));
        }
        match valid_host(host) {
            Some(host) if port != 0 => Ok(SocksCommand::Connect(Authority::new(host, port))),
            _ => Err(SocksError::Address.into()),
        }
    })
}

/// Server: the reply to a request (RFC 1928 6). `bound` is the local address of the connection to the target, if
/// there is one.
pub fn write_reply(out: &mut Vec<u8>, reply: SocksReply, bound: Option<SocketAddr>) {
    // Clients ignore the bound address of CONNECT; zeros are valid if there is none.
    let bound = bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
    out.extend_from_slice(&[VERSION, reply as u8, 0]);
    write_ip(out, bound.ip());
    out.extend_from_slice(&bound.port().to_be_bytes());
}

/// Client: the method offer; offers username/password only if there are credentials to send.
pub fn write_method_offer(out: &mut Vec<u8>, with_password: bool) {
    out.extend_from_slice(if with_password { &[VERSION, 2, 0, 2] } else { &[VERSION, 1, 0] });
}

/// Client: parses the server's method selection.
///
/// # Errors
/// [`SocksError::NoMethod`] if it is not one that [`write_method_offer`] offered.
pub fn parse_method_selection(buf: &[u8], with_password: bool) -> SocksParseResult<AuthMethod> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        // A method that was not offered is refused: the server is broken or hostile.
        match c.u8().ok_or(Incomplete::More)? {
            0 => Ok(AuthMethod::None),
            2 if with_password => Ok(AuthMethod::Password),
            _ => Err(SocksError::NoMethod.into()),
        }
    })
}

/// Client: username and password. RFC 1929 wants a password of at least one byte, but servers take an empty one, and
/// some accounts have none.
///
/// # Errors
/// [`SocksError::Credentials`] if the username is empty, or one is too long.
pub fn write_credentials(out: &mut Vec<u8>, user: &[u8], password: &[u8]) -> Result<(), SocksError> {
    let length = |text: &[u8]| u8::try_from(text.len()).map_err(|_| SocksError::Credentials);
    let lengths = (length(user)?, length(password)?);
    if user.is_empty() {
        return Err(SocksError::Credentials);
    }
    out.extend_from_slice(&[AUTH_VERSION, lengths.0]);
    out.extend_from_slice(user);
    out.push(lengths.1);
    out.extend_from_slice(password);
    Ok(())
}

/// Client: parses whether the credentials were accepted. The version is not checked, since some servers send that of
/// SOCKS here.
///
/// # Errors
/// None: whatever is not an acceptance is a refusal.
pub fn parse_auth_status(buf: &[u8]) -> SocksParseResult<bool> {
    parse(buf, |c| {
        c.u8().ok_or(Incomplete::More)?;
        Ok(c.u8().ok_or(Incomplete::More)? == 0)
    })
}

/// Client: requests a connection. A name is sent as a name, so that the server resolves it.
///
/// # Errors
/// [`SocksError::NameTooLong`].
pub fn write_connect(out: &mut Vec<u8>, target: &Authority) -> Result<(), SocksError> {
    let name = match &target.host {
        Host::Name(name) => Some((u8::try_from(name.len()).map_err(|_| SocksError::NameTooLong)?, name)),
        Host::Ip(_) => None,
    };
    // Version, CONNECT, and a reserved byte.
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

/// Client: parses the reply to a request. Codes not in RFC 1928 are treated as general failures. The address of a
/// refusal is not read: some servers leave it out, and the connection is of no further use.
///
/// # Errors
/// An invalid version or address type.
pub fn parse_reply(buf: &[u8]) -> SocksParseResult<SocksReply> {
    parse(buf, |c| {
        version(c, VERSION, SocksError::Version)?;
        let code = c.u8().ok_or(Incomplete::More)?;
        // A refusal ends here, see above.
        if code != SocksReply::Succeeded as u8 {
            let reply = SocksReply::ALL.into_iter().find(|r| *r as u8 == code);
            return Ok(reply.unwrap_or(SocksReply::GeneralFailure));
        }
        // A reserved byte, and the bound address, which nobody needs here but which precedes the tunnel's bytes.
        c.u8().ok_or(Incomplete::More)?;
        raw_address(c)?;
        Ok(SocksReply::Succeeded)
    })
}

/// Why a message cannot be parsed yet, or at all.
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
        // What is left in the cursor is not part of the message.
        Ok(message) => Ok(Some((message, buf.len() - c.0.len()))),
        Err(Incomplete::More) => Ok(None),
        Err(Incomplete::Bad(e)) => Err(e),
    }
}

fn version(c: &mut Cursor<'_>, expected: u8, error: SocksError) -> Result<(), Incomplete> {
    if c.u8().ok_or(Incomplete::More)? == expected { Ok(()) } else { Err(error.into()) }
}

/// A host as it was received; a name is not checked.
enum RawHost<'a> {
    Ip(IpAddr),
    Name(&'a [u8]),
}

fn raw_address<'a>(c: &mut Cursor<'a>) -> Result<(RawHost<'a>, u16), Incomplete> {
    let host = match c.u8().ok_or(Incomplete::More)? {
        1 => RawHost::Ip(c.array::<4>().ok_or(Incomplete::More)?.into()),
        4 => RawHost::Ip(c.array::<16>().ok_or(Incomplete::More)?.into()),
        3 => RawHost::Name(c.counted8().ok_or(Incomplete::More)?),
        _ => return Err(SocksError::AddressType.into()),
    };
    Ok((host, c.u16().ok_or(Incomplete::More)?))
}

/// The host, unless it is an invalid name. An address in text form, which some clients send, is treated as an address.
fn valid_host(host: RawHost<'_>) -> Option<Host> {
    let name = match host {
        RawHost::Ip(ip) => return Some(Host::Ip(ip)),
        RawHost::Name(raw) => std::str::from_utf8(raw).ok()?,
    };
    // As an address first: `10.0.0.1` is a syntactically valid name as well.
    name.parse().map(Host::Ip).ok().or_else(|| Host::parse(name).ok())
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

    /// Checks that every proper prefix needs more bytes, and that the whole is parsed without what follows it.
    fn grows<T: PartialEq + std::fmt::Debug>(raw: &[u8], parse: impl Fn(&[u8]) -> SocksParseResult<T>, expected: T) {
        for end in 0..raw.len() {
            assert_eq!(parse(&raw[..end]), Ok(None), "{end} of {raw:?}");
        }
        assert_eq!(parse(&[raw, b"next"].concat()), Ok(Some((expected, raw.len()))));
    }

    #[test]
    fn client_and_server_messages_round_trip() {
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
                let raw = written(|o| write_reply(o, reply, bound));
                match reply {
                    SocksReply::Succeeded => grows(&raw, parse_reply, reply),
                    _ => assert_eq!(parse_reply(&raw).unwrap().unwrap().0, reply),
                }
            }
        }
    }

    #[test]
    fn written_bytes_match_the_rfc() {
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
    fn selected_method_that_was_not_offered_is_refused() {
        assert_eq!(parse_method_selection(b"\x05\x02", false), Err(SocksError::NoMethod));
        assert_eq!(parse_method_selection(b"\x05\x01", true), Err(SocksError::NoMethod));
        assert_eq!(parse_method_selection(b"\x05\xff", true), Err(SocksError::NoMethod));
    }

    #[test]
    fn truncated_replies_of_lax_servers_are_accepted() {
        for (raw, reply, length) in [
            (&b"\x05\x05"[..], SocksReply::ConnectionRefused, 2),
            (b"\x05\x02\x00\x00", SocksReply::NotAllowed, 2),
            (b"\x05\xf0", SocksReply::GeneralFailure, 2),
            (b"\x05\x00\x00\x03\x00\x00\x00", SocksReply::Succeeded, 7),
            (b"\x05\x00\x00\x03\x02\xff \x00\x00", SocksReply::Succeeded, 9),
        ] {
            assert_eq!(parse_reply(raw), Ok(Some((reply, length))), "{raw:?}");
        }
        assert_eq!(parse_reply(b"\x05\x00\x00\x02"), Err(SocksError::AddressType));
        assert_eq!(parse_auth_status(b"\x05\x00"), Ok(Some((true, 2))));
    }

    #[test]
    fn invalid_requests_are_refused() {
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
    fn other_commands_are_reported_by_number() {
        assert_eq!(parse_request(b"\x05\x03\x00\x01\0\0\0\0\0\0"), Ok(Some((SocksCommand::Unsupported(3), 10))));
    }

    #[test]
    fn ip_address_sent_as_a_domain_name_is_parsed_as_an_address() {
        let raw = b"\x05\x01\x00\x03\x03::1\x00\x50";
        assert_eq!(parse_request(raw), Ok(Some((SocksCommand::Connect("[::1]:80".parse().unwrap()), raw.len()))));
    }

    #[test]
    fn credentials_of_invalid_length_are_refused_and_never_logged() {
        let long = vec![b'x'; 256];
        for (user, password) in [(&b""[..], &b"p"[..]), (&long, b"p"), (b"u", &long)] {
            assert_eq!(write_credentials(&mut Vec::new(), user, password), Err(SocksError::Credentials));
        }
        assert_eq!(written(|o| write_credentials(o, b"u", b"").unwrap()), b"\x01\x01u\x00");
        let text = format!("{:?}", SocksCredentials { user: b"me".into(), password: b"secret".into() });
        assert_eq!(text, "Credentials(***)");
    }
}
