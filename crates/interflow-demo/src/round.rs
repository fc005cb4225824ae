//! What the demo's clients send in a round.

use crate::agent::run_agents;
use crate::client::{DemoEndpoints, DemoRequest, PAGES};
use crate::media_demo::MediaDemo;
use crate::{BANK, SHOP, WAREHOUSE};

/// Reserves goods at the warehouse repeatedly; each request needs approval, so it waits until a person decides.
pub async fn reserve_stock(world: &DemoEndpoints) {
    let headers = [("User-Agent", "shop-agent/1.0 (demo)"), ("Content-Type", "application/json")];
    for n in 1u32.. {
        let body = format!(r#"{{"product":{n},"count":2,"for":"order 4711"}}"#);
        // A denial is an expected outcome.
        let _ = world.send(&DemoRequest::post(WAREHOUSE, "/reservations", &headers, body.as_bytes())).await;
        tokio::time::sleep(crate::ROUND_PAUSE).await;
    }
}

pub async fn round(world: &DemoEndpoints, film: Option<&MediaDemo>, round: u32) {
    let shop = async {
        for (host, path) in PAGES.iter() {
            world.get(host, path).await;
        }
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let login = DemoRequest::post(SHOP, "/login", &form, b"user=demo&password=hunter2");
        let json = [("Content-Type", "application/json"), ("Authorization", "Bearer demo-secret")];
        let order = br#"{"items":[{"product":1,"count":2}],"ship_to":{"city":"Ulm"}}"#;
        let order = DemoRequest::post(SHOP, "/orders?source=demo", &json, order);
        // Random-looking bytes, which neither compress nor are text.
        let blob: Vec<u8> = (0..50_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let bytes = [("Content-Type", "application/octet-stream")];
        let upload = DemoRequest { method: "PUT", ..DemoRequest::post(SHOP, "/echo", &bytes, &blob) };
        let query = br#"{"operationName":"Lamps","query":"query Lamps($most: Int) { products(tag: \"light\", first: $most) { id name price } }","variables":{"most":3}}"#;
        let query = DemoRequest::post(SHOP, "/graphql", &json, query);
        let multipart = [("Content-Type", "multipart/form-data; boundary=demo")];
        let photo = DemoRequest::post(SHOP, "/photos", &multipart, include_bytes!("../data/photo.multipart"));
        let grpc = [("Content-Type", "application/grpc-web+proto")];
        let stock = DemoRequest::post(SHOP, "/shop.Stock/Get", &grpc, b"\0\0\0\0\x02\x08\x01");
        let agent = [("User-Agent", "pay/2.1 (demo)"), ("Content-Type", "application/json")];
        let payment = br#"{"to":"DE02 1203 0000 0000 2020 51","amount":"39.80","for":"order 4711"}"#;
        let payment = DemoRequest::post(BANK, "/payments", &agent, payment);
        // One failure must not end the round.
        for request in [&login, &order, &upload, &query, &photo, &stock, &payment] {
            let _ = world.send(request).await;
        }
        let _ = world.socks().await;
        let _ = world.bytes().await;
        let _ = world.socket().await;
    };
    let film = async {
        if let Some(film) = film {
            let _ = film.watch().await;
        }
    };
    tokio::join!(shop, film, run_agents(world, round));
}
