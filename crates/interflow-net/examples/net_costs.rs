//! Cost of leaf certificates and tunnels on this machine: microseconds per leaf, and throughput and CPU of a tunnel
//! with and without `splice(2)`. Run it with `cargo run --release -p interflow-net --example net_costs`.

use std::time::{Duration, Instant};

use interflow_net::ca::CertificateAuthority;
use interflow_net::relay::{TunnelCounters, TunnelOptions, tunnel};
use interflow_net::tls::Alpn;
use interflow_types::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LEAVES: u32 = 2000;
const BYTES: usize = 256 << 20;

fn main() {
    leaves();
    for round in 1..=3 {
        for splice in [false, true] {
            let (wall, cpu) = tunnel_cost(splice);
            let rate = (BYTES >> 20) as f64 / wall.as_secs_f64();
            let name = if splice { "splice" } else { "buffers" };
            println!(
                "tunnel, round {round}, {name:>7}: {rate:6.0} MiB/s, {:6.1} ms CPU of the tunnel",
                cpu.as_secs_f64() * 1e3
            );
        }
    }
}

fn leaves() {
    let dir = std::env::temp_dir().join(format!("interflow-net-costs-{}", std::process::id()));
    let ca = CertificateAuthority::open_or_create(&dir).expect("a temporary folder can be written");
    std::thread::sleep(Duration::from_millis(100));
    let hosts: Vec<_> = (0..LEAVES).map(|i| Host::parse(&format!("h{i}.example")).expect("a host name")).collect();
    let few = &hosts[..32];
    for (what, hosts) in
        [("with a key made ahead", few), ("key included", &hosts[32..]), ("again, from the cache", few)]
    {
        let (begun, cpu) = (Instant::now(), thread_cpu());
        for host in hosts {
            ca.server_tls(host, Alpn::Both);
        }
        let each = |spent: Duration| spent.as_secs_f64() * 1e6 / hosts.len() as f64;
        print!("leaf, {what}: {:.2} us", each(begun.elapsed()));
        // The kernel counts CPU in ticks, so that a short run may show none.
        match thread_cpu() - cpu {
            Duration::ZERO => println!(),
            cpu => println!(", {:.2} us CPU of the asking thread", each(cpu)),
        }
    }
    let _ = std::fs::remove_dir_all(dir);
}

/// Runs the tunnel in a thread of its own, to measure its CPU separately from the two ends.
fn tunnel_cost(splice: bool) -> (Duration, Duration) {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (tell, told) = std::sync::mpsc::channel();
    let relay = std::thread::spawn(move || {
        runtime().block_on(async {
            let front = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
            let back = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
            let ends = (front.local_addr().expect("bound"), back.local_addr().expect("bound"));
            tell.send(ends).expect("the other thread waits");
            let (client, _) = front.accept().await.expect("the client comes");
            let (upstream, _) = back.accept().await.expect("the upstream comes");
            let before = thread_cpu();
            let options = TunnelOptions { splice, ..TunnelOptions::default() };
            tunnel(client.into(), upstream.into(), &options, &TunnelCounters::default()).await.expect("it ends well");
            thread_cpu() - before
        })
    });
    let (front, back) = told.recv().expect("the tunnel's thread runs");
    let wall = runtime().block_on(async {
        let mut client = TcpStream::connect(front).await.expect("loopback");
        let mut upstream = TcpStream::connect(back).await.expect("loopback");
        let begun = Instant::now();
        let sending = async {
            let chunk = vec![7; 256 << 10];
            for _ in 0..BYTES / chunk.len() {
                upstream.write_all(&chunk).await.expect("it is read");
            }
            upstream.shutdown().await.expect("it is open");
        };
        let reading = async {
            client.shutdown().await.expect("it is open");
            let (mut buf, mut total) = (vec![0; 256 << 10], 0);
            loop {
                match client.read(&mut buf).await.expect("it ends well") {
                    0 => break total,
                    n => total += n,
                }
            }
        };
        let ((), total) = tokio::join!(sending, reading);
        assert_eq!(total, BYTES);
        begun.elapsed()
    });
    (wall, relay.join().expect("it does not panic"))
}

/// CPU time of this thread so far, in kernel clock ticks if nothing finer is available.
fn thread_cpu() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/thread-self/schedstat") else { return Duration::ZERO };
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
