//! Models as commands, the API and the UI show them: each with the price by which its calls are charged.

use std::collections::BTreeSet;
use std::sync::Arc;

use interflow_models::{Catalog, Price};
use interflow_query::unknown_key_message;
use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::prices::{PriceList, PriceListDates};

/// A model with the price that applies now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelView {
    /// Provider and model, as the catalog has them, or the entry of the operator's own list.
    pub name: String,
    /// `null` if it has none; so are prices in it that the provider has not published.
    pub price: Option<Arc<Price>>,
    /// The entry of the operator's own list that the price is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// What translation leaves out, moves or changes in requests for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub translation: Vec<String>,
    #[serde(flatten)]
    #[schemars(with = "interflow_models::Model")]
    record: Map<String, Value>,
}

/// Models that were asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelListing {
    /// The model of exactly this name at the provider, as a call would be charged: also one whose name the catalog has
    /// without region, vendor and date.
    pub named: Option<ModelView>,
    /// Those whose names contain the text, up to the limit.
    pub models: Vec<ModelView>,
    /// How many there are.
    pub total: usize,
    pub as_of: PriceListDates,
}

impl PriceList {
    /// The models whose names contain a text, at one provider or at all: first the entries of the operator's own list that
    /// the catalog does not have.
    ///
    /// # Errors
    /// Neither the catalog nor the own list has the provider.
    pub fn models(&self, provider: Option<&str>, text: &str, limit: usize) -> Result<ModelListing, String> {
        let (catalog, now) = (interflow_models::current(), Timestamp::now());
        let names = catalog.names("/").chain(self.own_names());
        let providers: BTreeSet<_> = names.filter_map(|name| Some(name.split_once('/')?.0)).collect();
        if let Some(unknown) = provider.filter(|provider| !providers.contains(provider)) {
            return Err(format!(
                "{} (a provider of your own name has the prices of the models' makers: leave it out)",
                unknown_key_message("provider", unknown, &Vec::from_iter(providers))
            ));
        }
        let split = |name| str::split_once(name, '/').filter(|(provider, _)| providers.contains(provider));
        let (at, model) = provider.map(|at| (at, text)).or_else(|| split(text)).unwrap_or(("", text));
        let prefix = provider.map(|provider| format!("{provider}/")).unwrap_or_default();
        let is_listed = |name: &&str| name.starts_with(&prefix) && name.contains(text);
        let own = self.own_names().filter(|name| is_listed(name) && catalog.entry(name).is_none());
        let names: Vec<_> = own.chain(catalog.names(text).filter(is_listed)).collect();
        let view = |(provider, model): (&str, &str)| self.view(&catalog, provider, model, now);
        let models = names.iter().take(limit).filter_map(|name| {
            Some(ModelView { name: (*name).to_owned(), ..view(split(name).unwrap_or(("", name)))? })
        });
        Ok(ModelListing { named: view((at, model)), total: names.len(), models: models.collect(), as_of: self.as_of() })
    }

    /// A model at a provider, at its maker if that is empty; `None` if nothing has it.
    fn view(&self, catalog: &Catalog, provider: &str, model: &str, now: Timestamp) -> Option<ModelView> {
        let entry = catalog.model(provider, model);
        let maker = entry.iter().find_map(|entry| entry.name.split('/').next()).unwrap_or_default().to_owned();
        let provider = if provider.is_empty() { &*maker } else { provider };
        let own = self.own_entry(provider, model, now).map(|entry| entry.pattern.clone());
        if model.is_empty() || entry.is_none() && own.is_none() {
            return None;
        }
        let unlisted = || [provider, model].join("/").trim_start_matches('/').to_owned();
        Some(ModelView {
            record: entry.as_ref().and_then(|entry| catalog.record(&entry.name)).unwrap_or_default(),
            name: entry.map_or_else(unlisted, |entry| entry.name.clone()),
            price: self.for_call(provider, Some(model), None, now),
            own,
            translation: catalog.capabilities(provider, model).map(|row| row.translation()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_models::Unit;

    fn list() -> PriceList {
        let text = r#"{"prices": {"gpt-4o": {"input": 7, "output": 8}, "local/*": {"input": 0, "output": 0},
            "bedrock/us.*": {"input": 9, "output": 9}, "openai/gpt-6.1*": {"input": 5, "output": 6},
            "later": {"input": 1, "output": 1, "from": "2999-01-01"}}}"#;
        PriceList::with_overrides(text).unwrap()
    }

    #[test]
    fn a_model_is_shown_with_the_price_that_its_calls_are_charged() {
        let prices = list();
        for (provider, name, shown, input, own) in [
            (None, "gpt-6.2-sol", "openai/gpt-6.2-sol", 2.0, None),
            (None, "gpt-6.1-sol", "openai/gpt-6.1-sol", 5.0, Some("openai/gpt-6.1*")),
            (None, "openai/gpt-6.1-sol", "openai/gpt-6.1-sol", 5.0, Some("openai/gpt-6.1*")),
            (Some("azure"), "gpt-4o", "azure/gpt-4o", 7.0, Some("gpt-4o")),
            (Some("local"), "whatever", "local/whatever", 0.0, Some("local/*")),
            (None, "local/whatever", "local/whatever", 0.0, Some("local/*")),
            (Some("gemini"), "models/gpt-4o", "openai/gpt-4o", 7.0, Some("gpt-4o")),
            (
                Some("bedrock"),
                "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                9.0,
                Some("bedrock/us.*"),
            ),
        ] {
            let named = prices.models(provider, name, 9).unwrap().named.unwrap();
            let price = named.price.unwrap();
            assert_eq!((&*named.name, price.rates[&Unit::Input], named.own.as_deref()), (shown, Some(input), own));
            let charged = prices.for_call(
                shown.split('/').next().unwrap(),
                Some(name.rsplit('/').next().unwrap()),
                None,
                Timestamp::now(),
            );
            assert_eq!(charged, Some(price), "{name}");
        }
        for name in ["gpt-6", "later", "", "qwen/nobody-knows"] {
            assert!(prices.models(None, name, 9).unwrap().named.is_none(), "{name}");
        }
    }

    #[test]
    fn own_entries_outside_the_catalog_are_listed_first_and_an_unknown_provider_is_an_error() {
        let prices = list();
        let names = |listing: ModelListing| listing.models.into_iter().map(|m| m.name).collect::<Vec<_>>();
        assert_eq!(names(prices.models(None, "loca", 1).unwrap()), ["local/*"]);
        let of_openai = prices.models(Some("openai"), "gpt-6.1", 2).unwrap();
        assert_eq!(
            (of_openai.total, &*names(of_openai)),
            (3, &["openai/gpt-6.1*", "openai/gpt-6.1-sol"].map(str::to_owned)[..])
        );
        assert_eq!(names(prices.models(Some("local"), "", 9).unwrap()), ["local/*"]);
        let near = prices.models(Some("opnai"), "", 9).unwrap_err();
        assert!(near.contains("unknown provider `opnai`: did you mean `openai`?"), "{near}");
        let far = prices.models(Some("nope-at-all"), "", 9).unwrap_err();
        assert!(far.contains("known providers are ") && far.contains("openai, ") && far.contains("local"), "{far}");
    }
}
