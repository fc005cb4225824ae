//! The PostgreSQL of tests: databases are separate, and the data outlives a restart and a crash.
#![cfg(unix)]

use std::sync::Arc;

use interflow_testkit::{PostgresServer, TestCa};

#[test]
fn each_test_has_a_database_of_its_own_on_one_server() {
    let Some(server) = PostgresServer::shared() else { return };
    let again = PostgresServer::shared().unwrap();
    assert!(Arc::ptr_eq(&server, &again));
    let (one, other) = (server.database(), again.database());
    one.sql("CREATE TABLE t(n int); INSERT INTO t VALUES (1), (2)");
    assert_eq!(one.sql("SELECT n, n * 2 FROM t ORDER BY n"), "1|2\n2|4");
    assert_eq!(other.sql("SELECT count(*) FROM pg_tables WHERE tablename = 't'"), "0");
    assert!(one.url().ends_with(&format!("@127.0.0.1:{}/{}", server.port(), one.name())));
}

#[test]
fn data_outlives_a_restart_and_a_crash_on_the_same_port() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    database.sql("CREATE TABLE t(n int)");
    let port = server.port();
    for (round, end) in [(1, PostgresServer::stop as fn(&PostgresServer)), (2, PostgresServer::kill)] {
        database.sql(&format!("INSERT INTO t VALUES ({round})"));
        end(&server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "it still listens");
        server.start();
        assert_eq!(database.sql("SELECT count(*) FROM t"), round.to_string());
    }
    assert_eq!(server.port(), port);
}

#[test]
fn a_server_with_tls_says_so_when_it_is_asked() {
    use std::io::{Read as _, Write as _};
    let Some(server) = PostgresServer::with_tls(&TestCa::new(), &["localhost", "127.0.0.1"]) else { return };
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    // An SSLRequest: its length, and the code in place of a version.
    socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
}
