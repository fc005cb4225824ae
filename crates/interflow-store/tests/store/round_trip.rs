//! Everything recorded is read back byte for byte.

use bytes::Bytes;
use interflow_query::Query;
use interflow_store::*;
use interflow_types::{
    Attempt, AttemptState, Attempts, ByteCounts, CertificateChain, ClientInfo, ClientProcess, ClientTls, Direction,
    Error, ErrorKind, FlowId, FlowOutcome, HttpVersion, MessageKind, Recorder, StatusCode, StreamMessage, Timestamp,
    UpstreamInfo, UpstreamTls,
};

use super::*;

both_stores!(
    identity_user_tags_attempts_and_timings_of_a_flow_round_trip,
    fingerprints_and_process_of_the_client_round_trip,
    certificate_chains_of_both_sides_round_trip,
    flows_are_found_by_process_and_fingerprint_of_the_client,
    upstream_connection_and_its_tls_problem_round_trip,
    heads_interim_responses_and_trailers_round_trip,
    secret_headers_are_recorded_masked,
    bodies_round_trip_with_their_sizes,
    a_row_with_all_details_survives_its_json_form,
    bodies_of_every_length_and_range_round_trip,
    messages_keep_order_direction_and_time,
    a_tunnel_is_recorded_with_its_byte_counts,
    a_failed_flow_is_recorded_with_its_error,
    a_capture_dropped_without_an_end_is_recorded_as_cut,
    an_unknown_flow_is_not_found,
    configured_caps_are_applied_and_reported,
    disabled_body_recording_stores_only_sizes,
    an_imported_flow_is_stored_once,
    secrets_in_urls_of_imported_flows_are_masked,
    flows_written_together_keep_their_own_host_client_and_type,
);

fn read(store: &TestStore, id: FlowId, direction: Direction) -> Vec<u8> {
    store.body(id, direction, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

/// A recorded exchange in which every detail is set.
struct DetailedExchange {
    store: TestStore,
    flow: Flow,
    row: FlowRecord,
    response_body: Vec<u8>,
}

fn detailed_exchange(kind: &StoreKind) -> DetailedExchange {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let mut flow = detailed_flow();
    let mut head = request(&flow, "PoST", "/v1/x?y=1");
    head.headers.append_unchecked(b"Authorization", b"Bearer sk-secret");
    head.headers.append_unchecked(b"X-Raw", b"\xff\xfe");
    head.headers.append_unchecked(b"x-raw", b"");
    let mut capture = recorder.begin(&flow, Some(&head)).unwrap();
    capture.data(Direction::Request, &Bytes::from_static(b"question"));
    capture.trailers(Direction::Request, &[("T", "1")].into_iter().collect());
    let mut early = response(103);
    early.headers.append_unchecked(b"Link", b"</a>");
    capture.interim(&early);
    flow.upstream = Some(detailed_upstream());
    flow.timings.request_head = Some(0);
    flow.timings.first_byte = Some(1_000);
    let mut answer = response(418);
    answer.headers.append_unchecked(b"Set-Cookie", b"s=secret");
    capture.response(&flow, &answer);
    let response_body = noise(300_000, 1);
    feed(&mut *capture, Direction::Response, &response_body);
    flow.timings.done = Some(2_500);
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let row = store.get(flow.id).unwrap();
    DetailedExchange { store, flow, row, response_body }
}

fn detailed_flow() -> Flow {
    let mut flow = flow("Api.Test");
    flow.client_tls = Some(Arc::new(ClientTls {
        sni: Some("api.test".into()),
        version: Some("TLSv1.3"),
        cipher: Some("TLS13_AES_128_GCM_SHA256".into()),
        alpn_offered: vec!["h2".into(), "http/1.1".into()],
        alpn: Some("http/1.1".into()),
        ja3: Some("abc".into()),
        ja4: Some("t13d".into()),
        client_name: None,
        certificates: CertificateChain::from_der([&b"our leaf"[..], b"our root"]),
    }));
    flow.client_http2 = Some("1:65536|0|0|m,a,s,p".into());
    flow.ja4h = Some("po11nn".into());
    let process = ClientProcess { pid: 4711, name: "curl".into() };
    flow.client = Arc::new(ClientInfo { process: Some(Arc::new(process)), ..(*flow.client).clone() });
    flow.user = Some("alice".into());
    flow.parent = Some(FlowId::from_u128(5));
    flow.tag("redacted");
    flow.extension_mut::<Attempts>().begin(detailed_attempt());
    flow
}

fn detailed_attempt() -> Attempt {
    Attempt {
        provider: "openai".into(),
        deployment: "openai/gpt-5".into(),
        model: Some("gpt-5".into()),
        host: "api.openai.com".into(),
        path: "/v1/chat/completions".into(),
        state: AttemptState::Failed,
        hedge: true,
        status: Some(503),
        error: Some(ErrorKind::UpstreamTimeout),
        message: Some("late".into()),
        started: 5,
        first_byte: Some(6),
        ended: Some(7),
        input_tokens: Some(8),
        output_tokens: Some(9),
        estimated: true,
        cost: Some(10),
    }
}

fn detailed_upstream() -> UpstreamInfo {
    UpstreamInfo {
        peer: Some("[2001:db8::1]:443".parse().unwrap()),
        local: Some("[::1]:999".parse().unwrap()),
        via: Some("corp-proxy:3128".into()),
        version: HttpVersion::H2,
        connection: 12,
        reused: true,
        tls: Some(Arc::new(UpstreamTls {
            version: Some("TLSv1.2"),
            cipher: None,
            alpn: Some("h2".into()),
            unverified: true,
            problem: Some("expired".into()),
            resumed: true,
            fingerprint: Some("chrome".into()),
            certificates: CertificateChain::from_der([&b"their leaf"[..]]),
        })),
    }
}

fn identity_user_tags_attempts_and_timings_of_a_flow_round_trip(kind: &StoreKind) {
    let DetailedExchange { row, flow, .. } = detailed_exchange(kind);
    assert_eq!(
        (row.id, row.state, row.kind, row.started),
        (flow.id, FlowState::Complete, FlowKind::Http, flow.clock.started_at())
    );
    assert_eq!(row.url(), "https://api.test/v1/x?y=1");
    assert_eq!(row.user.as_deref(), Some("alice"));
    assert_eq!(row.parent, flow.parent);
    assert_eq!(row.tags, ["redacted"]);
    assert_eq!(row.attempts, [detailed_attempt()]);
    assert_eq!(row.timings, flow.timings);
}

fn fingerprints_and_process_of_the_client_round_trip(kind: &StoreKind) {
    let row = detailed_exchange(kind).row;
    let tls = row.client.tls.as_ref().unwrap();
    assert_eq!((tls.ja4.as_deref(), tls.alpn_offered.len()), (Some("t13d"), 2));
    assert_eq!(row.client.http2.as_deref(), Some("1:65536|0|0|m,a,s,p"));
    assert_eq!(row.client.ja4h.as_deref(), Some("po11nn"));
    assert_eq!(row.client.process, Some(ProcessRecord { pid: 4711, name: "curl".into() }));
}

fn certificate_chains_of_both_sides_round_trip(kind: &StoreKind) {
    let DetailedExchange { store, flow, .. } = detailed_exchange(kind);
    let chains = store.certificates(flow.id).unwrap();
    let ders = chains.map(|chain| chain.unwrap().iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
    assert_eq!(ders, [vec![b"our leaf".to_vec(), b"our root".to_vec()], vec![b"their leaf".to_vec()]]);
}

fn flows_are_found_by_process_and_fingerprint_of_the_client(kind: &StoreKind) {
    let DetailedExchange { store, .. } = detailed_exchange(kind);
    for query in ["process:curl", "pid:4711", "ja4h:po11", "http2:\"1:65536\""] {
        let query = query.parse().unwrap();
        assert_eq!(store.count(&query).unwrap(), 1, "{query}");
    }
}

fn upstream_connection_and_its_tls_problem_round_trip(kind: &StoreKind) {
    let row = detailed_exchange(kind).row;
    let up = row.upstream.as_ref().unwrap();
    assert_eq!((up.peer, up.reused, &*up.version), (Some("[2001:db8::1]:443".parse().unwrap()), true, "HTTP/2"));
    assert_eq!(up.tls.as_ref().unwrap().problem.as_deref(), Some("expired"));
}

fn heads_interim_responses_and_trailers_round_trip(kind: &StoreKind) {
    let row = detailed_exchange(kind).row;
    let request = row.request.as_ref().unwrap();
    assert_eq!(request.method.as_str(), "PoST");
    assert_eq!(request.headers.get_all("x-raw").collect::<Vec<_>>(), [&b"\xff\xfe"[..], b""]);
    assert_eq!(request.trailers.get("t"), Some(&b"1"[..]));
    assert_eq!(row.interim[0].status, 103);
    let response = row.response.as_ref().unwrap();
    assert_eq!((response.status, &response.reason[..]), (418, &b"Fine"[..]));
}

fn secret_headers_are_recorded_masked(kind: &StoreKind) {
    let row = detailed_exchange(kind).row;
    assert_eq!(row.request.unwrap().headers.get("authorization").unwrap(), b"Bearer *** (9 bytes)");
    assert_eq!(row.response.unwrap().headers.get("set-cookie").unwrap(), b"*** (8 bytes)");
}

fn bodies_round_trip_with_their_sizes(kind: &StoreKind) {
    let DetailedExchange { store, flow, row, response_body } = detailed_exchange(kind);
    assert_eq!(row.request.unwrap().body, BodyRecord::partial(8, 8, None));
    assert_eq!(row.response.unwrap().body, BodyRecord::partial(300_000, 300_000, None));
    assert_eq!(read(&store, flow.id, Direction::Request), b"question");
    assert_eq!(read(&store, flow.id, Direction::Response), response_body);
}

fn a_row_with_all_details_survives_its_json_form(kind: &StoreKind) {
    let row = detailed_exchange(kind).row;
    let json = serde_json::to_value(&row).unwrap();
    assert_eq!(serde_json::from_value::<FlowRecord>(json).unwrap(), row);
}

fn bodies_of_every_length_and_range_round_trip(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let lengths = [0, 1, 511, 512, 513, 8_192, 12_287, 12_288, 12_289, 65_536, 1 << 20, 3_000_000];
    let kept: Vec<_> = lengths
        .iter()
        .map(|&len| (exchange(&recorder, "a.test", "/", &noise(len, 9), &vec![b'x'; len]).id, len))
        .collect();
    store.flush().unwrap();
    let store = kind.reopen_read(store);
    for (id, len) in kept {
        let sent = noise(len, 9);
        assert_eq!(read(&store, id, Direction::Request), sent, "{len}");
        assert_eq!(read(&store, id, Direction::Response), vec![b'x'; len], "{len}");
        for (from, to) in [(0, len / 2), (len / 3, len / 2), (len / 2, len + 10), (len, len + 1)] {
            let part =
                store.body(id, Direction::Request, from as u64..to as u64).unwrap().read_all(usize::MAX).unwrap();
            assert_eq!(part, sent[from.min(len)..to.min(len)], "{len}: {from}..{to}");
        }
    }
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

fn messages_keep_order_direction_and_time(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let flow = flow("ws.test");
    let mut head = request(&flow, "GET", "/chat");
    head.protocol = Some("websocket".into());
    let mut capture = recorder.begin(&flow, Some(&head)).unwrap();
    capture.response(&flow, &response(101));
    let kinds = [MessageKind::Text, MessageKind::Binary, MessageKind::Ping, MessageKind::Close];
    let sent: Vec<StreamMessage> = (0..40u64)
        .map(|i| StreamMessage {
            direction: if i % 3 == 0 { Direction::Request } else { Direction::Response },
            kind: kinds[i as usize % 4],
            payload: noise(i as usize * 37, i).into(),
            at: Timestamp::from_micros(1_000_000 + i * 10),
        })
        .collect();
    for (i, m) in sent.iter().enumerate() {
        capture.message(m);
        if i == 20 {
            store.flush().unwrap();
        }
    }
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let row = store.get(flow.id).unwrap();
    assert_eq!((row.kind, row.messages), (FlowKind::WebSocket, 40));
    let all = store.messages(flow.id, 0..u64::MAX).unwrap();
    assert_eq!(all.len(), 40);
    for (i, (m, s)) in all.iter().zip(&sent).enumerate() {
        assert_eq!((m.index, m.direction, m.kind, m.at), (i as u64, s.direction, s.kind, s.at));
        assert_eq!((&m.payload, m.size), (&s.payload, s.payload.len() as u64));
    }
    let some: Vec<u64> = store.messages(flow.id, 18..23).unwrap().iter().map(|m| m.index).collect();
    assert_eq!(some, [18, 19, 20, 21, 22]);
}

fn a_tunnel_is_recorded_with_its_byte_counts(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let tunnel = flow("t.test");
    let capture = store.recorder().unwrap().begin(&tunnel, None).unwrap();
    capture.finish(&tunnel, FlowOutcome::Tunnelled(ByteCounts { sent: 10, received: 20 }));
    store.flush().unwrap();
    let row = store.get(tunnel.id).unwrap();
    assert_eq!(
        (row.kind, row.state, row.tunnel),
        (FlowKind::Tunnel, FlowState::Complete, Some(TunnelRecord { sent: 10, received: 20 }))
    );
}

fn a_failed_flow_is_recorded_with_its_error(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let failed = flow("f.test");
    let error = Error::new(ErrorKind::UpstreamTimeout, "f.test did not answer");
    let capture = store.recorder().unwrap().begin(&failed, Some(&request(&failed, "GET", "/"))).unwrap();
    capture.finish(&failed, FlowOutcome::Failed(&error, ByteCounts::default()));
    store.flush().unwrap();
    let row = store.get(failed.id).unwrap();
    let e = row.error.unwrap();
    assert_eq!(
        (row.state, &*e.kind, &*e.blame, e.message.as_str()),
        (FlowState::Failed, "upstream_timeout", "upstream", "f.test did not answer")
    );
    assert_eq!(row.tunnel, None);
}

fn a_capture_dropped_without_an_end_is_recorded_as_cut(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let cut = flow("c.test");
    drop(store.recorder().unwrap().begin(&cut, Some(&request(&cut, "GET", "/"))).unwrap());
    store.flush().unwrap();
    assert_eq!(store.get(cut.id).unwrap().state, FlowState::Cut);
    // By the columns of the store, and row by row.
    for (query, n) in [("is:cut", 1), ("is:cut -header:x-none", 1), ("-is:cut", 0), ("is:error", 0)] {
        assert_eq!(store.count(&Query::parse(query).unwrap()).unwrap(), n, "{query}");
    }
}

fn an_unknown_flow_is_not_found(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    assert!(matches!(store.get(FlowId::from_u128(1)), Err(StoreError::NotFound(_))));
}

fn configured_caps_are_applied_and_reported(kind: &StoreKind) {
    let config = RecordConfig { max_body: interflow_types::units::ByteSize(20_000), ..RecordConfig::default() };
    let store = kind.open(&config);
    let flow = exchange(&store.recorder().unwrap(), "a.test", "/", &noise(50_000, 1), b"short");
    store.flush().unwrap();
    let row = store.get(flow.id).unwrap();
    assert_eq!(row.request.unwrap().body, BodyRecord::partial(50_000, 20_000, Some(MissingReason::Capped)));
    assert_eq!(row.response.unwrap().body, BodyRecord::partial(5, 5, None));
    assert_eq!(read(&store, flow.id, Direction::Request), noise(50_000, 1)[..20_000]);
}

fn disabled_body_recording_stores_only_sizes(kind: &StoreKind) {
    let store = kind.open(&RecordConfig { bodies: false, ..RecordConfig::default() });
    let flow = exchange(&store.recorder().unwrap(), "a.test", "/", b"secret words", b"more");
    store.flush().unwrap();
    let body = store.get(flow.id).unwrap().request.unwrap().body;
    assert_eq!(body, BodyRecord::partial(12, 0, Some(MissingReason::Capped)));
    assert_eq!(read(&store, flow.id, Direction::Request), b"");
}

fn with_id(flow: &FlowWithBodies, id: u128) -> FlowWithBodies {
    FlowWithBodies { row: FlowRecord { id: FlowId::from_u128(id), ..flow.row.clone() }, ..flow.clone() }
}

fn secrets_in_urls_of_imported_flows_are_masked(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let (id, transport) = (FlowId::from_u128(77), interflow_types::EntryKind::Internal);
    let mut row =
        FlowRecord::new(id, Timestamp::from_micros(5), transport, Scheme::Https, "a.test:443".parse().unwrap());
    row.state = FlowState::Complete;
    row.request = Some(RequestRecord {
        method: "GET".into(),
        path: "/cb?code=s3cret&a=1".into(),
        version: "HTTP/1.1".into(),
        ..RequestRecord::default()
    });
    assert!(store.insert(FlowWithBodies::new(row)).unwrap());
    assert_eq!(store.get(id).unwrap().request.unwrap().path, "/cb?code=***&a=1");
}

fn an_imported_flow_is_stored_once(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let mut row = FlowRecord::new(
        FlowId::from_u128(99),
        Timestamp::from_micros(5),
        interflow_types::EntryKind::Internal,
        Scheme::Http,
        "[::1]:80".parse().unwrap(),
    );
    row.state = FlowState::Complete;
    row.imported = true;
    row.response = Some(ResponseRecord {
        status: StatusCode::OK.as_u16(),
        reason: Bytes::new(),
        version: "HTTP/3".into(),
        headers: Headers::new(),
        trailers: Headers::new(),
        body: BodyRecord::default(),
    });
    let new = FlowWithBodies { response_body: noise(100_000, 4).into(), ..FlowWithBodies::new(row) };
    assert!(store.insert(new.clone()).unwrap());
    assert!(!store.insert(new.clone()).unwrap());
    // More than one statement inserts, one that is there already, and one twice.
    let mut several: Vec<_> = (50..150).map(|id| with_id(&new, id)).collect();
    several.push(with_id(&new, 60));
    assert_eq!(store.insert_all(several).unwrap(), 99);
    assert_eq!(store.count(&Query::all()).unwrap(), 100);
    assert_eq!(read(&store, FlowId::from_u128(149), Direction::Response), noise(100_000, 4));
    let back = store.get(FlowId::from_u128(99)).unwrap();
    assert!(back.imported && back.authority.to_string() == "[::1]:80");
    assert_eq!(back.response.as_ref().unwrap().body.kept, 100_000);
    assert_eq!(read(&store, back.id, Direction::Response), noise(100_000, 4));
}

fn flows_written_together_keep_their_own_host_client_and_type(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    // More rows than one statement takes, plus a remainder; hosts, clients and types vary from row to row.
    let told: Vec<_> = (0..150u8)
        .map(|i| {
            let client = ClientInfo { peer: format!("10.0.{}.1:80", i / 2).parse().unwrap(), ..(*client()).clone() };
            let host = ["a.test", "b.test", "[::1]"][usize::from(i) % 3];
            let flow = Flow::begin(
                Arc::new(client),
                EntryKind::Connect,
                Scheme::Https,
                format!("{host}:443").parse().unwrap(),
            );
            let mut capture = recorder.begin(&flow, Some(&request(&flow, "POST", &format!("/{i}")))).unwrap();
            let media = ["Text/HTML ; charset=x", "image/png", ""][usize::from(i) % 3];
            let head = ResponseHead { headers: Headers::from_iter([("content-type", media)]), ..response(200) };
            capture.response(&flow, &head);
            capture.finish(&flow, FlowOutcome::Complete);
            (flow.id, i)
        })
        .collect();
    store.flush().unwrap();
    let found = |query: &str| store.count(&Query::parse(query).unwrap()).unwrap();
    for (id, i) in told {
        let row = store.get(id).unwrap();
        assert_eq!(row.host(), ["a.test", "b.test", "::1"][usize::from(i) % 3]);
        assert_eq!(row.client.peer.unwrap().ip().to_string(), format!("10.0.{}.1", i / 2));
        assert_eq!(row.request.unwrap().path, format!("/{i}"));
        assert_eq!(found(&format!("client:10.0.{}.1", i / 2)), 2);
    }
    assert_eq!((found("resp.type:text/html"), found("resp.type:image/png"), found("host:b.test")), (50, 50, 50));
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}
