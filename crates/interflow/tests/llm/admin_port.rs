//! The admin port while the proxy has run out of file descriptors, and login.

use std::net::TcpStream;

use interflow_testkit::Wire;

use crate::instance::Home;

#[tokio::test]
async fn admin_port_responds_when_proxy_clients_exhaust_the_descriptors() {
    let home = Home::new().await;
    let running = home.start_with_descriptors("", 400);
    // More connections than descriptors; whether the last ones are accepted does not matter.
    let clients: Vec<_> = (0..600).filter_map(|_| TcpStream::connect(running.proxy).ok()).collect();
    assert!(clients.len() > 300, "{}", clients.len());
    running
        .until(async || {
            let stats = running.admin("GET", "/api/v1/stats", "").await;
            let stats: serde_json::Value = serde_json::from_slice(&stats.body).unwrap();
            stats["engine"]["connections_refused"].as_u64().unwrap_or_default() > 0
        })
        .await;
    for path in ["/livez", "/api/v1/flows", "/metrics"] {
        assert_eq!(running.admin("GET", path, "").await.status, 200, "{path}");
    }
    drop(clients);
    running.stop();
}

#[tokio::test]
async fn idle_admin_connections_yield_to_active_ones() {
    let home = Home::new().await;
    let running = home.start("[admin]\nmax_connections = 8\nheader_timeout = \"10m\"\n");
    let mut used = Wire::connect(running.admin).await.unwrap();
    used.send(format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", running.admin)).await.unwrap();
    assert_eq!(used.answer().await.unwrap().status, 200);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Wire::connect(running.admin).await.unwrap());
    }
    for _ in 0..20 {
        assert_eq!(running.admin("GET", "/livez", "").await.status, 200);
    }
    used.send(format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", running.admin)).await.unwrap();
    assert_eq!(used.answer().await.unwrap().status, 200, "a connection that was used stays");
}

#[tokio::test]
async fn login_link_is_valid_once_and_the_token_is_printed_only_to_terminals() {
    let home = Home::new().await;
    assert!(home.say(&["open", "--print"]).fails(3).contains("interflow run"));
    let running = home.start_with_descriptors("", 1024);
    running.until(async || home.file("said").contains("admin ")).await;
    assert!(!home.file("said").contains(&running.token), "{}", home.file("said"));
    let url = home.say(&["open", "--print"]).ok().trim().to_owned();
    let path = url.strip_prefix(&format!("http://{}", running.admin)).unwrap();
    assert!(!url.contains(&running.token), "{url}");
    for status in [303, 401] {
        let mut wire = Wire::connect(running.admin).await.unwrap();
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", running.admin)).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("set-cookie").is_some()), (status, status == 303));
    }
    running.stop();
}
