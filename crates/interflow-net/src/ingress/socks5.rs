//! The server side of SOCKS5 (RFC 1928), with username/password authentication (RFC 1929).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use interflow_codec::socks5::SocksReply;
use interflow_codec::socks5::{self, AuthMethod, MethodOffer, SocksCommand, SocksCredentials};
use interflow_types::{Authority, BoxFuture, Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt;

use super::peek::PeekReader;
use crate::io::IoStream;

/// Which clients are accepted.
#[derive(Clone, Copy)]
pub enum SocksAuth<'a> {
    /// All. A client that insists on sending a username is accepted with any, and has the name only if it is correct.
    Open(&'a PasswordCheck<'a>),
    /// All. A client that can send a username is asked for it, and has the name whether it is correct or not.
    Named(&'a PasswordCheck<'a>),
    /// Those whose username and password are correct.
    Password(&'a PasswordCheck<'a>),
}

pub type PasswordCheck<'a> = dyn Fn(&str, &str) -> BoxFuture<'a, bool> + Send + Sync + 'a;

/// A client's request, after authentication. Nothing has been replied to it yet; call [`reply`] with the result of
/// connecting.
#[derive(Debug)]
pub struct SocksRequest {
    pub authority: Authority,
    pub user: Option<String>,
    pub io: IoStream,
}

/// Negotiates with a client up to its request. Refusals have been sent when this returns.
///
/// # Errors
/// Bytes that are not SOCKS5, wrong credentials, a command other than CONNECT, or a client that disconnects or is too
/// slow.
pub async fn accept(io: IoStream, auth: SocksAuth<'_>, timeout: Duration) -> Result<SocksRequest> {
    let mut peek = PeekReader::new(io, timeout);
    let greeting = read_message(&mut peek, socks5::parse_method_offer).await?;
    let user = authenticate(&mut peek, greeting, auth).await?;
    let authority = read_target(&mut peek).await?;
    Ok(SocksRequest { authority, user, io: peek.into_io() })
}

/// Sends the reply to the request. After [`SocksReply::Succeeded`] the connection is the tunnel.
///
/// # Errors
/// The client disconnected.
pub async fn reply(io: &mut IoStream, reply: SocksReply, bound: Option<SocketAddr>) -> io::Result<()> {
    let mut out = Vec::with_capacity(32);
    socks5::write_reply(&mut out, reply, bound);
    io.write_all(&out).await?;
    io.flush().await
}

/// Refuses a request of SOCKS4, in the format of that version.
///
/// # Errors
/// Always: why the connection ends.
pub async fn reject_version4(mut io: IoStream) -> Result<()> {
    let _ = io.write_all(&socks5::SOCKS4_REJECTED).await;
    let _ = io.shutdown().await;
    Err(Error::new(
        ErrorKind::UnknownProtocol,
        "the client uses SOCKS4, which is not supported: configure it to use SOCKS5 or HTTP",
    ))
}

async fn read_message<T>(peek: &mut PeekReader, parse: fn(&[u8]) -> socks5::SocksParseResult<T>) -> Result<T> {
    peek.read_message(parse).await.map_err(|stop| stop.into_error(READ_CONTEXT))?.map_err(|e| bad_request(&e))
}

const READ_CONTEXT: &str = "its SOCKS5 request";

fn bad_request(e: &socks5::SocksError) -> Error {
    Error::new(ErrorKind::BadRequest, e.to_string())
}

async fn write_message(peek: &mut PeekReader, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let mut out = Vec::with_capacity(32);
    write(&mut out);
    peek.write(&out).await.map_err(|stop| stop.into_error(READ_CONTEXT))
}

async fn authenticate(peek: &mut PeekReader, greeting: MethodOffer, auth: SocksAuth<'_>) -> Result<Option<String>> {
    // With `Open` a password is accepted only from clients that offer nothing else; `Named` prefers it, for the name.
    let method = match auth {
        SocksAuth::Open(_) if greeting.none => Some(AuthMethod::None),
        _ if greeting.password => Some(AuthMethod::Password),
        SocksAuth::Named(_) if greeting.none => Some(AuthMethod::None),
        _ => None,
    };
    // Also sent if no method is acceptable (0xFF, RFC 1928 3), so that the client knows why.
    write_message(peek, |out| socks5::write_method_selection(out, method)).await?;
    match method {
        None => {
            Err(Error::new(ErrorKind::Unauthorized, "the SOCKS5 client offers no acceptable authentication method"))
        }
        Some(AuthMethod::None) => Ok(None),
        Some(AuthMethod::Password) => {
            let SocksCredentials { user, password } = read_message(peek, socks5::parse_credentials).await?;
            let texts = String::from_utf8(user).ok().zip(String::from_utf8(password).ok());
            let (SocksAuth::Open(check) | SocksAuth::Named(check) | SocksAuth::Password(check)) = auth;
            let verified = match &texts {
                Some((user, password)) => check(user, password).await,
                // Names that are not UTF-8 cannot match a configured user.
                None => false,
            };
            let welcome = verified || !matches!(auth, SocksAuth::Password(_));
            write_message(peek, |out| socks5::write_auth_status(out, welcome)).await?;
            if !welcome {
                return Err(Error::new(ErrorKind::Unauthorized, "the SOCKS5 username or password is wrong"));
            }
            let named = verified || matches!(auth, SocksAuth::Named(_));
            Ok(texts.filter(|_| named).map(|(user, _)| user))
        }
    }
}

async fn read_target(peek: &mut PeekReader) -> Result<Authority> {
    let parsed = peek.read_message(socks5::parse_request).await.map_err(|stop| stop.into_error(READ_CONTEXT))?;
    let (refusal, error) = match parsed {
        Ok(SocksCommand::Connect(authority)) => return Ok(authority),
        Ok(SocksCommand::Unsupported(command)) => (
            Some(SocksReply::CommandNotSupported),
            Error::new(ErrorKind::Unsupported, format!("SOCKS5 command {command} is not supported, only CONNECT")),
        ),
        Err(e) => (e.reply(), bad_request(&e)),
        // Only errors that RFC 1928 has a code for are answered.
    };
    if let Some(refusal) = refusal {
        write_message(peek, |out| socks5::write_reply(out, refusal, None)).await?;
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Runs a conversation in which the client's messages are known in advance.
    async fn talk(said: &[u8], auth: SocksAuth<'_>) -> (Result<SocksRequest>, Vec<u8>) {
        let (mut client, far) = tokio::io::duplex(1024);
        client.write_all(said).await.unwrap();
        let mut asked = accept(IoStream::other(far), auth, Duration::from_secs(1)).await;
        if let Ok(asked) = &mut asked {
            reply(&mut asked.io, SocksReply::Succeeded, None).await.unwrap();
        }
        let mut heard = vec![0; 1024];
        client.shutdown().await.unwrap();
        let n = tokio::time::timeout(Duration::from_millis(1), client.read(&mut heard)).await.map_or(0, Result::unwrap);
        heard.truncate(n);
        (asked, heard)
    }

    fn nobody<'a>(_: &str, _: &str) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }

    const CONNECT: &[u8] = b"\x05\x01\x00\x03\x06a.test\x01\xbb";
    const DONE: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    #[tokio::test(start_paused = true)]
    async fn a_client_without_credentials_is_accepted_if_open() {
        let (asked, heard) = talk(&[b"\x05\x01\x00", CONNECT, b"early"].concat(), SocksAuth::Open(&nobody)).await;
        let mut asked = asked.unwrap();
        assert_eq!((asked.authority.to_string().as_str(), asked.user), ("a.test:443", None));
        assert_eq!(heard, [&[5, 0], DONE].concat());
        let mut early = [0; 5];
        asked.io.read_exact(&mut early).await.unwrap();
        assert_eq!(&early, b"early");
    }

    #[tokio::test(start_paused = true)]
    async fn a_password_is_verified_if_required() {
        let check: &PasswordCheck<'_> = &|user: &str, password: &str| {
            let right = (user, password) == ("u", "pw");
            Box::pin(async move { right })
        };
        let right = [b"\x05\x02\x00\x02", &b"\x01\x01u\x02pw"[..], CONNECT].concat();
        let (asked, heard) = talk(&right, SocksAuth::Password(check)).await;
        assert_eq!(asked.unwrap().user.as_deref(), Some("u"));
        assert_eq!(heard, [&[5, 2, 1, 0], DONE].concat());
        for (said, verdict) in [(&b"\x05\x01\x02\x01\x01u\x02no"[..], &[5, 2, 1, 1][..]), (b"\x05\x01\x00", &[5, 0xff])]
        {
            let (asked, heard) = talk(said, SocksAuth::Password(check)).await;
            assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unauthorized);
            assert_eq!(heard, verdict);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_open_names_only_users_whose_password_is_correct() {
        fn check<'a>(user: &str, password: &str) -> BoxFuture<'a, bool> {
            let right = (user, password) == ("u", "pw");
            Box::pin(async move { right })
        }
        for (login, open, named) in
            [(&b"\x01\x01u\x02pw"[..], Some("u"), Some("u")), (b"\x01\x01u\x02no", None, Some("u"))]
        {
            let said = [b"\x05\x01\x02", login, CONNECT].concat();
            for (auth, user) in [(SocksAuth::Open(&check), open), (SocksAuth::Named(&check), named)] {
                let (asked, heard) = talk(&said, auth).await;
                assert_eq!(asked.unwrap().user.as_deref(), user);
                assert_eq!(heard, [&[5, 2, 1, 0], DONE].concat());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unsupported_requests_get_their_reply_code() {
        for (request, code, kind) in [
            (&b"\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50"[..], 7, ErrorKind::Unsupported),
            (b"\x05\x01\x00\x09", 8, ErrorKind::BadRequest),
            (b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", 1, ErrorKind::BadRequest),
        ] {
            let (asked, heard) = talk(&[b"\x05\x01\x00", request].concat(), SocksAuth::Open(&nobody)).await;
            assert_eq!((asked.unwrap_err().kind(), heard[3]), (kind, code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stalls_is_timed_out() {
        let (asked, _) = talk(b"\x05\x01", SocksAuth::Open(&nobody)).await;
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::ClientTimeout);
    }
}
