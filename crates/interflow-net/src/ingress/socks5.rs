//! The server side of SOCKS5 (RFC 1928), with user and password (RFC 1929).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use interflow_flow::{Authority, BoxFuture, Error, Kind, Result};
pub use interflow_wire::socks5::SocksReply;
use interflow_wire::socks5::{self, AuthMethod, Credentials, Greeting, Request};
use tokio::io::AsyncWriteExt;

use super::peek::Peek;
use crate::io::Io;

/// Who may pass.
#[derive(Clone, Copy)]
pub enum Auth<'a> {
    /// Everybody. A client that insists on sending a user is let in, whoever it says it is.
    Open,
    /// Everybody. A client that can send a user is asked for it, and is believed.
    Named,
    /// Those whose user and password are found right.
    Password(&'a Check<'a>),
}

/// Whether user and password are right.
pub type Check<'a> = dyn Fn(&str, &str) -> BoxFuture<'a, bool> + Send + Sync + 'a;

/// What a client asked for.
#[derive(Debug)]
pub struct Asked {
    /// Where it wants to go.
    pub authority: Authority,
    /// Who it proved to be.
    pub user: Option<String>,
    /// Its connection; [`reply`] comes next.
    pub io: Io,
}

/// Speaks with a client until it has said where it wants to go. Refusals have been answered when this returns.
///
/// # Errors
/// Bytes that are no SOCKS5, wrong credentials, a command other than CONNECT, a client that leaves or is too slow.
pub async fn accept(io: Io, auth: Auth<'_>, timeout: Duration) -> Result<Asked> {
    let mut peek = Peek::new(io, timeout);
    let greeting = message(&mut peek, socks5::parse_greeting).await?;
    let user = sign_in(&mut peek, greeting, auth).await?;
    let authority = target(&mut peek).await?;
    Ok(Asked { authority, user, io: peek.into_io() })
}

/// Tells the client how its request turned out. After [`SocksReply::Succeeded`] the connection is the tunnel.
///
/// # Errors
/// The client went away.
pub async fn reply(io: &mut Io, reply: SocksReply, bound: Option<SocketAddr>) -> io::Result<()> {
    let mut out = Vec::with_capacity(32);
    socks5::write_reply(&mut out, reply, bound);
    io.write_all(&out).await?;
    io.flush().await
}

async fn message<T>(peek: &mut Peek, parse: fn(&[u8]) -> socks5::Parsed<T>) -> Result<T> {
    peek.take(parse).await.map_err(|stop| stop.in_the_middle_of(PLACE))?.map_err(|e| bad(&e))
}

const PLACE: &str = "its SOCKS5 request";

fn bad(e: &socks5::SocksError) -> Error {
    Error::new(Kind::BadRequest, e.to_string())
}

async fn say(peek: &mut Peek, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let mut out = Vec::with_capacity(32);
    write(&mut out);
    peek.say(&out).await.map_err(|stop| stop.in_the_middle_of(PLACE))
}

async fn sign_in(peek: &mut Peek, greeting: Greeting, auth: Auth<'_>) -> Result<Option<String>> {
    let method = match auth {
        Auth::Open if greeting.none => Some(AuthMethod::None),
        _ if greeting.password => Some(AuthMethod::Password),
        Auth::Named if greeting.none => Some(AuthMethod::None),
        _ => None,
    };
    say(peek, |out| socks5::write_choice(out, method)).await?;
    match method {
        None => Err(Error::new(Kind::Unauthorized, "the SOCKS5 client offers no way to sign in that is accepted here")),
        Some(AuthMethod::None) => Ok(None),
        Some(AuthMethod::Password) => {
            let Credentials { user, password } = message(peek, socks5::parse_credentials).await?;
            let texts = String::from_utf8(user).ok().zip(String::from_utf8(password).ok());
            let welcome = match (&texts, auth) {
                (_, Auth::Open | Auth::Named) => true,
                (Some((user, password)), Auth::Password(check)) => check(user, password).await,
                (None, Auth::Password(_)) => false,
            };
            say(peek, |out| socks5::write_verdict(out, welcome)).await?;
            match (welcome, auth) {
                (false, _) => Err(Error::new(Kind::Unauthorized, "the SOCKS5 user or password is wrong")),
                (true, Auth::Open) => Ok(None),
                (true, Auth::Password(_) | Auth::Named) => Ok(texts.map(|(user, _)| user)),
            }
        }
    }
}

async fn target(peek: &mut Peek) -> Result<Authority> {
    let parsed = peek.take(socks5::parse_request).await.map_err(|stop| stop.in_the_middle_of(PLACE))?;
    let (refusal, error) = match parsed {
        Ok(Request::Connect(authority)) => return Ok(authority),
        Ok(Request::Unsupported(command)) => (
            Some(SocksReply::CommandNotSupported),
            Error::new(Kind::Unsupported, format!("SOCKS5 command {command} is not offered, only CONNECT")),
        ),
        Err(e) => (e.reply(), bad(&e)),
    };
    if let Some(refusal) = refusal {
        say(peek, |out| socks5::write_reply(out, refusal, None)).await?;
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Runs a conversation of which the client's part is known beforehand.
    async fn talk(said: &[u8], auth: Auth<'_>) -> (Result<Asked>, Vec<u8>) {
        let (mut client, far) = tokio::io::duplex(1024);
        client.write_all(said).await.unwrap();
        let mut asked = accept(Io::other(far), auth, Duration::from_secs(1)).await;
        if let Ok(asked) = &mut asked {
            reply(&mut asked.io, SocksReply::Succeeded, None).await.unwrap();
        }
        let mut heard = vec![0; 1024];
        client.shutdown().await.unwrap();
        let n = tokio::time::timeout(Duration::from_millis(1), client.read(&mut heard)).await.map_or(0, Result::unwrap);
        heard.truncate(n);
        (asked, heard)
    }

    const CONNECT: &[u8] = b"\x05\x01\x00\x03\x06a.test\x01\xbb";
    const DONE: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    #[tokio::test(start_paused = true)]
    async fn a_client_without_credentials_passes_where_all_may() {
        let (asked, heard) = talk(&[b"\x05\x01\x00", CONNECT, b"early"].concat(), Auth::Open).await;
        let mut asked = asked.unwrap();
        assert_eq!((asked.authority.to_string().as_str(), asked.user), ("a.test:443", None));
        assert_eq!(heard, [&[5, 0], DONE].concat());
        let mut early = [0; 5];
        asked.io.read_exact(&mut early).await.unwrap();
        assert_eq!(&early, b"early");
    }

    #[tokio::test(start_paused = true)]
    async fn a_password_is_checked_where_one_is_asked_for() {
        let check: &Check<'_> = &|user: &str, password: &str| {
            let right = (user, password) == ("u", "pw");
            Box::pin(async move { right })
        };
        let right = [b"\x05\x02\x00\x02", &b"\x01\x01u\x02pw"[..], CONNECT].concat();
        let (asked, heard) = talk(&right, Auth::Password(check)).await;
        assert_eq!(asked.unwrap().user.as_deref(), Some("u"));
        assert_eq!(heard, [&[5, 2, 1, 0], DONE].concat());
        for (said, verdict) in [(&b"\x05\x01\x02\x01\x01u\x02no"[..], &[5, 2, 1, 1][..]), (b"\x05\x01\x00", &[5, 0xff])]
        {
            let (asked, heard) = talk(said, Auth::Password(check)).await;
            assert_eq!(asked.unwrap_err().kind(), Kind::Unauthorized);
            assert_eq!(heard, verdict);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_offered_is_answered_by_its_code() {
        for (request, code, kind) in [
            (&b"\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50"[..], 7, Kind::Unsupported),
            (b"\x05\x01\x00\x09", 8, Kind::BadRequest),
            (b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", 1, Kind::BadRequest),
        ] {
            let (asked, heard) = talk(&[b"\x05\x01\x00", request].concat(), Auth::Open).await;
            assert_eq!((asked.unwrap_err().kind(), heard[3]), (kind, code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_in_the_middle_is_given_up() {
        let (asked, _) = talk(b"\x05\x01", Auth::Open).await;
        assert_eq!(asked.unwrap_err().kind(), Kind::ClientTimeout);
    }
}
