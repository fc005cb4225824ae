//! Figures of recorded flows over time.

use serde_json::json;

use super::*;

#[tokio::test]
async fn overview_counts_flows_by_bucket_host_and_status() {
    let instance = Instance::start().await;
    let begun = Timestamp::now().micros();
    for i in 0..6 {
        instance.record(&format!("/{i}"));
    }
    instance.settle().await;
    let to = Timestamp::now().micros() + 1;
    let found = instance.json(&format!("/overview?from={begun}&to={to}&buckets=4&compare=true")).await;
    assert_eq!(found["totals"]["requests"], 6);
    assert_eq!(found["totals"]["failed"], 0);
    let counts: Vec<u64> =
        found["series"]["requests"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (4, 6));
    assert_eq!(found["hosts"], json!([{"name": "live.test", "requests": 6, "errors": 0, "bytes": 0}]));
    assert_eq!(found["statuses"], json!([{"status": 204, "requests": 6}]));
    assert_eq!(found["previous"]["totals"]["requests"], 0);
    assert_eq!(found["slowest"].as_array().unwrap().len(), 6);
    // All flows, with a given length of buckets.
    let all = instance.json("/overview?step=3600000000").await;
    assert_eq!((all["totals"]["requests"].as_u64(), all["step"].as_u64()), (Some(6), Some(3_600_000_000)));
    assert!(all["from"].as_u64() >= Some(begun));
}

#[tokio::test]
async fn overview_of_a_query_counts_only_its_flows() {
    let instance = Instance::start().await;
    (0..5).for_each(|i| drop(instance.record(&format!("/{i}"))));
    instance.settle().await;
    let found = instance.json("/overview?query=path:/3").await;
    assert_eq!(found["totals"]["requests"], 1);
    assert!(found["sample"].is_null());
}

#[tokio::test]
async fn overview_refuses_what_it_cannot_answer() {
    let instance = Instance::start().await;
    for wrong in ["from=20&to=10", "buckets=0", "buckets=501", "query=status:", "span=1h"] {
        let answer = instance.get(&format!("/overview?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
}
