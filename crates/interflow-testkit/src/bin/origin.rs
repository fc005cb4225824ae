//! The testkit's site as a separate process, for clients in other languages: `origin CA.pem NAME...` listens with and
//! without TLS, writes the CA of its certificate, and prints the two ports.
#![forbid(unsafe_code)]

use interflow_testkit::Origin;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ca, names @ ..] = &args[..] else { return Err("usage: origin CA.pem NAME...".into()) };
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["localhost", "127.0.0.1"]).collect();
    let plain = Origin::http().unrecorded().start().await;
    let secure = Origin::https().unrecorded().names(&names).start().await;
    std::fs::write(ca, secure.ca().pem())?;
    println!("plain {} secure {}", plain.port(), secure.port());
    std::future::pending().await
}
