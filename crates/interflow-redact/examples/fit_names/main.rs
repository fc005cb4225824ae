//! Fits the weights of the features of names to labelled texts, and writes `data/names.weights.toml`.
//!
//! `fit_names OUT.toml [--from FILE.toml | --from-zero] [--strength N] [--only PREFIX] [--times N] TEXTS.json... `
//!
//! Texts are in presidio-research's JSON format, as an array or one per line. A label may have a `confidence` in percent,
//! if another detector made it. `--times` is how often each text of the files behind it counts. Without `--from`, the
//! committed weights are where the fit starts and what it stays close to: `--strength` examples outweigh one of them.
//! `--only model_` leaves all weights as they are but those of what a model says, for texts that `accuracy --model` wrote.

mod fit;

use interflow_redact::name_training::{FEATURES, MODELS, NameWeights, feature_name};

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let out = args.next().ok_or("usage: fit_names OUT.toml [OPTIONS] TEXTS.json...")?;
    let mut prior = NameWeights::committed().clone();
    let (mut strength, mut times) = (20.0, 1.0);
    let mut only = String::new();
    let mut texts = Vec::new();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |v: String| v.parse::<f64>().map_err(|e| format!("{v}: {e}"));
        match arg.as_str() {
            "--from" => prior = NameWeights::parse(&read(&value()?)?)?,
            "--from-zero" => prior = NameWeights::zero(),
            "--strength" => strength = number(value()?)?,
            "--only" => only = value()?,
            "--times" => times = number(value()?)?,
            path => {
                let more = fit::read_texts(&read(path)?).map_err(|e| format!("{path}: {e}"))?;
                texts.extend(more.into_iter().map(|t| (t, times)));
            }
        }
    }
    let mut fitted = fit::fit(&prior, &texts, strength, &only);
    println!("as labelled: {:.4} before, {:.4} after", fit::agreement(&prior, &texts), fit::agreement(&fitted, &texts));
    for (model, feature) in (0..MODELS).flat_map(|m| (0..FEATURES).map(move |f| (m, f))) {
        let (before, after) = (*prior.row(model, feature), *fitted.row(model, feature));
        if before != after {
            println!("{:?}: {before:?} -> {after:?}", feature_name(model, feature));
        }
    }
    std::fs::write(&out, fit::to_toml(&fitted)).map_err(|e| format!("{out} cannot be written: {e}"))
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path} cannot be read: {e}"))
}
