//! Bills: usage as providers report it costs what their published prices say.

use interflow_llm::usage::summary_from_value;
use interflow_models::current;
use interflow_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A line of `bills.jsonl`, which `scripts/bills` makes.
#[derive(Deserialize)]
struct Bill {
    provider: String,
    model: String,
    /// A day, or a day with a time, in UTC.
    day: String,
    /// The host that answered, if that matters.
    host: String,
    body: Value,
    /// `None` if a price is not published.
    usd: Option<f64>,
}

fn at(day: &str) -> Timestamp {
    let time = if day.contains('T') { format!("{day}:00Z") } else { format!("{day}T00:30:00Z") };
    Timestamp::from_secs(time.parse::<jiff::Timestamp>().unwrap().as_second() as u64)
}

#[test]
fn usage_of_every_provider_costs_what_its_published_prices_say() {
    let (mut bills, mut unknown, mut wrong) = (0, 0, Vec::new());
    for line in include_str!("bills.jsonl").lines() {
        let Bill { provider, model, day, host, body, usd } = serde_json::from_str(line).unwrap();
        let usage = summary_from_value(&body).usage.unwrap_or_default().at_host(&host);
        let price = current().model(&provider, &model).and_then(|model| model.price_at(at(&day)));
        let cost = price.unwrap_or_else(|| panic!("{provider}/{model} has no price")).cost(&usage);
        let is_equal = match (cost, usd) {
            (Some(cost), Some(usd)) => (cost - usd).abs() < 1e-9,
            (cost, usd) => cost.is_none() && usd.is_none(),
        };
        if !is_equal {
            wrong.push(format!("{cost:?}, not {usd:?}: {line}"));
        }
        (bills, unknown) = (bills + 1, unknown + usize::from(usd.is_none()));
    }
    assert!(wrong.is_empty(), "{} of {bills}:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
    assert!(bills > 900 && unknown < bills / 4, "{unknown} of {bills} are unknown");
}
